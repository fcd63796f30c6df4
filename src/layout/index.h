// The index: the directory as it lies on the media and in memory. All arrays are bit-packed with widths kept in the header,
// which is how every volume within the limits stays at or below 16 bytes a sample. docs/format.md has the bytes.
//
//   locations    n entries, by id:   address (in units of 1 << align_shift bytes from the start of the data area) and length
//   ids_by_slot  n entries, in placement order
//   unit_starts  n bits, in placement order: 1 where a unit (a chunk, or a large sample) begins
//   buckets, names_by_hash           only with names: the static search tree over name hashes (module directory)
//   name_blocks                      only with names: the first id of every name block
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/endian.h"
#include "layout/format.h"

namespace dlfs::layout {

// n unsigned integers of `width` bits (0..64), little-endian bit order: value i is bits [i*width, (i+1)*width). The bytes
// are followed by 16 bytes of zero, so that a read may load beyond the last value.
class PackedArray {
 public:
  PackedArray() = default;
  PackedArray(std::span<const std::byte> bytes, unsigned width) noexcept : data_(bytes.data()), width_(width) {}
  static std::uint64_t bytes_for(std::uint64_t n, unsigned width) noexcept { return (n * width + 7) / 8 + 16; }
  std::uint64_t operator[](std::uint64_t i) const noexcept {
    const std::uint64_t bit = i * width_;
    const std::byte* p = data_ + bit / 8;
    const auto low = base::load_le<std::uint64_t>(p);
    const auto high = base::load_le<std::uint64_t>(p + 8);
    const unsigned shift = bit % 8;
    const std::uint64_t value = shift == 0 ? low : (low >> shift) | (high << (64 - shift));
    return width_ == 64 ? value : value & ((std::uint64_t{1} << width_) - 1);
  }
  unsigned width() const noexcept { return width_; }

 private:
  const std::byte* data_ = nullptr;
  unsigned width_ = 0;
};
// Sets value i in zeroed bytes of bytes_for(n, width).
void packed_set(std::span<std::byte> bytes, unsigned width, std::uint64_t i, std::uint64_t value) noexcept;

// A sample's place. `length_bytes` is exact for ordinary records; for large ones it is rounded up to 1 << large_shift (the exact
// length stands in the record's header).
struct Location {
  std::uint64_t address_bytes = 0;   // from the start of the data area
  std::uint64_t length_bytes = 0;
  bool large = false;
};

}  // namespace dlfs::layout
