#include <cmath>
#include <utility>

#include "base/check.h"
#include "order/keys.h"
#include "order/order.h"

namespace dlfs::order {
namespace {

constexpr std::size_t kRounds = 12;
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 32;
constexpr std::uint64_t kTableSize = 16;  // up to here the whole permutation fits 16 four-bit entries of one word
constexpr std::uint64_t kPermutationDomain = 0x7065726D75746174u;  // "permutat"

// The smallest s with s * s >= n. The floating-point root is only a first guess.
std::uint64_t ceiling_root(std::uint64_t n) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 0 && (root - 1) * (root - 1) >= n) --root;
  return root;
}

// A keyed value in [0, bound), bound < 2^32.
std::uint64_t round_value(std::uint64_t half, std::uint64_t key, std::uint64_t bound) {
  return ((base::mix64(half ^ key) >> 32) * bound) >> 32;
}

std::uint64_t add(std::uint64_t a, std::uint64_t b, std::uint64_t modulus) {
  const std::uint64_t sum = a + b;
  return sum >= modulus ? sum - modulus : sum;
}

std::uint64_t subtract(std::uint64_t a, std::uint64_t b, std::uint64_t modulus) {
  return a >= b ? a - b : a + modulus - b;
}

using Keys = std::array<std::uint64_t, kRounds>;

struct Feistel {
  std::uint64_t left, right, reciprocal;
  const Keys& keys;

  // Width values at once, so that the processor overlaps their multiplications.
  template <std::size_t Width>
  void forward(std::uint64_t (&x)[Width]) const {
    std::uint64_t u[Width], v[Width];
    for (std::size_t j = 0; j < Width; ++j) {
      u[j] = multiply_high(x[j], reciprocal);
      v[j] = x[j] - u[j] * right;
    }
    for (std::size_t i = 0; i < kRounds; i += 2) {
      for (std::size_t j = 0; j < Width; ++j) u[j] = add(u[j], round_value(v[j], keys[i], left), left);
      for (std::size_t j = 0; j < Width; ++j) v[j] = add(v[j], round_value(u[j], keys[i + 1], right), right);
    }
    for (std::size_t j = 0; j < Width; ++j) x[j] = u[j] * right + v[j];
  }

  std::uint64_t backward(std::uint64_t y) const {
    std::uint64_t u = multiply_high(y, reciprocal);
    std::uint64_t v = y - u * right;
    for (std::size_t i = kRounds; i > 0; i -= 2) {
      v = subtract(v, round_value(u, keys[i - 1], right), right);
      u = subtract(u, round_value(v, keys[i - 2], left), left);
    }
    return u * right + v;
  }
};

std::uint64_t nibble(std::uint64_t table, std::uint64_t index) { return (table >> (4 * index)) & 15; }

// Fisher-Yates: every one of the n! orders equally likely, up to 2^-60.
std::array<std::uint64_t, 2> shuffled_tables(std::uint64_t n, std::uint64_t state) {
  std::array<std::uint64_t, kTableSize> values{};
  for (std::uint64_t i = 0; i < n; ++i) values[i] = i;
  for (std::uint64_t i = n - 1; i > 0; --i) {
    std::swap(values[i], values[multiply_high(base::mix64(state + i * kGolden), i + 1)]);
  }
  std::array<std::uint64_t, 2> tables{};
  for (std::uint64_t i = 0; i < n; ++i) {
    tables[0] |= values[i] << (4 * i);
    tables[1] |= i << (4 * values[i]);
  }
  return tables;
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t key) noexcept : n_(n) {
  DLFS_CHECK(n >= 1 && n <= kMaxSize);
  const std::uint64_t state = base::mix64(key ^ kPermutationDomain);
  if (n <= kTableSize) {
    const auto tables = shuffled_tables(n, state);
    keys_[0] = tables[0];
    keys_[1] = tables[1];
    return;
  }
  left_ = ceiling_root(n);
  left_ += left_ & 1;  // even: a rotation of an even length is an odd permutation, so both parities occur
  right_ = (n + left_ - 1) / left_;
  reciprocal_ = ~std::uint64_t{0} / right_ + 1;
  for (std::uint64_t i = 0; i < keys_.size(); ++i) keys_[i] = base::mix64(state + (i + 1) * kGolden);
}

std::uint64_t Permutation::operator()(std::uint64_t index) const noexcept {
  if (n_ <= kTableSize) return nibble(keys_[0], index);
  const Feistel feistel{left_, right_, reciprocal_, keys_};
  std::uint64_t x[1] = {index};
  do {
    feistel.forward(x);
  } while (x[0] >= n_);
  return x[0];
}

std::uint64_t Permutation::inverse(std::uint64_t value) const noexcept {
  if (n_ <= kTableSize) return nibble(keys_[1], value);
  const Feistel feistel{left_, right_, reciprocal_, keys_};
  do {
    value = feistel.backward(value);
  } while (value >= n_);
  return value;
}

void Permutation::map(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const noexcept {
  constexpr std::size_t kWidth = 4;
  std::size_t done = 0;
  if (n_ > kTableSize) {
    const Feistel feistel{left_, right_, reciprocal_, keys_};
    for (; done + kWidth <= out.size(); done += kWidth) {
      std::uint64_t x[kWidth];
      for (std::uint64_t& value : x) {
        value = first;
        first += stride;
      }
      feistel.forward(x);
      for (std::size_t j = 0; j < kWidth; ++j) out[done + j] = x[j] < n_ ? x[j] : (*this)(x[j]);
    }
  }
  for (; done < out.size(); ++done) {
    out[done] = (*this)(first);
    first += stride;
  }
}

}  // namespace dlfs::order
