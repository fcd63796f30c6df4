// Large records, written and read in pieces of chunk_bytes:
//
//   u32 head_crc | u32 id | u64 record_bytes | stored lengths | fixed fields | variable fields | u32 crc[chunks] | u32
//   table_crc
//
// Each piece of the record before the table has its CRC32C in the table; the table has its own; the head (everything
// before the fixed fields) has one more, so that the exact length and every field's place are known and verified from
// the first few bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "layout/record.h"

namespace dlfs::layout {

// Where the table lies in a large record. All sizes in bytes.
struct LargeShape {
  std::uint64_t record_bytes = 0;  // everything, with the table
  std::uint64_t table_offset = 0;  // the end of the last field; the pieces [i * chunk_bytes, min((i + 1) * chunk_bytes,
                                   // table_offset)) have a CRC each
  std::uint64_t chunk_count = 0;   // entries of the table
  std::uint64_t table_bytes() const noexcept { return 4 * (chunk_count + 1); }

  // The shape of a record whose last field ends at `body_bytes`.
  static LargeShape of_body(std::uint64_t body_bytes, std::uint32_t chunk_bytes) noexcept;
  // The shape of a record of this whole length; nothing when no body gives that length.
  static std::optional<LargeShape> of_record(std::uint64_t record_bytes, std::uint32_t chunk_bytes) noexcept;
};

// Produces one large record front to back. **Thread**: one.
class LargeRecordEncoder {
 public:
  // Fills `into` with bytes [offset, offset + into.size()) of a field. Called in media order, each byte once.
  using Source = std::function<Result<void>(std::size_t field, std::uint64_t offset, std::span<std::byte> into)>;

  // Precondition: layout.large(layout.record_bytes(field_lengths)). The layout must outlive the encoder.
  LargeRecordEncoder(const RecordLayout& layout, SampleId id, std::span<const std::uint64_t> field_lengths);
  std::uint64_t record_bytes() const noexcept { return shape_.record_bytes; }
  std::uint64_t written_bytes() const noexcept { return position_; }
  bool done() const noexcept { return position_ == shape_.record_bytes; }

  // Writes the next piece into the front of `into` (at least chunk_bytes long, or as long as what is left):
  // chunk_bytes, at the end less. Returns how much. **Errors**: those of `source`; the encoder is then dead.
  Result<std::size_t> next(std::span<std::byte> into, const Source& source);

 private:
  Result<void> fill_fields(std::uint64_t begin, std::span<std::byte> into, const Source& source);
  const RecordLayout* layout_;
  SampleId id_;
  std::vector<std::uint64_t> lengths_, offsets_;  // by field
  std::vector<std::byte> head_, table_;
  LargeShape shape_;
  std::uint64_t position_ = 0;
  std::size_t field_cursor_ = 0;  // into media_order(): fields before it are written
};

// What the verified first bytes of a large record say: the exact length and where the fields are.
class LargeRecordHead {
 public:
  // Bytes at the front of a large record that decode() needs; less than kMinChunkBytes.
  static std::uint64_t bytes_needed(const RecordLayout& layout) noexcept;
  // `front`: at least bytes_needed(). `limit_bytes`: the length in the directory (rounded up): a longer record is
  // refused. Nothing when the check fails, the id differs or the lengths do not add up.
  static std::optional<LargeRecordHead> decode(const RecordLayout& layout, std::span<const std::byte> front,
                                               SampleId id, std::uint64_t limit_bytes);

  struct Range {
    std::uint64_t offset_bytes = 0, length_bytes = 0;
  };  // within the record
  const LargeShape& shape() const noexcept { return shape_; }
  SampleId id() const noexcept { return id_; }
  Range field(std::size_t field) const noexcept { return fields_[field]; }

  // `table`: shape().table_bytes() bytes read from shape().table_offset. True when it is as written.
  [[nodiscard]] bool verify_table(std::span<const std::byte> table) const noexcept;
  // `piece`: bytes [chunk * chunk_bytes, min((chunk + 1) * chunk_bytes, table_offset)) of the record. Precondition: the
  // table is verified.
  [[nodiscard]] bool verify_piece(std::span<const std::byte> table, std::uint64_t chunk,
                                  std::span<const std::byte> piece) const noexcept;
  // Length of that piece.
  std::uint64_t piece_bytes(std::uint64_t chunk) const noexcept;

 private:
  LargeShape shape_;
  SampleId id_;
  std::uint32_t chunk_bytes_ = 0, salt_ = 0;
  std::vector<Range> fields_;
};

// Verifies a large record that lies in memory whole (`bytes` may go on behind it) and finds its fields. As
// RecordLayout::decode.
[[nodiscard]] bool decode_large(const RecordLayout& layout, std::span<const std::byte> bytes, SampleId id,
                                std::span<FieldValue> fields);

}  // namespace dlfs::layout
