#include "directory/directory.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/mix.h"

namespace dlfs::directory {
namespace {

using layout::Location;
using layout::Superblock;

constexpr std::uint32_t kChunk = layout::kMinChunkBytes;

// What a pack would know: locations and hashes by id, in a placement of its own.
struct Model {
  std::vector<Location> locations;
  std::vector<std::uint64_t> hashes;
  std::vector<std::uint32_t> ids_by_slot;
  std::vector<std::uint64_t> first_slots;
  std::uint64_t data_bytes = 0;
};

// Places samples in a shuffled order of ids; lengths above a chunk become large ones.
Model place(const std::vector<std::uint64_t>& lengths, std::uint64_t seed, std::uint32_t chunk = kChunk,
            std::uint64_t hash_mask = ~0ull) {
  Model model;
  base::Prng prng(seed);
  const std::size_t n = lengths.size();
  model.locations.resize(n);
  for (std::uint32_t id = 0; id < n; ++id) {
    model.ids_by_slot.push_back(id);
    model.hashes.push_back(prng.next() & hash_mask);
  }
  for (std::size_t i = n; i > 1; --i) std::swap(model.ids_by_slot[i - 1], model.ids_by_slot[prng.below(i)]);
  std::uint64_t at = 0;
  bool open = false;  // a chunk with room behind `at`
  for (std::uint64_t slot = 0; slot < n; ++slot) {
    const std::uint32_t id = model.ids_by_slot[slot];
    const std::uint64_t length = lengths[id];
    const bool large = length > chunk;
    if (!open || large || at % chunk + length > chunk || at % chunk == 0) {
      at = (at + chunk - 1) / chunk * chunk;
      model.first_slots.push_back(slot);
    }
    model.locations[id] = {at, length, large};
    at = large ? (at + length + chunk - 1) / chunk * chunk : (at + length + 7) / 8 * 8;
    open = !large;
  }
  model.data_bytes = (at + chunk - 1) / chunk * chunk;
  return model;
}

struct Built {
  std::vector<std::byte> index;
  Superblock superblock;
};

Built build(const Model& model, bool names, std::uint32_t chunk = kChunk, std::uint64_t names_per_block = 100) {
  Builder builder(chunk, names);
  const std::size_t n = model.locations.size();
  for (std::size_t i = n; i > 0; --i)
    builder.add(SampleId(static_cast<std::uint32_t>(i - 1)), model.locations[i - 1], model.hashes[i - 1]);
  if (names) {
    for (std::uint64_t id = 0; id < n; id += names_per_block)
      builder.add_name_block(SampleId(static_cast<std::uint32_t>(id)));
  }
  Built built;
  built.superblock.chunk_bytes = chunk;
  built.superblock.sample_count = n;
  built.superblock.record_salt = 99;
  built.superblock.data = {std::max<std::uint64_t>(chunk, layout::kDataStartBytes), model.data_bytes, 0};
  auto index = builder.finish(built.superblock);
  EXPECT_TRUE(index.ok()) << index.error().message;
  built.index = std::move(index).value();
  built.superblock.index = {0, built.index.size(), base::crc32c(built.index)};
  return built;
}

Result<Directory> load(const Built& built) {
  auto arena = base::Arena::create(built.index.size(), false);
  std::copy(built.index.begin(), built.index.end(), arena->bytes().begin());
  return Directory::load(std::move(arena).value(), built.superblock);
}

Result<Directory> load_resealed(Built built) {
  built.superblock.index.crc = base::crc32c(built.index);
  return load(built);
}

std::vector<std::uint32_t> candidates(const Directory& directory, std::uint64_t hash) {
  std::vector<SampleId> out(directory.candidates(hash, {}));
  const std::size_t count = directory.candidates(hash, out);
  std::vector<std::uint32_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(out[i].value);
  return ids;
}

void expect_like(const Directory& directory, const Model& model) {
  const std::uint64_t n = model.locations.size();
  ASSERT_EQ(directory.sample_count(), n);
  const std::uint64_t rounding = std::uint64_t{1} << directory.header().large_shift;
  for (std::uint32_t id = 0; id < n; ++id) {
    const Location expected = model.locations[id], got = directory.location(SampleId{id});
    ASSERT_EQ(got.address_bytes, expected.address_bytes);
    ASSERT_EQ(got.large, expected.large);
    ASSERT_EQ(got.length_bytes,
              expected.large ? (expected.length_bytes + rounding - 1) / rounding * rounding : expected.length_bytes);
  }
  for (std::uint32_t slot = 0; slot < n; ++slot) ASSERT_EQ(directory.id_of(Slot{slot}).value, model.ids_by_slot[slot]);
  ASSERT_EQ(directory.unit_count(), model.first_slots.size());
  for (std::uint64_t unit = 0; unit < model.first_slots.size(); ++unit)
    ASSERT_EQ(directory.first_slot(unit), model.first_slots[unit]) << unit;
  ASSERT_EQ(directory.first_slot(directory.unit_count()), n);
  std::uint64_t unit = 0;
  for (std::uint32_t slot = 0; slot < n; ++slot) {
    if (unit + 1 < model.first_slots.size() && model.first_slots[unit + 1] == slot) ++unit;
    ASSERT_EQ(directory.unit_of(Slot{slot}), unit) << slot;
  }
}

// Every id is among the candidates of its hash; a candidate agrees in the bits that are kept.
void expect_names_like(const Directory& directory, const Model& model, std::uint64_t names_per_block = 100) {
  ASSERT_TRUE(directory.has_names());
  std::vector<std::uint64_t> firsts(model.hashes.size());
  directory.first_candidates(model.hashes, firsts);
  const unsigned kept = directory.header().bucket_bits + directory.header().fingerprint_bits;
  for (std::uint32_t id = 0; id < model.hashes.size(); ++id) {
    const auto found = candidates(directory, model.hashes[id]);
    ASSERT_NE(std::find(found.begin(), found.end(), id), found.end()) << id;
    ASSERT_EQ(firsts[id], found.front());
    for (const std::uint32_t other : found) {
      ASSERT_EQ(model.hashes[other] >> 1 >> (63 - kept), model.hashes[id] >> 1 >> (63 - kept));
    }
    ASSERT_EQ(directory.name_block_of(SampleId{id}), id / names_per_block);
  }
}

std::vector<std::uint64_t> mixed_lengths(std::size_t n, std::uint64_t seed) {
  base::Prng prng(seed);
  std::vector<std::uint64_t> lengths;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t kind = prng.below(100);
    lengths.push_back(kind < 3    ? kChunk + 1 + prng.below(10 * kChunk)
                      : kind < 10 ? 8
                      : kind < 12 ? kChunk
                                  : 8 + prng.below(3000));
  }
  return lengths;
}

TEST(Directory, agrees_with_the_model) {
  for (const std::size_t n : {1u, 2u, 15u, 16u, 63u, 64u, 65u, 1000u, 70'000u}) {
    const Model model = place(mixed_lengths(n, n), n);
    const auto directory = load(build(model, true));
    ASSERT_TRUE(directory.ok()) << directory.error().message;
    expect_like(*directory, model);
    expect_names_like(*directory, model);
  }
}

TEST(Directory, of_no_samples_is_a_directory) {
  for (const bool names : {false, true}) {
    const auto directory = load(build(Model{}, names));
    ASSERT_TRUE(directory.ok()) << directory.error().message;
    EXPECT_EQ(directory->sample_count(), 0u);
    EXPECT_EQ(directory->unit_count(), 0u);
    EXPECT_EQ(directory->first_slot(0), 0u);
    EXPECT_EQ(directory->candidates(123, {}), 0u);
  }
}

TEST(Directory, without_names_finds_none) {
  const Model model = place(mixed_lengths(500, 5), 5);
  const auto directory = load(build(model, false));
  ASSERT_TRUE(directory.ok());
  EXPECT_FALSE(directory->has_names());
  EXPECT_EQ(directory->candidates(model.hashes[0], {}), 0u);
  std::uint64_t first = 0;
  directory->first_candidates(std::span(model.hashes).first(1), std::span(&first, 1));
  EXPECT_EQ(first, Directory::kNoCandidate);
  expect_like(*directory, model);
}

TEST(Directory, finds_all_of_many_equal_hashes) {
  // Three hash values for 5,000 samples: buckets of thousands, fingerprints all alike.
  Model model = place(mixed_lengths(5000, 8), 8);
  for (std::size_t i = 0; i < model.hashes.size(); ++i) model.hashes[i] = base::mix64(i % 3);
  const auto directory = load(build(model, true));
  ASSERT_TRUE(directory.ok());
  expect_like(*directory, model);
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto found = candidates(*directory, base::mix64(i));
    std::vector<std::uint32_t> expected;
    for (auto id = static_cast<std::uint32_t>(i); id < 5000; id += 3) expected.push_back(id);
    EXPECT_TRUE(std::ranges::includes(found, expected));
  }
  std::vector<SampleId> few(10);
  EXPECT_GE(directory->candidates(base::mix64(0), few), 1666u);  // says how many there are, writes what fits
}

TEST(Directory, agrees_with_the_model_for_any_placement) {
  const bool ok = rc::check("directory == model", [](std::uint64_t seed) {
    const auto n = *rc::gen::inRange<std::size_t>(1, 400);
    const auto mask = *rc::gen::element<std::uint64_t>(~0ull, 0xF, 0xFull << 60, 0, 0xFFull << 50);
    const Model model = place(mixed_lengths(n, seed), seed, kChunk, mask);
    const auto directory = load(build(model, true, kChunk, 7));
    RC_ASSERT(directory.ok());
    expect_like(*directory, model);
    expect_names_like(*directory, model, 7);
    RC_ASSERT(!testing::Test::HasFatalFailure());
  });
  EXPECT_TRUE(ok);
}

TEST(Directory, batch_locations_are_the_single_ones) {
  const Model model = place(mixed_lengths(3000, 4), 4);
  const auto directory = load(build(model, false));
  std::vector<Location> out(model.ids_by_slot.size());
  directory->locations(model.ids_by_slot, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Location one = directory->location(SampleId{model.ids_by_slot[i]});
    ASSERT_EQ(out[i].address_bytes, one.address_bytes);
    ASSERT_EQ(out[i].length_bytes, one.length_bytes);
  }
}

TEST(Directory, is_deterministic_in_whatever_order_it_was_built) {
  const Model model = place(mixed_lengths(2000, 6), 6);
  const Built one = build(model, true);
  Builder builder(kChunk, true);
  for (const std::uint32_t id : model.ids_by_slot) builder.add(SampleId{id}, model.locations[id], model.hashes[id]);
  for (std::uint32_t id = 0; id < 2000; id += 100) builder.add_name_block(SampleId{id});
  const auto other = builder.finish(one.superblock);
  EXPECT_EQ(*other, one.index);
}

TEST(Builder, reports_equal_hashes) {
  Model model = place(std::vector<std::uint64_t>(50, 100), 1);
  model.hashes[7] = model.hashes[31] = model.hashes[40] = 5;
  model.hashes[8] = model.hashes[9] = 4;
  Builder builder(kChunk, true);
  for (std::uint32_t id = 0; id < 50; ++id) builder.add(SampleId{id}, model.locations[id], model.hashes[id]);
  builder.add_name_block(SampleId{0});
  Superblock superblock;
  superblock.data.length_bytes = model.data_bytes;
  ASSERT_TRUE(builder.finish(superblock).ok());
  std::vector<std::pair<std::uint64_t, std::uint32_t>> found;
  for (const auto& [hash, id] : builder.same_hash()) found.emplace_back(hash, id.value);
  EXPECT_EQ(found, (std::vector<std::pair<std::uint64_t, std::uint32_t>>{{4, 8}, {4, 9}, {5, 7}, {5, 31}, {5, 40}}));
}

TEST(Builder, refuses_what_cannot_be) {
  Superblock superblock;
  superblock.data.length_bytes = 10 * kChunk;
  const auto refused = [&](std::vector<std::pair<std::uint32_t, Location>> samples) {
    Builder builder(kChunk, false);
    for (const auto& [id, at] : samples) builder.add(SampleId{id}, at, 0);
    const auto finished = builder.finish(superblock);
    return !finished.ok() && finished.error().code == Code::kInvalidArgument;
  };
  EXPECT_FALSE(refused({{0, {0, 8, false}}}));
  EXPECT_TRUE(refused({{1, {0, 8, false}}}));                      // no sample 0
  EXPECT_TRUE(refused({{0, {0, 8, false}}, {0, {8, 8, false}}}));  // twice
  EXPECT_TRUE(refused({{0, {0, 8, false}}, {4'000'000'000, {8, 8, false}}}));
  EXPECT_TRUE(refused({{0, {4, 8, false}}}));            // not aligned
  EXPECT_TRUE(refused({{0, {0, 7, false}}}));            // too short
  EXPECT_TRUE(refused({{0, {8, kChunk, false}}}));       // crosses an edge
  EXPECT_TRUE(refused({{0, {8, kChunk + 1, true}}}));    // large, not at an edge
  EXPECT_TRUE(refused({{0, {10 * kChunk, 8, false}}}));  // behind the data
}

TEST(Directory, every_flipped_bit_and_every_truncation_is_found) {
  Built built = build(place(mixed_lengths(40, 2), 2), true, kChunk, 9);
  for (std::size_t bit = 0; bit < 8 * built.index.size(); ++bit) {
    built.index[bit / 8] ^= std::byte(1u << bit % 8);
    ASSERT_FALSE(load(built).ok()) << bit;
    built.index[bit / 8] ^= std::byte(1u << bit % 8);
  }
  ASSERT_TRUE(load(built).ok());
  for (std::size_t length = 0; length < built.index.size(); ++length) {
    Built cut{{built.index.begin(), built.index.begin() + static_cast<std::ptrdiff_t>(length)}, built.superblock};
    cut.superblock.index = {0, length, base::crc32c(cut.index)};
    ASSERT_FALSE(load(cut).ok()) << length;
  }
}

// The sum is right, a bit is not: either the directory refuses it, or every accessor still stays in bounds (ASan
// watches).
TEST(Directory, hostile_bits_under_a_right_sum_never_lead_out_of_bounds) {
  const Model model = place(mixed_lengths(60, 3), 3);
  Built built = build(model, true, kChunk, 9);
  std::size_t refused = 0;
  for (std::size_t bit = 8 * layout::kIndexHeaderBytes; bit < 8 * built.index.size(); ++bit) {
    built.index[bit / 8] ^= std::byte(1u << bit % 8);
    const auto directory = load_resealed(built);
    built.index[bit / 8] ^= std::byte(1u << bit % 8);
    if (!directory.ok()) {
      ++refused;
      EXPECT_EQ(directory.error().code, Code::kCorrupt);
      continue;
    }
    for (std::uint32_t i = 0; i < 60; ++i) {
      ASSERT_LE(directory->location(SampleId{i}).address_bytes + directory->location(SampleId{i}).length_bytes,
                model.data_bytes);
      ASSERT_LT(directory->id_of(Slot{i}).value, 60u);
      for (const std::uint32_t id : candidates(*directory, model.hashes[i])) ASSERT_LT(id, 60u);
    }
  }
  EXPECT_GT(refused, 1000u);
}

TEST(Directory, refuses_the_index_of_another_volume) {
  Built built = build(place(mixed_lengths(40, 2), 2), true);
  const auto refused = [&](auto change) {
    Built other = built;
    change(other.superblock);
    return !load(other).ok();
  };
  EXPECT_TRUE(refused([](Superblock& s) { ++s.record_salt; }));
  EXPECT_TRUE(refused([](Superblock& s) { ++s.sample_count; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.data.length_bytes += kChunk; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.chunk_bytes *= 2; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.index.length_bytes += 1u << 20; }));
}

TEST(Directory, names_the_damaged_section) {
  Built built = build(place(mixed_lengths(400, 2), 2), true);
  built.index[layout::kIndexHeaderBytes + 5] ^= std::byte{4};
  const auto damaged = load(built);
  ASSERT_FALSE(damaged.ok());
  EXPECT_NE(damaged.error().message.find("section locations"), std::string::npos) << damaged.error().message;
}

TEST(Directory, keeps_at_most_sixteen_bytes_a_sample) {
  for (const bool large_too : {false, true}) {
    auto lengths = std::vector<std::uint64_t>(200'000, 937);
    if (large_too) lengths[5] = 3'000'000;
    const Model model = place(lengths, 11);
    const auto directory = load(build(model, true, kChunk, 300));
    ASSERT_TRUE(directory.ok());
    EXPECT_LE(directory->resident_bytes(), 16u * 200'000);
    EXPECT_EQ(directory->header().fingerprint_bits, 16);
  }
}

}  // namespace
}  // namespace dlfs::directory
