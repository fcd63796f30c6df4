// Good values of the few options that matter, for one volume on one device, with the reason for each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dlfs/dlfs.hpp"

namespace dlfs::tools {

struct DepthRate {
  std::uint32_t depth = 0;
  double bytes_per_s = 0;  // of the bare device
};

struct Advice {
  std::uint32_t depth = 128, window = 1;
  std::uint64_t cache_bytes = 0;
  std::uint32_t request_bytes = 0;  // that the depths were measured with
  std::vector<DepthRate> depths;
  std::string depth_reason, window_reason, cache_reason;
  double default_samples_per_s = 0, advised_samples_per_s = 0;
};

// Measures the device at several depths, and the reader with the options as they are and with what it advises, for
// `slice_s` seconds each: about 11 of them in all, and an epoch of at most 20 s where the data fit in memory. Advises
// nothing that was measured to be slower. `keep_on` is asked between measurements. **Errors**: those of reading;
// kInterrupted when keep_on() is false.
Result<Advice> advise(const Volume& volume, const SequenceOptions& options, bool direct, double slice_s,
                      const std::function<bool(const char* what)>& keep_on);

}  // namespace dlfs::tools
