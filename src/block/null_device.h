// Null devices: "null:SIZE". Reads answer from a constant buffer, writes vanish: to measure what lies around a device.
#pragma once

#include <memory>

#include "block/device.h"
#include "block/url.h"

namespace dlfs::block {

// Checks requests as other devices do; a read gives zeros. **Errors**: kOutOfMemory, kIo (no eventfd).
Result<std::unique_ptr<BlockDevice>> open_null_device(const Url& url, const OpenOptions& options);

}  // namespace dlfs::block
