// The directory at 10 million samples (DLFS_BENCH_SAMPLES changes that): building, loading, look-ups in random order by
// id and by the hash of a name, one at a time and in batches, beside the AVL tree of the published design.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "avl_baseline.h"
#include "base/crc32c.h"
#include "base/mix.h"
#include "directory/directory.h"

namespace dlfs::bench {
namespace {

using directory::Builder;
using directory::Directory;

std::uint64_t sample_count() {
  const char* text = std::getenv("DLFS_BENCH_SAMPLES");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 10'000'000;
}

std::uint64_t hash_of(std::uint64_t id) { return base::mix64(id + 0x9E3779B97F4A7C15u); }

double seconds_of_process() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// An index of samples of about 921 bytes, placed in an order that has nothing to do with their ids.
struct World {
  std::uint64_t n = sample_count();
  layout::Superblock superblock;
  std::vector<std::byte> index;
  std::vector<std::uint32_t> order;   // a random order of ids
  std::vector<std::uint64_t> hashes;  // of those ids
  double finish_s = 0;

  World() {
    base::Prng prng(1);
    order.resize(n);
    for (std::uint64_t i = 0; i < n; ++i) order[i] = static_cast<std::uint32_t>(i);
    for (std::uint64_t i = n; i > 1; --i) std::swap(order[i - 1], order[prng.below(i)]);
    Builder builder(layout::kDefaultChunkBytes, true);
    std::uint64_t at = 0;
    for (const std::uint32_t id : order) {
      const std::uint64_t length = 300 + prng.below(1243);
      if (at % layout::kDefaultChunkBytes + length > layout::kDefaultChunkBytes)
        at = (at / layout::kDefaultChunkBytes + 1) * layout::kDefaultChunkBytes;
      builder.add(SampleId{id}, {at, length, false}, hash_of(id));
      at = (at + length + 7) / 8 * 8;
    }
    for (std::uint64_t id = 0; id < n; id += 500) builder.add_name_block(SampleId{static_cast<std::uint32_t>(id)});
    superblock.sample_count = n;
    superblock.record_salt = 1;
    superblock.data = {layout::kDefaultChunkBytes, (at / layout::kDefaultChunkBytes + 1) * layout::kDefaultChunkBytes,
                       0};
    const double before = seconds_of_process();
    index = builder.finish(superblock).value();
    finish_s = seconds_of_process() - before;
    superblock.index = {0, index.size(), base::crc32c(index)};
    for (std::uint64_t i = n; i > 1; --i) std::swap(order[i - 1], order[prng.below(i)]);
    for (const std::uint32_t id : order) hashes.push_back(hash_of(id));
  }

  base::Arena arena() const {
    auto made = base::Arena::create(index.size()).value();
    std::memcpy(made.bytes().data(), index.data(), index.size());
    return made;
  }
};

const World& world() {
  static const World made;
  return made;
}
const Directory& loaded() {
  static const Directory made = Directory::load(world().arena(), world().superblock).value();
  return made;
}
const AvlTree& avl() {
  static const std::unique_ptr<AvlTree> made = [] {
    auto tree = std::make_unique<AvlTree>(world().n);
    for (std::uint64_t id = 0; id < world().n; ++id) tree->insert(hash_of(id), {id, id});
    return tree;
  }();
  return *made;
}

void load(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    base::Arena arena = world().arena();
    state.ResumeTiming();
    auto made = Directory::load(std::move(arena), world().superblock);
    if (!made.ok()) state.SkipWithError(made.error().message.c_str());
    benchmark::DoNotOptimize(made);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * world().index.size()));
  state.counters["bytes_per_sample"] = static_cast<double>(loaded().resident_bytes()) / static_cast<double>(world().n);
  state.counters["finish_cpu_s"] = world().finish_s;
}

// Calls `look_up(i)` for i = 0, 1, ... cyclically over all samples.
template <class LookUp>
void each(benchmark::State& state, const LookUp& look_up) {
  std::uint64_t i = 0;
  for (auto _ : state) {
    look_up(i);
    if (++i == world().n) i = 0;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}

void by_id(benchmark::State& state) {
  const Directory& directory = loaded();
  each(state, [&](std::uint64_t i) { benchmark::DoNotOptimize(directory.location(SampleId{world().order[i]})); });
}

void by_id_in_batches(benchmark::State& state) {
  const Directory& directory = loaded();
  constexpr std::size_t kBatch = 256;
  std::vector<layout::Location> out(kBatch);
  std::uint64_t i = 0;
  for (auto _ : state) {
    directory.locations(std::span(world().order).subspan(i, kBatch), out);
    benchmark::DoNotOptimize(out.data());
    i = i + 2 * kBatch > world().n ? 0 : i + kBatch;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kBatch));
}

void by_name_hash(benchmark::State& state) {
  const Directory& directory = loaded();
  each(state, [&](std::uint64_t i) {
    SampleId found[4];
    benchmark::DoNotOptimize(directory.candidates(world().hashes[i], found));
    benchmark::DoNotOptimize(found);
  });
}

void by_name_hash_in_batches(benchmark::State& state) {
  const Directory& directory = loaded();
  constexpr std::size_t kBatch = 256;
  std::vector<std::uint64_t> out(kBatch);
  std::uint64_t i = 0;
  for (auto _ : state) {
    directory.first_candidates(std::span(world().hashes).subspan(i, kBatch), out);
    benchmark::DoNotOptimize(out.data());
    i = i + 2 * kBatch > world().n ? 0 : i + kBatch;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kBatch));
}

void avl_by_name_hash(benchmark::State& state) {
  const AvlTree& tree = avl();
  each(state, [&](std::uint64_t i) { benchmark::DoNotOptimize(tree.find(world().hashes[i])->metadata); });
  state.counters["bytes_per_sample"] = static_cast<double>(tree.bytes()) / static_cast<double>(world().n);
}

void first_slot(benchmark::State& state) {
  const Directory& directory = loaded();
  std::uint64_t unit = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(directory.first_slot(unit));
    unit = (unit + 7919) % directory.unit_count();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}

BENCHMARK(load)->Unit(benchmark::kMillisecond)->Iterations(8);
BENCHMARK(by_id);
BENCHMARK(by_id_in_batches);
BENCHMARK(by_name_hash);
BENCHMARK(by_name_hash_in_batches);
BENCHMARK(first_slot);
BENCHMARK(avl_by_name_hash);

}  // namespace
}  // namespace dlfs::bench

BENCHMARK_MAIN();
