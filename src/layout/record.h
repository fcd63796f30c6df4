// Records: the bytes of one sample on the media.
//
// Ordinary record (fits in one chunk):   u32 crc | u32 id | lengths of all variable fields but the last | fixed fields
// | variable fields Large record (longer than one chunk):  the same with u64 length_bytes after the id, starting at a
// chunk's edge, and behind it a table of CRC32Cs, one for each chunk_bytes of it, so that any part can be read and
// verified alone. Every field starts 8-aligned within the record. docs/format.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/endian.h"
#include "base/types.h"
#include "layout/format.h"

namespace dlfs::layout {

using FieldValue = std::span<const std::byte>;
inline constexpr std::uint64_t kVariable = ~std::uint64_t{0};

// Sizes of one record; all in bytes. Precomputed parts of a schema, cheap to copy. **Thread**: immutable.
class RecordLayout {
 public:
  RecordLayout(const Schema& schema, std::uint32_t chunk_bytes, std::uint32_t salt);

  // Bytes of the record with these field lengths (schema order), without padding to kRecordAlign; includes the CRC
  // table when large. Precondition: one length a field, each at most kMaxSampleBytes, those of fixed fields as the
  // schema has them.
  std::uint64_t record_bytes(std::span<const std::uint64_t> field_lengths) const noexcept;
  bool large(std::uint64_t record_bytes) const noexcept { return record_bytes > chunk_bytes_; }

  // Writes an ordinary record of exactly `into.size() == record_bytes(lengths)`.
  void encode(SampleId id, std::span<const FieldValue> fields, std::span<std::byte> into) const noexcept;

  // Verifies an ordinary record and finds its fields (views into `record`). `fields` has one entry a schema field.
  // False when the check fails, the id differs or a length does not add up: nothing may then be delivered.
  [[nodiscard]] bool decode(std::span<const std::byte> record, SampleId id,
                            std::span<FieldValue> fields) const noexcept;
  // As decode(), without the CRC: for measurements, and where the record was verified before.
  [[nodiscard]] bool decode_unverified(std::span<const std::byte> record, SampleId id,
                                       std::span<FieldValue> fields) const noexcept;

  // -- large records: produced and consumed in pieces, see large_record.h --
  std::uint32_t chunk_bytes() const noexcept { return chunk_bytes_; }
  std::uint32_t salt() const noexcept { return salt_; }
  std::size_t field_count() const noexcept { return fixed_.size(); }
  std::span<const std::uint64_t> fixed_lengths() const noexcept { return fixed_; }
  // Field numbers in the order of the media: fixed fields in schema order, then variable fields in schema order.
  std::span<const std::uint32_t> media_order() const noexcept { return media_order_; }
  std::size_t stored_lengths() const noexcept { return stored_lengths_; }  // variable fields but the last

  // Lays fields of these lengths behind a head of `head_bytes`; writes each field's offset (schema order) when
  // `offsets` is not empty. Returns the end of the last.
  std::uint64_t place(std::uint64_t head_bytes, std::span<const std::uint64_t> field_lengths,
                      std::span<std::uint64_t> offsets) const noexcept;
  // The reverse for a record whose fields end at `end`: reads the stored lengths at `stored`, gives every field's
  // offset and length to `place_field(field, offset, length)`. False when the lengths do not add up to `end`.
  template <class PlaceField>
  [[nodiscard]] bool locate(std::uint64_t head_bytes, const std::byte* stored, std::uint64_t end,
                            PlaceField&& place_field) const noexcept;

 private:
  std::vector<std::uint64_t> fixed_;  // per field: its length, or kVariable
  std::vector<std::uint32_t> media_order_;
  std::size_t stored_lengths_ = 0;
  std::uint32_t chunk_bytes_, salt_;
};

inline constexpr std::uint64_t kRecordHeaderBytes = 8;
inline constexpr std::uint64_t kLargeHeaderBytes = 16;

template <class PlaceField>
bool RecordLayout::locate(std::uint64_t head_bytes, const std::byte* stored, std::uint64_t end,
                          PlaceField&& place_field) const noexcept {
  std::uint64_t position = head_bytes;  // invariant: the end of what is placed so far, position <= end
  if (position > end) return false;
  std::size_t variable_left = stored_lengths_;
  for (const std::uint32_t field : media_order_) {
    position = (position + (kRecordAlign - 1)) & ~std::uint64_t{kRecordAlign - 1};
    if (position > end) return false;
    std::uint64_t length = fixed_[field];
    if (length == kVariable) {
      if (variable_left == 0) {
        length = end - position;
      } else {
        length = base::load_le<std::uint64_t>(stored);
        stored += sizeof(std::uint64_t);
        --variable_left;
      }
    }
    if (length > end - position) return false;
    place_field(field, position, length);
    position += length;
  }
  return position == end;
}

}  // namespace dlfs::layout
