// CRC32C (Castagnoli, RFC 3720 B.4), with ISA-L's vector code where the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dlfs::base {

// crc32c("123456789") == 0xE3069283. Continue a sum by passing the previous result: crc32c(b, crc32c(a)) == crc32c(ab).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0) noexcept;

}  // namespace dlfs::base
