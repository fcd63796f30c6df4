// How every key of an order comes from (seed, epoch, purpose, lane, window). docs/shuffling.md, "Keys".
#pragma once

#include <cstdint>

#include "base/mix.h"

namespace dlfs::order {

inline constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;     // 2^64 divided by the golden ratio
inline constexpr std::uint64_t kKeyDomain = 0x444C46532D6F7264u;  // "DLFS-ord"

enum class Purpose : std::uint64_t { kSamples = 1, kUnits = 2, kWindow = 3, kLanes = 4 };

// Absorbs one word: for a given state a bijection of the word, so words that differ in one bit never meet at the same
// state.
constexpr std::uint64_t absorb(std::uint64_t state, std::uint64_t word) noexcept {
  return base::mix64((state ^ word) + kGolden);
}

constexpr std::uint64_t derive_key(std::uint64_t seed, std::uint64_t epoch, Purpose purpose, std::uint64_t lane = 0,
                                   std::uint64_t window = 0) noexcept {
  std::uint64_t state = absorb(kKeyDomain, seed);
  state = absorb(state, epoch);
  state = absorb(state, static_cast<std::uint64_t>(purpose));
  state = absorb(state, lane);
  return absorb(state, window);
}

// The high 64 bits of a product: scales a random word to [0, bound).
constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(a) * b) >> 64);
}

}  // namespace dlfs::order
