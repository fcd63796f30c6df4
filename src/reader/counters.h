// What a reader counts, written by the poller and the consumer, read by statistics().
#pragma once

#include <atomic>
#include <cstdint>

#include "reader/histogram.h"

namespace dlfs::reader {

struct Counters {
  std::atomic<std::uint64_t> samples{0}, batches{0}, payload_bytes{0}, device_bytes{0}, device_requests{0};
  std::atomic<std::uint64_t> cache_hits{0}, skipped{0};
  Histogram wait, device, queue, verify, copy;

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept {
    counter.fetch_add(n, std::memory_order_relaxed);
  }
};

}  // namespace dlfs::reader
