// Where a volume is packed to: a regular file that appears whole, or a device that is packed in place.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/fork_guard.h"
#include "block/device.h"
#include "volume/device_io.h"
#include "volume/name_spool.h"

namespace dlfs::volume {

std::string parent_directory(const std::string& path);
inline constexpr std::string_view kPartialSuffix = ".partial";

// **Lifetime**: destroyed without publish(), it leaves the place as it was (file) or as far as it was written (device).
// **Thread**: one.
class Destination {
 public:
  // Refuses what must not be overwritten. A regular file is opened as PATH.partial, locked against other packers.
  // **Errors**: kExists, kBusy, kReadOnly, kNotFound, kInvalidArgument, kNoSpace, kIo.
  static Result<std::unique_ptr<Destination>> open(std::string_view url, bool overwrite, const OpenDevice& open_device);
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  block::BlockDevice& device() noexcept { return *device_; }
  bool in_place() const noexcept { return partial_.empty(); }
  const std::string& name() const noexcept { return name_; }            // for sentences, escaped
  const std::string& directory() const noexcept { return directory_; }  // of a regular file; else empty
  std::uint64_t previous_generation() const noexcept { return previous_generation_; }

  // Makes a regular file exactly this long; devices stay as they are.
  Result<void> set_length(std::uint64_t length_bytes);
  // Makes what was written and flushed visible under the destination's name. Nothing to do in place.
  Result<void> publish();
  // This process is a child of the one that packs: the destination is the parent's.
  bool forked() const noexcept { return guard_.forked(); }
  // Closes the device and removes PATH.partial (not in a forked child).
  void abandon() noexcept;

 private:
  Destination() = default;
  Result<void> open_file(const std::string& path, bool overwrite, const OpenDevice& open_device);
  Result<void> open_in_place(std::string_view url, const std::string& path, bool overwrite,
                             const OpenDevice& open_device);
  Result<void> lock_partial();
  Result<void> sync_directory() const;

  std::string name_, directory_, path_, partial_;
  bool replace_ = false;  // PATH was there when we began
  bool published_ = false;
  std::uint64_t previous_generation_ = 0;
  base::ForkGuard guard_;
  FileHandle lock_;  // PATH.partial, or the block device
  std::unique_ptr<block::BlockDevice> device_;
};

}  // namespace dlfs::volume
