// How even the orders are at sizes too large for a test: prints docs/shuffling.md's table. About half a minute on one
// core.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/mix.h"
#include "order/keys.h"
#include "order/order.h"

namespace {

using namespace dlfs::order;

// Chi-square of rows of `columns` equally likely values, whatever the rows' totals, in standard deviations from its
// mean by the Wilson-Hilferty cube root.
double deviations(const std::vector<std::uint64_t>& counts, std::size_t columns, double degrees) {
  double sum = 0;
  for (std::size_t row = 0; row < counts.size(); row += columns) {
    double total = 0;
    for (std::size_t i = 0; i < columns; ++i) total += static_cast<double>(counts[row + i]);
    const double expected = total / static_cast<double>(columns);
    for (std::size_t i = 0; i < columns; ++i) {
      const double off = static_cast<double>(counts[row + i]) - expected;
      sum += off * off / expected;
    }
  }
  const double spread = 2.0 / (9.0 * degrees);
  return (std::cbrt(sum / degrees) - (1.0 - spread)) / std::sqrt(spread);
}

// Sums for a correlation of pairs of values of [0, n), in standard deviations.
struct Correlation {
  double n = 0, sum = 0, pairs = 0;
  void add(std::uint64_t a, std::uint64_t b) {
    sum += (static_cast<double>(a) / n - 0.5) * (static_cast<double>(b) / n - 0.5) * 12;
    ++pairs;
  }
  double deviations() const { return sum / std::sqrt(pairs); }
};

constexpr std::uint64_t kGrid = 1000, kLow = 256;

struct Tally {
  std::uint64_t n;
  std::vector<std::uint64_t> cells = std::vector<std::uint64_t>(kGrid * kGrid);
  std::vector<std::uint64_t> low = std::vector<std::uint64_t>(kLow * kLow);
  std::vector<std::uint64_t> steps = std::vector<std::uint64_t>(kGrid);
  std::vector<std::uint64_t> shifts = std::vector<std::uint64_t>(kGrid);
  Correlation neighbours{static_cast<double>(n)}, other_order{static_cast<double>(n)};

  void add(std::uint64_t position, std::uint64_t value, std::uint64_t other) {
    ++cells[position * kGrid / n * kGrid + value * kGrid / n];
    ++low[position % kLow * kLow + value % kLow];
    ++shifts[(value + n - other) % n * kGrid / n];
    other_order.add(value, other);
  }
  void add_neighbours(std::uint64_t before, std::uint64_t value) {
    ++steps[(value + n - before) % n * kGrid / n];
    neighbours.add(before, value);
  }
};

// Walks `draws` positions in runs of 64 neighbours, evenly over the epoch: all of them when draws == n.
void measure(const char* what, std::uint64_t n, std::uint64_t draws, const Permutation& order,
             const Permutation& other) {
  Tally tally{n};
  std::array<std::uint64_t, 64> values, others;
  const std::uint64_t runs = draws / values.size();
  for (std::uint64_t run = 0; run < runs; ++run) {
    const std::uint64_t slack =
        n / runs - values.size() + 1;  // a fixed jitter, so that the runs' starts have no pattern
    const std::uint64_t begin = run * n / runs + dlfs::base::mix64(run) % slack;
    order.map(begin, 1, values);
    other.map(begin, 1, others);
    for (std::size_t i = 0; i < values.size(); ++i) {
      tally.add(begin + i, values[i], others[i]);
      if (i > 0) tally.add_neighbours(values[i - 1], values[i]);
    }
  }
  const double grid = kGrid - 1, low = kLow - 1;
  const double fixed =
      draws == n ? 1 : 0;  // a whole permutation fills every column alike: a degree of freedom less a column
  std::printf("| %llu | %llu | %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", static_cast<unsigned long long>(n),
              static_cast<unsigned long long>(runs * values.size()), what,
              deviations(tally.cells, kGrid, grid * (kGrid - fixed)), deviations(tally.low, kLow, low * (kLow - fixed)),
              deviations(tally.steps, kGrid, grid), tally.neighbours.deviations(),
              deviations(tally.shifts, kGrid, grid), tally.other_order.deviations());
}

Permutation order_of(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  return Permutation(n, derive_key(seed, epoch, Purpose::kSamples));
}

}  // namespace

int main() {
  std::puts("| n | drawn | beside | cells | low bits | steps | neighbours | shifts | other order |");
  std::puts("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
  const std::uint64_t all = 100000000;
  for (const std::uint64_t n : {all, std::uint64_t{1000000007}, std::uint64_t{1} << 32}) {
    const std::uint64_t draws = n == all ? all : std::uint64_t{1} << 25;
    measure("next epoch", n, draws, order_of(n, 1, 0), order_of(n, 1, 1));
    measure("seed, lowest bit", n, draws, order_of(n, 1, 0), order_of(n, 0, 0));
    measure("seed, highest bit", n, draws, order_of(n, 1, 0), order_of(n, 1 ^ (std::uint64_t{1} << 63), 0));
  }
  return 0;
}
