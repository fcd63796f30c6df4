// Device URLs from anywhere: the parsers take any bytes, and what they accept they accept again in its canonical form.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "block/nvme_tcp.h"
#include "block/url.h"

namespace {

using namespace dlfs;

void check_sentence(const Error& error) {
  DLFS_CHECK(!error.message.empty());
  DLFS_CHECK(error.message.find('\n') == std::string::npos);
  DLFS_CHECK(error.message.size() < 8192);
}

void check_again(const block::Url& url) {
  switch (url.scheme) {
    case block::Scheme::kMemory: {
      DLFS_CHECK(url.size_bytes % url.block_bytes == 0);
      const auto again = block::parse_url("mem:" + url.path);
      DLFS_CHECK(again.ok() && again->path == url.path);
      return;
    }
    case block::Scheme::kNull:
      DLFS_CHECK(url.size_bytes != 0 && url.size_bytes % url.block_bytes == 0);
      return;
    case block::Scheme::kNvmeTcp:
      return;  // its own parser looks at the rest
    case block::Scheme::kFile: {
      if (url.path.starts_with("//")) return;
      const auto again = block::parse_url("file:" + url.path);
      DLFS_CHECK(again.ok() && again->scheme == block::Scheme::kFile && again->path == url.path);
      return;
    }
  }
}

void check_nvme_tcp(std::string_view text) {
  const auto url = block::parse_nvme_tcp_url(text);
  if (!url.ok()) return check_sentence(url.error());
  DLFS_CHECK(!url->paths.empty() && url->paths.size() <= 16);
  DLFS_CHECK(!url->subnqn.empty() && url->nsid != 0 && url->queues != 0);
  const auto again = block::parse_nvme_tcp_url(url->canonical());
  DLFS_CHECK(again.ok() && *again == *url);
  DLFS_CHECK(again->canonical() == url->canonical());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto url = block::parse_url(text);
  if (url.ok()) {
    DLFS_CHECK(!url->path.empty());
    DLFS_CHECK(url->path.find('\0') == std::string::npos);
    check_again(*url);
  } else {
    check_sentence(url.error());
  }
  check_nvme_tcp(text);
  check_nvme_tcp("nvme-tcp://" + text);
  return 0;
}
