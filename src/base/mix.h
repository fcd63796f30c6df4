// Integer mixing that decides orders and placements: fixed for ever, the same on every compiler and processor.
#pragma once

#include <cstdint>

namespace dlfs::base {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014; constants of Stafford's variant 13): a bijection on 64 bits.
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// SplitMix64: a small sequential generator for tests, placement and the simulator.
class Prng {
 public:
  explicit constexpr Prng(std::uint64_t seed) noexcept : state_(seed) {}
  constexpr std::uint64_t next() noexcept { return mix64(state_ += 0x9E3779B97F4A7C15u); }
  // Uniform in [0, bound), bound > 0; multiply-shift, its bias below bound / 2^64.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

 private:
  std::uint64_t state_;
};

}  // namespace dlfs::base
