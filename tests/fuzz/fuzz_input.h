// What the fuzzers share: the input as bytes, and checks that end the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/endian.h"

namespace dlfs::fuzz {

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

// Reads every byte, so that the sanitizer sees a view that leads out of bounds.
inline unsigned touch(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte b : bytes) sum += std::to_integer<unsigned>(b);
  return sum;
}

}  // namespace dlfs::fuzz
