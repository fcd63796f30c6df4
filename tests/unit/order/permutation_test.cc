#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "base/mix.h"
#include "order/keys.h"
#include "order/order.h"

namespace dlfs::order {
namespace {

// The statistic in standard deviations from its mean, by the Wilson-Hilferty cube root. Keys are fixed, so nothing is
// left to chance.
double deviations(double chi_square, double degrees) {
  const double spread = 2.0 / (9.0 * degrees);
  return (std::cbrt(chi_square / degrees) - (1.0 - spread)) / std::sqrt(spread);
}

double chi_square(const std::vector<std::uint64_t>& counts, double expected) {
  double sum = 0;
  for (const auto count : counts) sum += (double(count) - expected) * (double(count) - expected) / expected;
  return sum;
}

std::vector<std::uint64_t> values(std::uint64_t n, std::uint64_t key) {
  std::vector<std::uint64_t> out(n);
  Permutation(n, key).map(0, 1, out);
  return out;
}

TEST(Permutation, is_a_bijection_with_its_inverse_at_every_small_size) {
  for (std::uint64_t n = 1; n <= 700; ++n) {
    const Permutation permutation(n, n * 977);
    std::vector<bool> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const auto value = permutation(i);
      ASSERT_LT(value, n);
      ASSERT_FALSE(seen[value]) << n;
      seen[value] = true;
      ASSERT_EQ(permutation.inverse(value), i);
    }
  }
}

TEST(Permutation, has_an_inverse_at_large_sizes) {
  base::Prng prng(1);
  for (const std::uint64_t n : {65535ull, 65536ull, 65537ull, 1000003ull, 999999999ull, (1ull << 32) - 1, 1ull << 32}) {
    const Permutation permutation(n, prng.next());
    for (int i = 0; i < 2000; ++i) {
      const auto index = prng.below(n);
      ASSERT_LT(permutation(index), n);
      ASSERT_EQ(permutation.inverse(permutation(index)), index);
    }
    ASSERT_LT(permutation(0), n);
    ASSERT_EQ(permutation.inverse(permutation(n - 1)), n - 1);
  }
}

TEST(Permutation, maps_a_stride_as_one_by_one) {
  for (const std::uint64_t n : {5ull, 16ull, 17ull, 1000ull, 1ull << 32}) {
    const Permutation permutation(n, 3);
    for (std::uint64_t stride = 1; stride <= 3; ++stride) {
      for (std::size_t count = 0; count <= std::min<std::uint64_t>(23, (n - 1) / stride); ++count) {
        std::vector<std::uint64_t> out(count);
        permutation.map(1, stride, out);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], permutation(1 + i * stride));
      }
    }
  }
}

TEST(Permutation, draws_every_order_of_a_few_equally_often) {
  for (std::uint64_t n = 2; n <= 8; ++n) {
    std::map<std::uint64_t, std::uint64_t> orders;
    std::uint64_t factorial = 1;
    for (std::uint64_t i = 2; i <= n; ++i) factorial *= i;
    const std::uint64_t keys = std::max<std::uint64_t>(20000, factorial * 5);
    for (std::uint64_t key = 0; key < keys; ++key) {
      const Permutation permutation(n, key);
      std::uint64_t code = 0;
      for (std::uint64_t i = 0; i < n; ++i) code = code * 8 + permutation(i);
      ++orders[code];
    }
    std::vector<std::uint64_t> counts(factorial);
    std::ranges::transform(orders, counts.begin(), [](const auto& entry) { return entry.second; });
    const double z = deviations(chi_square(counts, double(keys) / double(factorial)), double(factorial - 1));
    EXPECT_LT(std::abs(z), 3.5) << n;
  }
}

TEST(Permutation, sends_every_index_everywhere_at_window_sizes) {
  for (const std::uint64_t n : {16ull, 17ull, 18ull, 25ull, 36ull, 49ull, 100ull, 280ull}) {
    const std::uint64_t keys = 20000;
    std::vector<std::uint64_t> cells(n * n), differences(n), pairs(n * n);
    for (std::uint64_t key = 0; key < keys; ++key) {
      const auto order = values(n, key);
      for (std::uint64_t i = 0; i < n; ++i) ++cells[i * n + order[i]];
      for (std::uint64_t i = 1; i < n; ++i) ++differences[(order[i] + n - order[i - 1]) % n];
      ++pairs[order[0] * n + order[1]];
    }
    const double m = double(n);
    EXPECT_LT(std::abs(deviations(chi_square(cells, double(keys) / m), (m - 1) * (m - 1))), 4) << n;
    differences.erase(differences.begin());  // 0 cannot be
    EXPECT_LT(std::abs(deviations(chi_square(differences, double(keys)), m - 2)), 4) << n;
    std::vector<std::uint64_t> off_diagonal;
    for (std::uint64_t i = 0; i < n * n; ++i) {
      if (i / n != i % n) off_diagonal.push_back(pairs[i]);
    }
    const double expected = double(keys) / (m * (m - 1));
    EXPECT_LT(std::abs(deviations(chi_square(off_diagonal, expected), m * (m - 1) - 1)), 4) << n;
  }
}

