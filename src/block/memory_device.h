// Memory devices: "mem:NAME?size=1GiB", for tests and measurements.
#pragma once

#include <memory>

#include "block/device.h"
#include "block/url.h"

namespace dlfs::block {

// Opens or makes the device `url.path`. Completions come deliberately out of order, and data moves only in poll(), so
// that users that lean on order or look too early are found by their tests. **Thread**: handles of one name may be used
// by different threads at once. **Errors**: kNotFound (no such name and no size), kInvalidArgument (another size),
// kOutOfMemory.
Result<std::unique_ptr<BlockDevice>> open_memory_device(const Url& url, const OpenOptions& options);

}  // namespace dlfs::block
