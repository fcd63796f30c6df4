// The index: the directory as it lies on the media and in memory. All arrays are bit-packed with widths kept in the
// header, which is how volumes stay at or below 16 bytes a sample. docs/format.md has the bytes.
//
//   locations    n entries, by id:   address (in units of 1 << align_shift bytes from the start of the data area) and
//   length ids_by_slot  n entries, in placement order unit_starts  n bits, in placement order: 1 where a unit (a chunk,
//   or a large sample) begins buckets, names_by_hash           only with names: the static search tree over name hashes
//   (module directory) name_blocks                      only with names: the first id of every name block
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/endian.h"
#include "layout/format.h"

namespace dlfs::layout {

// n unsigned integers of `width` bits (0..64), little-endian bit order: value i is bits [i*width, (i+1)*width). The
// bytes are followed by 16 bytes of zero, so that a read may load beyond the last value.
class PackedArray {
 public:
  PackedArray() = default;
  PackedArray(std::span<const std::byte> bytes, unsigned width) noexcept
      : data_(bytes.data()), width_(width), mask_(width >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1) {}
  static std::uint64_t bytes_for(std::uint64_t n, unsigned width) noexcept { return (n * width + 7) / 8 + 16; }
  std::uint64_t operator[](std::uint64_t i) const noexcept {
    const std::uint64_t bit = i * width_;
    const std::byte* p = data_ + bit / 8;
    const unsigned shift = bit % 8;
    std::uint64_t value = base::load_le<std::uint64_t>(p) >> shift;
    if (width_ > 57 && shift > 0) value |= base::load_le<std::uint64_t>(p + 8) << (64 - shift);
    return value & mask_;
  }
  unsigned width() const noexcept { return width_; }
  void prefetch(std::uint64_t i) const noexcept { __builtin_prefetch(data_ + i * width_ / 8); }

 private:
  const std::byte* data_ = nullptr;
  unsigned width_ = 0;
  std::uint64_t mask_ = 0;
};
// Sets value i in zeroed bytes of bytes_for(n, width).
void packed_set(std::span<std::byte> bytes, unsigned width, std::uint64_t i, std::uint64_t value) noexcept;

// A sample's place. `length_bytes` is exact for ordinary records; for large ones it is rounded up to 1 << large_shift
// (the exact length stands in the record's header).
struct Location {
  std::uint64_t address_bytes = 0;  // from the start of the data area
  std::uint64_t length_bytes = 0;
  bool large = false;
};

// ---- the header ----

inline constexpr std::size_t kIndexHeaderBytes = 256;
inline constexpr std::size_t kIndexSections = 6;
inline constexpr std::uint64_t kIndexAlign = 64;  // sections start at multiples of it, zeros before them
enum class IndexSection : std::uint8_t { kLocations, kIdsBySlot, kUnitStarts, kBuckets, kNamesByHash, kNameBlocks };
const char* index_section_name(IndexSection section) noexcept;  // static storage

// What decides the widths of an index. All lengths in bytes.
struct IndexFacts {
  std::uint64_t sample_count = 0;
  std::uint64_t unit_count = 0;
  std::uint64_t data_bytes = 0;              // length of the data area
  std::uint64_t address_bits_used = 0;       // all addresses or-ed: their common alignment
  std::uint64_t longest_ordinary_bytes = 0;  // 0: none
  std::uint64_t longest_large_bytes = 0;     // 0: none
  std::uint32_t chunk_bytes = kDefaultChunkBytes;
  std::uint32_t record_salt = 0;
  bool names = false;
  std::uint64_t name_block_count = 0;
};

struct IndexHeader {
  std::uint64_t sample_count = 0, unit_count = 0, name_block_count = 0, data_bytes = 0;
  std::uint32_t chunk_bytes = kDefaultChunkBytes, record_salt = 0;
  std::uint8_t align_shift = 3;   // addresses are multiples of 1 << align_shift
  std::uint8_t large_shift = 12;  // lengths of large records are rounded up to 1 << large_shift
  std::uint8_t address_bits = 1, length_bits = 1;
  std::uint8_t id_bits = 1;
  std::uint8_t fingerprint_bits = 0;  // of the hash, kept beside each id in names_by_hash
  std::uint8_t bucket_bits = 0;       // the hash's top bits that number its bucket
  std::uint8_t bucket_start_bits = 0;
  std::uint32_t ordinary_codes = 0;  // length codes 1..ordinary_codes are ordinary records, higher ones large
  bool names = false;
  std::array<std::uint32_t, kIndexSections> section_crcs{};
  bool operator==(const IndexHeader&) const = default;