// Chi-square of (position, value) over a grid of equal cells.
double grid_deviations(const std::vector<std::uint64_t>& order, std::uint64_t cells) {
  const std::uint64_t n = order.size();
  std::vector<std::uint64_t> counts(cells * cells);
  for (std::uint64_t i = 0; i < n; ++i) ++counts[i * cells / n * cells + order[i] * cells / n];
  const double side = double(cells - 1);
  return deviations(chi_square(counts, double(n) / double(cells * cells)), side * side);
}

// Pearson's correlation in standard deviations (it has variance 1 / (n - 1) between unrelated permutations).
double correlation_deviations(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b,
                              std::size_t lag = 0) {
  const std::size_t n = a.size();
  const double mean = double(n - 1) / 2, variance = (double(n) * double(n) - 1) / 12;
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += (double(a[i]) - mean) * (double(b[(i + lag) % n]) - mean);
  return sum / double(n) / variance * std::sqrt(double(n));
}

std::uint64_t sample_key(std::uint64_t seed, std::uint64_t epoch) { return derive_key(seed, epoch, Purpose::kSamples); }

TEST(Shuffle, of_a_million_is_even_and_without_serial_correlation) {
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    const auto order = values(1000000, sample_key(1, epoch));
    EXPECT_LT(std::abs(grid_deviations(order, 10)), 4);
    EXPECT_LT(std::abs(grid_deviations(order, 100)), 4);
    for (const std::size_t lag : {1u, 2u, 3u, 10u, 999u, 1000u, 1001u}) {
      EXPECT_LT(std::abs(correlation_deviations(order, order, lag)), 4) << lag;
    }
    std::vector<std::uint64_t> steps(100);
    for (std::size_t i = 1; i < order.size(); ++i) ++steps[(order[i] + 1000000 - order[i - 1]) % 1000000 / 10000];
    EXPECT_LT(std::abs(deviations(chi_square(steps, 999999 / 100.0), 99)), 4);
  }
}

TEST(Shuffle, of_epochs_and_seeds_one_bit_apart_is_unrelated) {
  const std::uint64_t n = 100000;
  const auto base_order = values(n, sample_key(1, 0));
  for (unsigned bit = 0; bit < 64; bit += 7) {
    for (const auto key : {sample_key(1 ^ (std::uint64_t{1} << bit), 0), sample_key(1, std::uint64_t{1} << bit)}) {
      const auto other = values(n, key);
      EXPECT_LT(std::abs(correlation_deviations(base_order, other)), 4.5) << bit;
      std::vector<std::uint64_t> cells(2500), shifts(50);
      std::uint64_t fixed = 0;
      for (std::uint64_t i = 0; i < n; ++i) {
        ++cells[base_order[i] * 50 / n * 50 + other[i] * 50 / n];
        ++shifts[(other[i] + n - base_order[i]) % n * 50 / n];
        fixed += base_order[i] == other[i] ? 1 : 0;
      }
      EXPECT_LT(std::abs(deviations(chi_square(cells, double(n) / 2500), 49.0 * 49.0)), 4.5) << bit;
      EXPECT_LT(std::abs(deviations(chi_square(shifts, double(n) / 50), 49)), 4.5) << bit;
      EXPECT_LT(fixed, 10u);  // one is expected
    }
  }
}

TEST(Keys, of_swapped_or_neighbouring_words_differ) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
      keys.push_back(derive_key(seed, epoch, Purpose::kSamples));
      keys.push_back(derive_key(seed, epoch, Purpose::kUnits));
      for (std::uint64_t lane = 0; lane < 8; ++lane) {
        for (std::uint64_t window = 0; window < 8; ++window)
          keys.push_back(derive_key(seed, epoch, Purpose::kWindow, lane, window));
      }
    }
  }
  std::ranges::sort(keys);
  EXPECT_EQ(std::ranges::adjacent_find(keys), keys.end());
}

}  // namespace
}  // namespace dlfs::order
