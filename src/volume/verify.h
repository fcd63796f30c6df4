// Verify: reads every byte of a volume and reports everything that is not as it was written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "volume/volume.h"

namespace dlfs::volume {

struct Finding {
  enum class What { kRecord, kLargeRecord, kPadding, kNames, kSuperblock, kRead, kIndex } what;
  bool has_id = false;
  SampleId id{};
  std::string name{};  // escaped; empty when unknown
  std::uint64_t chunk = 0;
  std::uint64_t device_offset = 0;
  std::string message{};
};

struct VerifyReport {
  std::uint64_t samples = 0, bytes = 0, bad_samples = 0, bad_chunks = 0, findings = 0;
};

// `found` is called for every finding, `progress(bytes done, bytes in all)` now and then; false from it stops with
// kInterrupted.
// **Errors**: only when it cannot go on; a bad record is a finding, not an error.
Result<VerifyReport> verify(const Volume& volume, const std::function<void(const Finding&)>& found,
                            const std::function<bool(std::uint64_t, std::uint64_t)>& progress);

}  // namespace dlfs::volume
