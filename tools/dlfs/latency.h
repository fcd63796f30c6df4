// A histogram of durations in constant memory: 32 buckets a power of two, so percentiles are within 3 %.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace dlfs::tools {

class Latency {
 public:
  void add(std::uint64_t ns) noexcept {
    ++buckets_[bucket(ns)];
    ++count_;
    if (ns > max_ns_) max_ns_ = ns;
  }
  double max_ms() const noexcept { return static_cast<double>(max_ns_) / 1e6; }
  // The duration that a `share` (0..1) of all stay at or below, in ms: the middle of its bucket. 0 when nothing was
  // added.
  double percentile_ms(double share) const noexcept {
    std::uint64_t left = static_cast<std::uint64_t>(std::llround(share * static_cast<double>(count_)));
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i] >= left && buckets_[i] > 0) return middle_ns(i) / 1e6;
      left -= buckets_[i];
    }
    return 0;
  }

 private:
  static constexpr unsigned kBits = 5;
  static std::size_t bucket(std::uint64_t ns) noexcept {
    if (ns < (1u << kBits)) return ns;
    const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - 1 - kBits;
    return ((shift + 1) << kBits) + ((ns >> shift) & ((1u << kBits) - 1));
  }
  static double middle_ns(std::size_t index) noexcept {
    if (index < (1u << kBits)) return static_cast<double>(index);
    const unsigned shift = static_cast<unsigned>(index >> kBits) - 1;
    const double low = static_cast<double>(((std::uint64_t{1} << kBits) + (index & ((1u << kBits) - 1))) << shift);
    return low + static_cast<double>(std::uint64_t{1} << shift) / 2;
  }
  std::array<std::uint64_t, (65 - kBits) << kBits> buckets_{};
  std::uint64_t count_ = 0, max_ns_ = 0;
};

}  // namespace dlfs::tools
