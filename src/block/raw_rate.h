// The rate of the bare device for random reads: what the reader's own rate is held against.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "block/device.h"

namespace dlfs::block {

struct RawRateOptions {
  std::uint32_t request_bytes = 4096;  // a multiple of the device's block size
  std::uint32_t depth = 32;            // requests kept in flight
  std::uint64_t total_bytes = 0;       // stop after about so many; 0: by time alone
  std::chrono::milliseconds duration{1000};
  std::uint64_t first_byte = 0;  // reads fall on multiples of request_bytes within
  std::uint64_t span_bytes = 0;  // [first_byte, first_byte + span_bytes); 0: to the end of the device
  std::uint64_t seed = 1;
  bool direct = true;  // past the page cache, where the file system allows that: see notes
};

struct RawRate {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;      // from the first submission to the last completion
  double cpu_seconds = 0;  // of the calling thread
  double bytes_per_s = 0;
  double requests_per_s = 0;
  std::string engine;
  std::string notes;  // the device's: a fallback taken makes the rate one of something else
};

// Opens `url` for reading and reads at random offsets until total_bytes or duration is reached, whichever comes first.
// **Blocks** for about `duration`, sleeping while nothing is done. **Errors**: those of open_device() and of
// completion_error(); kInvalidArgument where the span holds no whole request or a size does not fit the device;
// kTimedOut.
Result<RawRate> measure_random_reads(std::string_view url, const RawRateOptions& options);

}  // namespace dlfs::block
