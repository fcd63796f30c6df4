// Device URLs from anywhere: parse_url() takes any bytes, and what it accepts it accepts again in its literal form.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "block/url.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlfs;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto url = block::parse_url(text);
  if (!url.ok()) {
    DLFS_CHECK(!url.error().message.empty());
    DLFS_CHECK(url.error().message.find('\n') == std::string::npos);
    return 0;
  }
  DLFS_CHECK(!url->path.empty());
  DLFS_CHECK(url->path.find('\0') == std::string::npos);
  if (url->scheme == block::Scheme::kMemory) {
    DLFS_CHECK(url->size_bytes % url->block_bytes == 0);
    const auto again = block::parse_url("mem:" + url->path);
    DLFS_CHECK(again.ok() && again->path == url->path);
  } else if (!url->path.starts_with("//")) {
    const auto again = block::parse_url("file:" + url->path);
    DLFS_CHECK(again.ok() && again->scheme == block::Scheme::kFile && again->path == url->path);
  }
  return 0;
}
