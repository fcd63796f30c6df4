// Opening a file or block device and learning its geometry.
#pragma once

#include <string>

#include "block/descriptor.h"
#include "block/device.h"

namespace dlfs::block {

struct OpenedFile {
  Descriptor fd;
  Geometry geometry;
  std::string url;    // "file:" and the absolute path
  std::string notes;  // why O_DIRECT is not used, though it was asked for; else empty
  bool direct = false;
  bool regular = false;  // else a block device
};

// **Errors**: those of open_device().
Result<OpenedFile> open_file(const std::string& path, const OpenOptions& options);

// The sentence for notes(): O_DIRECT was given up for `reason`.
std::string buffered_note(const std::string& url, std::string_view reason);

}  // namespace dlfs::block
