// Orders: ids a second, seek, the pass that chunk mode makes over the units. One core.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "base/mix.h"
#include "order/order.h"

namespace {

using namespace dlfs::order;

// Units of 200 to 363 samples, as chunks of small records have; computed, so that the benchmark measures the order and
// not memory.
class Chunks final : public Placement {
 public:
  explicit Chunks(std::uint64_t units) : units_(units) {}
  std::uint64_t sample_count() const noexcept override { return first_slot(units_); }
  std::uint64_t unit_count() const noexcept override { return units_; }
  std::uint64_t first_slot(std::uint64_t unit) const noexcept override {
    return unit * 280 + (unit == 0 || unit == units_ ? 0 : dlfs::base::mix64(unit) % 80);
  }

 private:
  std::uint64_t units_;
};

std::shared_ptr<const Epoch> make(const Parameters& parameters, std::uint64_t samples,
                                  const std::shared_ptr<const Placement>& placement = nullptr) {
  return std::move(Epoch::create(parameters, samples, placement)).value();
}

void walk(benchmark::State& state, const std::shared_ptr<const Epoch>& epoch) {
  Cursor cursor(epoch);
  std::vector<Draw> share;
  std::uint64_t drawn = 0;
  for (auto _ : state) {
    if (!cursor.next(share)) {
      cursor.seek(0);
      cursor.next(share);
    }
    drawn += share.size();
    benchmark::DoNotOptimize(share.data());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(drawn));
}

void full_walk(benchmark::State& state) {
  walk(state,
       make({.mode = Mode::kFull, .batch = 1024, .rank = 1, .ranks = 4}, static_cast<std::uint64_t>(state.range(0))));
}
BENCHMARK(full_walk)->Arg(1024)->Arg(60000)->Arg(1000000)->Arg(std::int64_t{1} << 32);

void chunk_walk(benchmark::State& state) {
  const auto window = static_cast<std::uint32_t>(state.range(0));
  walk(state, make({.batch = 1024, .rank = 1, .ranks = 4, .window = window}, 0, std::make_shared<Chunks>(100000)));
}
BENCHMARK(chunk_walk)->Arg(1)->Arg(4)->Arg(16);

void permutation_single(benchmark::State& state) {
  const auto n = static_cast<std::uint64_t>(state.range(0));
  const Permutation permutation(n, 1);
  std::uint64_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(permutation(i));
    if (++i == n) i = 0;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(permutation_single)->Arg(10)->Arg(280)->Arg(std::int64_t{1} << 32);

void permutation_inverse(benchmark::State& state) {
  const auto n = static_cast<std::uint64_t>(state.range(0));
  const Permutation permutation(n, 1);
  std::uint64_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(permutation.inverse(i));
    if (++i == n) i = 0;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(permutation_inverse)->Arg(280)->Arg(std::int64_t{1} << 32);

void chunk_create(benchmark::State& state) {
  const auto placement = std::make_shared<Chunks>(static_cast<std::uint64_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(make({}, 0, placement));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(chunk_create)->Arg(100000)->Arg(10000000)->Unit(benchmark::kMillisecond);

// A seek and the first batch after it, which touches every lane of the rank.
void chunk_seek(benchmark::State& state) {
  const auto epoch = make({.batch = 960, .ranks = 4}, 0, std::make_shared<Chunks>(100000));
  Cursor cursor(epoch);
  std::vector<Draw> share;
  dlfs::base::Prng prng(1);
  for (auto _ : state) {
    cursor.seek(prng.below(epoch->batches()));
    benchmark::DoNotOptimize(cursor.next(share));
  }
}
BENCHMARK(chunk_seek)->Unit(benchmark::kMicrosecond);

void chunk_next_use(benchmark::State& state) {
  const auto epoch = make({.ranks = 4, .window = 4}, 0, std::make_shared<Chunks>(100000));
  std::uint64_t unit = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(next_use(*epoch, unit));
    if (++unit == 100000) unit = 0;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(chunk_next_use);

}  // namespace

BENCHMARK_MAIN();
