// Durations counted in log-linear buckets: 64 to each power of two, so that a percentile is right within 1.6 %.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dlfs::reader {

// **Thread**: add() from any, percentiles from any at the same time (they see some recent state).
class Histogram {
 public:
  void add(std::chrono::nanoseconds duration) noexcept {
    const std::uint64_t ns = duration.count() < 0 ? 0 : static_cast<std::uint64_t>(duration.count());
    counts_[bucket(ns)].fetch_add(1, std::memory_order_relaxed);
    total_ns_.fetch_add(ns, std::memory_order_relaxed);
  }

  double total_s() const noexcept { return static_cast<double>(total_ns_.load(std::memory_order_relaxed)) * 1e-9; }

  std::uint64_t count() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& c : counts_) sum += c.load(std::memory_order_relaxed);
    return sum;
  }

  // The duration that `fraction` of all are not longer than; 0 when there are none.
  double percentile_us(double fraction) const noexcept {
    const std::uint64_t all = count();
    if (all == 0) return 0;
    const auto rank = static_cast<std::uint64_t>(fraction * static_cast<double>(all - 1));
    std::uint64_t seen = 0;
    for (std::size_t b = 0; b < counts_.size(); ++b) {
      seen += counts_[b].load(std::memory_order_relaxed);
      if (seen > rank) return middle_ns(b) * 1e-3;
    }
    return middle_ns(counts_.size() - 1) * 1e-3;
  }

 private:
  static constexpr unsigned kLinearBits = 6;
  static constexpr std::uint64_t kLinear = 1u << kLinearBits;
  static constexpr unsigned kPowers = 40;  // up to 2^40 ns: 18 minutes

  static std::size_t bucket(std::uint64_t ns) noexcept {
    if (ns < kLinear) return ns;
    const auto power = static_cast<unsigned>(std::bit_width(ns)) - 1 - kLinearBits;
    if (power >= kPowers - kLinearBits) return kBuckets - 1;
    return static_cast<std::size_t>((power + 1) * kLinear + ((ns >> power) - kLinear));
  }
  static double middle_ns(std::size_t bucket) noexcept {
    if (bucket < kLinear) return static_cast<double>(bucket);
    const std::size_t power = bucket / kLinear - 1;
    const auto low = static_cast<double>((bucket % kLinear + kLinear) << power);
    return low + static_cast<double>(std::uint64_t{1} << power) / 2;
  }

  static constexpr std::size_t kBuckets = (kPowers - kLinearBits + 1) * kLinear;
  std::array<std::atomic<std::uint64_t>, kBuckets> counts_{};
  std::atomic<std::uint64_t> total_ns_{0};
};

}  // namespace dlfs::reader
