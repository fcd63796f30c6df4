#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace dlfs::base {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
  std::uint32_t crc = ~previous;
  while (!bytes.empty()) {  // ISA-L takes an int length
    const std::size_t length = std::min<std::size_t>(bytes.size(), 1u << 30);
    // ISA-L's prototype lacks const; it does not write.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    crc = crc32_iscsi(data, static_cast<int>(length), crc);
    bytes = bytes.subspan(length);
  }
  return ~crc;
}

}  // namespace dlfs::base
