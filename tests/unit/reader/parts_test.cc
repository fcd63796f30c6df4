// The reader's pure parts: memory, map, queue, histogram, coalescing, cache, policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "base/mix.h"
#include "reader/cache.h"
#include "reader/chunk_map.h"
#include "reader/coalesce.h"
#include "reader/fifo.h"
#include "reader/histogram.h"
#include "reader/memory_pool.h"
#include "reader/policy.h"

namespace dlfs::reader {
namespace {

// ---- memory pool ----

TEST(MemoryPool, never_maps_more_than_its_limit_and_never_hands_out_a_byte_twice) {
  for (const std::uint64_t limit : {4096u, 12288u, 100'000u, 1u << 20, 9u << 20}) {
    MemoryPool pool(limit, 64u << 10);
    base::Prng prng(limit);
    struct Live {
      MemoryPool::Block block;
      std::uint64_t bytes;
      int mark;
    };
    std::vector<Live> live;
    for (int step = 0; step < 2000; ++step) {
      if (prng.below(3) != 0) {
        const std::uint64_t bytes = 1 + prng.below(limit / 3 + 1);
        MemoryPool::Block block;
        if (!pool.allocate(bytes, block)) continue;
        ASSERT_GE(block.bytes, bytes);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block.data) % MemoryPool::kPageBytes, 0u);
        std::memset(block.data, step & 0x7f, bytes);
        live.push_back({block, bytes, step & 0x7f});
      } else if (!live.empty()) {
        const std::size_t i = prng.below(live.size());
        for (std::uint64_t b = 0; b < live[i].bytes; b += 97)
          ASSERT_EQ(std::to_integer<int>(live[i].block.data[b]), live[i].mark);
        pool.release(live[i].block);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
      }
      ASSERT_LE(pool.mapped_bytes(), limit);
      std::uint64_t used = 0;
      for (const Live& l : live) used += l.block.bytes;
      ASSERT_EQ(pool.used_bytes(), used);
    }
    for (const Live& l : live) pool.release(l.block);
    pool.trim();
    EXPECT_EQ(pool.mapped_bytes(), 0u);
    EXPECT_LE(pool.peak_bytes(), limit);
    EXPECT_GT(pool.peak_bytes(), 0u);
  }
}

TEST(MemoryPool, joins_freed_neighbours_so_that_a_whole_slab_can_be_had_again) {
  MemoryPool pool(4u << 20, 1u << 20);
  ASSERT_EQ(pool.slab_bytes(), 1u << 20);
  std::vector<MemoryPool::Block> small;
  MemoryPool::Block block;
  while (pool.allocate(4096, block)) small.push_back(block);
  EXPECT_EQ(small.size(), 1024u);
  EXPECT_FALSE(pool.allocate(1u << 20, block));
  for (const MemoryPool::Block& b : small) pool.release(b);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(pool.allocate(1u << 20, block)) << i;
}

TEST(MemoryPool, unmaps_free_slabs_for_a_long_block_and_the_other_way_round) {
  MemoryPool pool(8u << 20, 256u << 10);
  std::vector<MemoryPool::Block> small;
  MemoryPool::Block block, large;
  while (pool.allocate(256u << 10, block)) small.push_back(block);
  EXPECT_FALSE(pool.allocate(5u << 20, large));
  for (const MemoryPool::Block& b : small) pool.release(b);
  ASSERT_TRUE(pool.allocate(5u << 20, large));
  EXPECT_LE(pool.mapped_bytes(), 8u << 20);
  pool.release(large);
  std::size_t again = 0;
  while (pool.allocate(256u << 10, block)) ++again;
  EXPECT_EQ(again, small.size());
}

TEST(MemoryPool, one_block_beyond_the_limit_is_given_back_to_the_system_at_once) {
  MemoryPool pool(64u << 10, 0);
  MemoryPool::Block block;
  EXPECT_FALSE(pool.allocate(1u << 20, block));
  EXPECT_FALSE(pool.fits(1u << 20));
  ASSERT_TRUE(pool.allocate_beyond_limit(1u << 20, block));
  EXPECT_GE(pool.mapped_bytes(), 1u << 20);
  pool.release(block);
  EXPECT_LE(pool.mapped_bytes(), 64u << 10);
}

// ---- map, queue, histogram ----

TEST(ChunkMap, agrees_with_a_model_over_random_insertions_and_removals) {
  ChunkMap map;
  std::multimap<std::uint64_t, Buffer*> model;
  std::vector<std::unique_ptr<Buffer>> buffers;
  base::Prng prng(7);
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t chunk = prng.below(300);
    if (prng.below(2) == 0) {
      buffers.push_back(std::make_unique<Buffer>());
      map.add(chunk, buffers.back().get());
      model.emplace(chunk, buffers.back().get());
    } else if (const auto found = model.find(chunk); found != model.end()) {
      map.remove(chunk, found->second);
      model.erase(found);
    }
    const std::uint64_t probe = prng.below(300);
    std::set<Buffer*> expected, got;
    for (auto [i, end] = model.equal_range(probe); i != end; ++i) expected.insert(i->second);
    for (Buffer* b = map.find(probe); b != nullptr; b = b->next_in_chunk) got.insert(b);
    ASSERT_EQ(got, expected);
  }
}

