// Fields of wire structures: an offset and a type. Codecs are written with these, never by casting a struct onto a
// buffer.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/endian.h"

namespace dlfs::nvme {

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

// An unsigned little-endian field at a byte offset of its structure.
template <std::unsigned_integral T>
struct At {
  std::size_t offset;
  constexpr std::size_t end() const noexcept { return offset + sizeof(T); }
  T get(const std::byte* structure) const noexcept { return base::load_le<T>(structure + offset); }
  void put(std::byte* structure, T value) const noexcept { base::store_le<T>(structure + offset, value); }
};

// A run of bytes (a string, an identifier) at a byte offset of its structure.
struct Run {
  std::size_t offset, length;
  constexpr std::size_t end() const noexcept { return offset + length; }
  ConstBytes of(const std::byte* structure) const noexcept { return {structure + offset, length}; }
  void put(std::byte* structure, ConstBytes value) const noexcept {
    const std::size_t used = std::min(value.size(), length);
    if (used > 0) std::memcpy(structure + offset, value.data(), used);
  }
  // Text in a field of fixed width, cut when longer, filled up with `fill`: a space for ASCII strings, zero for UTF-8.
  void put_text(std::byte* structure, std::string_view text, char fill) const noexcept {
    std::memset(structure + offset, fill, length);
    put(structure, std::as_bytes(std::span(text)));
  }
  // The text up to the first NUL (or the field's end), without the spaces that pad it.
  std::string text(const std::byte* structure) const {
    std::string_view view(reinterpret_cast<const char*>(structure + offset), length);
    view = view.substr(0, view.find('\0'));
    const std::size_t last = view.find_last_not_of(' ');
    return std::string(view.substr(0, last == std::string_view::npos ? 0 : last + 1));
  }
};

}  // namespace dlfs::nvme
