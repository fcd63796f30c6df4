// open_device(): from a URL to the kind of device that it names.
#include "base/try.h"
#include "block/device.h"
#include "block/file_device.h"
#include "block/memory_device.h"
#include "block/null_device.h"
#include "block/nvme_tcp.h"
#include "block/url.h"

namespace dlfs::block {

Result<std::unique_ptr<BlockDevice>> open_device(std::string_view url, const OpenOptions& options) {
  DLFS_TRY_ASSIGN(const Url parsed, parse_url(url));
  switch (parsed.scheme) {
    case Scheme::kFile:
      return open_file_device(parsed.path, options);
    case Scheme::kMemory:
      return open_memory_device(parsed, options);
    case Scheme::kNull:
      return open_null_device(parsed, options);
    case Scheme::kNvmeTcp: {
      DLFS_TRY_ASSIGN(const NvmeTcpUrl remote, parse_nvme_tcp_url(url));
      return open_nvme_tcp_device(remote, options);
    }
  }
  return Error{Code::kUnsupported, "this kind of device cannot be opened"};
}

}  // namespace dlfs::block