TEST(Fifo, keeps_its_order_while_it_grows_and_wraps) {
  Fifo<int> fifo;
  int in = 0, out = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < round % 37; ++i) fifo.push(in++);
    for (int i = 0; i < round % 31 && !fifo.empty(); ++i) ASSERT_EQ(fifo.pop(), out++);
    ASSERT_EQ(fifo.size(), static_cast<std::size_t>(in - out));
    if (!fifo.empty()) {
      ASSERT_EQ(fifo.back(), in - 1);
    }
  }
}

TEST(Histogram, percentiles_are_right_within_two_percent) {
  for (const double scale : {1.0, 1e3, 1e6, 1e9}) {
    Histogram histogram;
    for (int i = 1; i <= 1000; ++i) histogram.add(std::chrono::nanoseconds(static_cast<std::int64_t>(i * scale)));
    for (const double p : {0.01, 0.5, 0.95, 0.99, 1.0}) {
      const double exact = (1 + p * 999) * scale * 1e-3;
      EXPECT_NEAR(histogram.percentile_us(p), exact, exact * 0.02 + scale * 1e-3);
    }
    EXPECT_NEAR(histogram.total_s(), 500500 * scale * 1e-9, 1e-9);
  }
  EXPECT_EQ(Histogram().percentile_us(0.5), 0);
}

// ---- coalescing ----

TEST(Coalesce, every_sample_lies_in_its_read_and_reads_keep_the_rules) {
  base::Prng prng(11);
  for (int round = 0; round < 300; ++round) {
    CoalesceRules rules;
    rules.block_bytes = prng.below(2) == 0 ? 512 : 4096;
    rules.chunk_bytes = 64u << 10;
    rules.gap_bytes = prng.below(3) * 4096;
    rules.longest_bytes = 32u << 10;
    std::vector<Want> wants;
    const std::uint64_t count = 1 + prng.below(200);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t chunk = prng.below(8);
      const bool large = chunk == 7 && prng.below(4) == 0;
      const std::uint64_t offset = large ? 0 : prng.below(7000) * 8;
      const std::uint64_t length = large ? 300'000 : 8 + prng.below((64u << 10) - offset - 8);
      wants.push_back({(large ? 10 + i * 8 : chunk) * rules.chunk_bytes + offset, length, i,
                       static_cast<std::uint32_t>(prng.below(4)), i});
    }
    std::vector<Extent> extents;
    coalesce(wants, rules, extents);
    std::size_t covered = 0;
    for (std::size_t e = 0; e < extents.size(); ++e) {
      const Extent& extent = extents[e];
      ASSERT_EQ(extent.begin % rules.block_bytes, 0u);
      ASSERT_EQ(extent.end % rules.block_bytes, 0u);
      std::uint32_t earliest = ~0u;
      for (std::uint32_t w = 0; w < extent.count; ++w) {
        const Want& want = wants[extent.first + w];
        ASSERT_GE(want.address, extent.begin);
        ASSERT_LE(want.address + want.length, extent.end);
        earliest = std::min(earliest, want.batch);
        ++covered;
      }
      ASSERT_EQ(extent.batch, earliest);
      if (e > 0) {
        ASSERT_GE(extent.batch, extents[e - 1].batch);
      }
      if (extent.end - extent.begin > rules.chunk_bytes) {
        ASSERT_GT(wants[extent.first].length, rules.chunk_bytes);
      } else {
        ASSERT_EQ(extent.begin / rules.chunk_bytes, (extent.end - 1) / rules.chunk_bytes);
      }
    }
    ASSERT_EQ(covered, wants.size());
  }
}

TEST(Coalesce, neighbours_become_one_read_and_far_ones_do_not) {
  const CoalesceRules rules{
      .block_bytes = 4096, .chunk_bytes = 256u << 10, .gap_bytes = 8192, .longest_bytes = 128u << 10};
  std::vector<Want> wants = {{0, 900, 0, 0, 0}, {900, 900, 1, 0, 1}, {10'000, 900, 2, 0, 2}, {100'000, 900, 3, 0, 3}};
  std::vector<Extent> extents;
  coalesce(wants, rules, extents);
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[0].count, 3u);
  EXPECT_EQ(extents[0].end, 12288u);
  EXPECT_EQ(extents[1].count, 1u);
}

