// Little-endian loads and stores at any alignment. The format and the protocol are little-endian on every machine.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace dlfs::base {

template <std::integral T>
T load_le(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::endian::native == std::endian::big) value = std::byteswap(value);
  return value;
}

template <std::integral T>
void store_le(std::byte* to, T value) noexcept {
  if constexpr (std::endian::native == std::endian::big) value = std::byteswap(value);
  std::memcpy(to, &value, sizeof value);
}

}  // namespace dlfs::base