  Extent section(IndexSection which) const noexcept;  // where it lies in the index, from the counts and widths
  std::uint64_t index_bytes() const noexcept;         // header and sections
  // Bits in all arrays, and sample memory that the directory adds when it is loaded (at most 1/64 byte a sample).
  std::uint64_t resident_bytes_bound() const noexcept;
};

// Chooses the widths (docs/format.md has the rule): everything at most 16 bytes a sample, the most fingerprint bits
// that leave.
IndexHeader plan_index(const IndexFacts& facts) noexcept;

std::array<std::byte, kIndexHeaderBytes> encode(const IndexHeader& header);
// Checks everything about the header alone: sum, version, widths in range, sections inside `index_bytes`. **Errors**:
// kCorrupt, kUnsupportedVersion.
Result<IndexHeader> decode_index_header(std::span<const std::byte> bytes, std::uint64_t index_bytes);

// ---- locations ----

// n locations of address_bits + length_bits (at most 96) bits: the length's code in the low bits, the address above it.
class LocationArray {
 public:
  LocationArray() = default;
  LocationArray(std::span<const std::byte> bytes, const IndexHeader& header) noexcept;
  // Precondition of all: i < sample_count.
  Location operator[](std::uint64_t i) const noexcept;
  std::uint64_t address_bytes(std::uint64_t i) const noexcept {
    return (static_cast<std::uint64_t>(bits(i) >> length_bits_) & address_mask_) << align_shift_;
  }
  // Both ends: an entry may lie across two cache lines, and a second miss costs as much as the first.
  void prefetch(std::uint64_t i) const noexcept {
    const std::byte* p = data_ + i * width_ / 8;
    __builtin_prefetch(p);
    __builtin_prefetch(p + (width_ > 57 ? 15 : 7));
  }
  // False for the code 0, which stands for no length.
  bool valid(std::uint64_t i) const noexcept { return (bits(i) & length_mask_) != 0; }

 private:
  unsigned __int128 bits(std::uint64_t i) const noexcept {
    const std::uint64_t bit = i * width_;
    const std::byte* p = data_ + bit / 8;
    const auto low = base::load_le<std::uint64_t>(p);
    if (width_ <= 57) return low >> (bit % 8);
    const unsigned __int128 high = base::load_le<std::uint64_t>(p + 8);
    return (high << 64 | low) >> (bit % 8);
  }
  const std::byte* data_ = nullptr;
  unsigned width_ = 0, length_bits_ = 0, align_shift_ = 0, large_shift_ = 0;
  std::uint32_t ordinary_codes_ = 0;
  std::uint64_t length_mask_ = 0, address_mask_ = 0;
};
// Sets location i in the zeroed bytes of the section. Precondition: it fits the header's widths.
void set_location(std::span<std::byte> bytes, const IndexHeader& header, std::uint64_t i,
                  const Location& exact) noexcept;

inline constexpr std::uint64_t kMinRecordBytes = 8;  // code 1 stands for it

inline Location LocationArray::operator[](std::uint64_t i) const noexcept {
  const unsigned __int128 value = bits(i);
  const std::uint64_t code = static_cast<std::uint64_t>(value) & length_mask_;
  Location location;
  location.address_bytes = (static_cast<std::uint64_t>(value >> length_bits_) & address_mask_) << align_shift_;
  location.large = code > ordinary_codes_;
  location.length_bytes = location.large ? (code - ordinary_codes_) << large_shift_ : code + (kMinRecordBytes - 1);
  return location;
}

}  // namespace dlfs::layout