// ---- cache ----

class CacheTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kChunk = 64u << 10;
  MemoryPool pool{4 * kChunk, kChunk};
  Cache cache{pool, kChunk, kChunk, 100};

  Buffer* add(std::uint64_t chunk) {
    Buffer* buffer =
        cache.add_cached(chunk, chunk * kChunk, (chunk + 1) * kChunk, chunk * kChunk, (chunk + 1) * kChunk);
    if (buffer != nullptr) buffer->ready = true;
    return buffer;
  }
};

TEST_F(CacheTest, the_buffer_whose_next_use_is_furthest_goes_first) {
  for (std::uint64_t chunk = 0; chunk < 4; ++chunk) ASSERT_NE(add(chunk), nullptr);
  const std::uint64_t next_use[] = {30, 10, 40, 20};
  for (std::uint64_t chunk = 0; chunk < 4; ++chunk) cache.settle(*cache.find(chunk * kChunk, 8), next_use[chunk]);
  const std::uint64_t leaves[] = {2, 0, 3, 1};
  for (std::uint64_t i = 0; i < 4; ++i) {
    Buffer* added = add(10 + i);
    ASSERT_NE(added, nullptr);
    added->refs = 1;
    EXPECT_EQ(cache.find(leaves[i] * kChunk, 8), nullptr) << i;
    for (std::uint64_t later = i + 1; later < 4; ++later)
      EXPECT_NE(cache.find(leaves[later] * kChunk, 8), nullptr) << i;
  }
  EXPECT_EQ(add(20), nullptr);
}

TEST_F(CacheTest, a_buffer_in_use_or_still_to_be_drawn_from_stays) {
  for (std::uint64_t chunk = 0; chunk < 4; ++chunk) {
    Buffer* buffer = add(chunk);
    buffer->draws_left = chunk == 1 ? 0 : 2;
    buffer->refs = chunk == 0 ? 1 : 0;
    cache.settle(*buffer, 5);
  }
  ASSERT_NE(add(9), nullptr);
  EXPECT_EQ(cache.find(kChunk, 8), nullptr);
  cache.find(9 * kChunk, 8)->refs = 1;
  EXPECT_EQ(add(10), nullptr);
  cache.set_desperate(true);
  EXPECT_NE(add(10), nullptr);
  EXPECT_NE(cache.find(0, 8), nullptr);
}

TEST_F(CacheTest, a_piece_that_is_not_drawn_from_any_more_is_taken_when_memory_is_short) {
  for (std::uint64_t chunk = 0; chunk < 4; ++chunk) add(chunk)->draws_left = 1000;
  for (int i = 0; i < 200; ++i) cache.note_draw(*cache.find(0, 8));
  EXPECT_NE(add(9), nullptr);
  EXPECT_NE(cache.find(0, 8), nullptr);
}

TEST_F(CacheTest, a_buffer_with_a_bad_record_is_not_kept) {
  Buffer* buffer = add(1);
  buffer->bad.push_back({});
  cache.settle(*buffer, 1);
  EXPECT_EQ(cache.find(kChunk, 8), nullptr);
}

