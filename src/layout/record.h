// Records: the bytes of one sample on the media.
//
// Ordinary record (fits in one chunk):   u32 crc | u32 id | fixed fields | lengths of all variable fields but the last | variable fields
// Large record (longer than one chunk):  the same with u64 length_bytes after the id, starting at a chunk's edge, and behind
// it (8-aligned) a table of CRC32Cs, one for each chunk_bytes of it, so that any part can be read and verified alone.
// Every field starts 8-aligned within the record. docs/format.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout/format.h"

namespace dlfs::layout {

using FieldValue = std::span<const std::byte>;

// Sizes of one record; all in bytes. Precomputed parts of a schema, cheap to copy. **Thread**: immutable.
class RecordLayout {
 public:
  RecordLayout(const Schema& schema, std::uint32_t chunk_bytes, std::uint32_t salt);

  // Bytes of the record with these field lengths (schema order), without padding to kRecordAlign; includes the CRC table when large.
  std::uint64_t record_bytes(std::span<const std::uint64_t> field_lengths) const noexcept;
  bool large(std::uint64_t record_bytes) const noexcept { return record_bytes > chunk_bytes_; }

  // Writes an ordinary record of exactly `into.size() == record_bytes(lengths)`.
  void encode(SampleId id, std::span<const FieldValue> fields, std::span<std::byte> into) const noexcept;

  // Verifies an ordinary record and finds its fields (views into `record`). `fields` has one entry a schema field.
  // False when the check fails, the id differs or a length does not add up: nothing may then be delivered.
  [[nodiscard]] bool decode(std::span<const std::byte> record, SampleId id, std::span<FieldValue> fields) const noexcept;

  // -- large records: produced and consumed in pieces, see large_record.h --
  std::uint32_t chunk_bytes() const noexcept { return chunk_bytes_; }
  std::uint32_t salt() const noexcept { return salt_; }
  std::size_t field_count() const noexcept { return fixed_.size(); }
  std::span<const std::uint64_t> fixed_lengths() const noexcept { return fixed_; }

 private:
  std::vector<std::uint64_t> fixed_;   // per field: its length, or kVariable
  std::uint32_t chunk_bytes_, salt_;
};
inline constexpr std::uint64_t kVariable = ~std::uint64_t{0};

}  // namespace dlfs::layout