TEST_F(CacheTest, private_buffers_come_all_or_none) {
  std::vector<Cache::Range> ranges;
  for (std::uint64_t i = 0; i < 40; ++i) ranges.push_back({i * 8192, i * 8192 + 8192});
  std::vector<Buffer*> buffers;
  EXPECT_FALSE(cache.add_private(ranges, buffers));
  ranges.resize(20);
  ASSERT_TRUE(cache.add_private(ranges, buffers));
  std::set<std::byte*> places;
  for (Buffer* buffer : buffers) EXPECT_TRUE(places.insert(buffer->memory).second);
  for (Buffer* buffer : buffers) cache.settle(*buffer, Cache::kUnknown);
  cache.evict_all();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST_F(CacheTest, a_range_longer_than_the_limit_has_memory_of_its_own_once) {
  std::vector<Buffer*> first, second;
  ASSERT_TRUE(cache.add_private({{0, 16 * kChunk}}, first));
  EXPECT_FALSE(cache.add_private({{0, 16 * kChunk}}, second));
  cache.settle(*first[0], Cache::kUnknown);
  EXPECT_TRUE(cache.add_private({{0, 16 * kChunk}}, second));
  cache.settle(*second[0], Cache::kUnknown);
}

// ---- policy ----

Shape shape_with(std::uint64_t cache_bytes) {
  Shape shape;
  shape.samples = 600'000;
  shape.units = 2160;
  shape.data_bytes = 2160ull * (256u << 10);
  shape.sample_bytes = 600'000ull * 929;
  shape.cache_bytes = cache_bytes;
  const MemoryPool pool(cache_bytes, shape.chunk_bytes);
  shape.slab_bytes = pool.slab_bytes();
  shape.slab_capacity_bytes = pool.slab_capacity_bytes();
  return shape;
}

TEST(Policy, reads_pieces_when_the_lanes_fit_and_samples_when_they_do_not) {
  EXPECT_TRUE(choose_policy(shape_with(256u << 20)).by_piece);
  EXPECT_FALSE(choose_policy(shape_with(256u << 20)).whole_units);
  EXPECT_TRUE(choose_policy(shape_with(1u << 30)).whole_units);
  const Policy small = choose_policy(shape_with(32u << 20));
  EXPECT_FALSE(small.by_piece);
  EXPECT_NE(small.notes.find("cache_bytes"), std::string::npos);
}

TEST(Policy, the_memory_that_its_note_names_is_enough) {
  const std::string note = choose_policy(shape_with(8u << 20)).notes;
  const std::size_t at = note.find("set cache_bytes to ");
  ASSERT_NE(at, std::string::npos) << note;
  const std::uint64_t named = std::stoull(note.substr(at + 19));
  EXPECT_TRUE(choose_policy(shape_with(named)).by_piece);
}

TEST(Policy, full_mode_keeps_everything_when_it_fits_and_part_of_it_when_not) {
  Shape shape = shape_with(1u << 30);
  shape.order.mode = order::Mode::kFull;
  EXPECT_GE(choose_policy(shape).resident_limit_bytes, shape.data_bytes);
  shape = shape_with(256u << 20);
  shape.order.mode = order::Mode::kFull;
  const Policy part = choose_policy(shape);
  EXPECT_GT(part.resident_limit_bytes, 128u << 20);
  EXPECT_LT(part.resident_limit_bytes, 256u << 20);
}

TEST(Policy, memory_that_nobody_set_holds_the_batches_and_the_lanes) {
  constexpr std::uint64_t kMachine = 16ull << 30;
  EXPECT_EQ(automatic_cache_bytes(shape_with(1u << 20), kMachine), 256u << 20);
  Shape large = shape_with(1u << 20);  // a batch of 256 MiB
  large.samples = large.units = 4000;
  large.sample_bytes = large.data_bytes = 4000ull << 20;
  EXPECT_GE(automatic_cache_bytes(large, kMachine), 4 * 256ull << 20);
  EXPECT_EQ(automatic_cache_bytes(large, 2ull << 30), 512u << 20);  // a quarter of a small machine
  EXPECT_EQ(automatic_cache_bytes(large, 256u << 20), 256u << 20);  // never less
  Shape lanes = shape_with(1u << 20);
  lanes.chunk_bytes = 1u << 20;
  lanes.units = 540;
  EXPECT_TRUE(choose_policy([&] {
                Shape shape = lanes;
                shape.cache_bytes = automatic_cache_bytes(lanes, kMachine);
                const MemoryPool pool(shape.cache_bytes, shape.chunk_bytes);
                shape.slab_bytes = pool.slab_bytes();
                shape.slab_capacity_bytes = pool.slab_capacity_bytes();
                return shape;
              }())
                  .by_piece);
}

TEST(Policy, chunk_mode_looks_further_ahead_when_samples_are_small) {
  Shape shape = shape_with(256u << 20);
  const std::uint64_t batch_bytes = 256 * 929;
  EXPECT_NEAR(static_cast<double>(batches_ahead(shape) * batch_bytes), 64.0 * (1u << 20), 1.0 * (1u << 20));
  shape.sample_bytes = 600'000ull * 20;  // bounded by what a batch ahead costs beside the samples
  EXPECT_LE(batches_ahead(shape) * 256ull * 120, 16u << 20);
  EXPECT_GE(batches_ahead(shape), 64u);
  shape.sample_bytes = 600'000ull << 20;
  EXPECT_EQ(batches_ahead(shape), 64u);
  shape.prefetch_batches = 3;
  EXPECT_EQ(batches_ahead(shape), 3u);
  shape.prefetch_batches = 0;
  shape.order.mode = order::Mode::kFull;
  EXPECT_EQ(batches_ahead(shape), 64u);
}

TEST(Policy, sizes_in_words) {
  EXPECT_EQ(in_words(17), "17 bytes");
  EXPECT_EQ(in_words(1536), "1.5 KiB");
  EXPECT_EQ(in_words(256u << 20), "256 MiB");
}

}  // namespace
}  // namespace dlfs::reader
