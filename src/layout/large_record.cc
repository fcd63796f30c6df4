#include "layout/large_record.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/try.h"

namespace dlfs::layout {
namespace {

// Of (salt, then `bytes`).
std::uint32_t salted_crc(std::uint32_t salt, std::span<const std::byte> bytes) {
  std::byte prefix[4];
  base::store_le<std::uint32_t>(prefix, salt);
  return base::crc32c(bytes, base::crc32c(prefix));
}

// Of (salt, id, record_bytes, then the entries of the table): a table belongs to one record only.
std::uint32_t table_crc(std::uint32_t salt, SampleId id, std::uint64_t record_bytes,
                        std::span<const std::byte> entries) {
  std::byte prefix[16];
  base::store_le<std::uint32_t>(prefix, salt);
  base::store_le<std::uint32_t>(prefix + 4, id.value);
  base::store_le<std::uint64_t>(prefix + 8, record_bytes);
  return base::crc32c(entries, base::crc32c(prefix));
}

}  // namespace

LargeShape LargeShape::of_body(std::uint64_t body_bytes, std::uint32_t chunk_bytes) noexcept {
  LargeShape shape;
  shape.table_offset = body_bytes;
  shape.chunk_count = (shape.table_offset + chunk_bytes - 1) / chunk_bytes;
  shape.record_bytes = shape.table_offset + shape.table_bytes();
  return shape;
}

std::optional<LargeShape> LargeShape::of_record(std::uint64_t record_bytes, std::uint32_t chunk_bytes) noexcept {
  if (record_bytes <= chunk_bytes) return std::nullopt;
  LargeShape shape;
  shape.record_bytes = record_bytes;
  const std::uint64_t unit = std::uint64_t{chunk_bytes} + 4;  // a whole piece and its entry
  shape.chunk_count = (record_bytes - 4 + unit - 1) / unit;
  if (shape.table_bytes() >= record_bytes) return std::nullopt;
  shape.table_offset = record_bytes - shape.table_bytes();
  const bool consistent = (shape.table_offset + chunk_bytes - 1) / chunk_bytes == shape.chunk_count;
  return consistent ? std::optional(shape) : std::nullopt;
}

LargeRecordEncoder::LargeRecordEncoder(const RecordLayout& layout, SampleId id,
                                       std::span<const std::uint64_t> field_lengths)
    : layout_(&layout), id_(id), lengths_(field_lengths.begin(), field_lengths.end()), offsets_(field_lengths.size()) {
  DLFS_CHECK(layout.large(layout.record_bytes(field_lengths)));
  head_.resize(LargeRecordHead::bytes_needed(layout));
  shape_ = LargeShape::of_body(layout.place(head_.size(), lengths_, offsets_), layout.chunk_bytes());
  base::store_le<std::uint32_t>(head_.data() + 4, id.value);
  base::store_le<std::uint64_t>(head_.data() + 8, shape_.record_bytes);
  std::size_t at = kLargeHeaderBytes;
  for (const std::uint32_t field : layout.media_order()) {
    if (layout.fixed_lengths()[field] != kVariable || at == head_.size()) continue;
    base::store_le<std::uint64_t>(head_.data() + at, lengths_[field]);
    at += 8;
  }
  base::store_le<std::uint32_t>(head_.data(), salted_crc(layout.salt(), std::span(head_).subspan(4)));
  table_.resize(shape_.table_bytes());
}

Result<void> LargeRecordEncoder::fill_fields(std::uint64_t begin, std::span<std::byte> into, const Source& source) {
  const std::uint64_t end = begin + into.size();
  const auto order = layout_->media_order();
  for (; field_cursor_ < order.size(); ++field_cursor_) {
    const std::size_t field = order[field_cursor_];
    const std::uint64_t from = std::max(begin, offsets_[field]);
    const std::uint64_t to = std::min(end, offsets_[field] + lengths_[field]);
    if (from < to) DLFS_TRY(source(field, from - offsets_[field], into.subspan(from - begin, to - from)));
    if (offsets_[field] + lengths_[field] > end) break;  // goes on in the next piece
  }
  return {};
}

Result<std::size_t> LargeRecordEncoder::next(std::span<std::byte> into, const Source& source) {
  const std::uint32_t chunk_bytes = layout_->chunk_bytes();
  const std::size_t size = std::min<std::uint64_t>(chunk_bytes, shape_.record_bytes - position_);
  DLFS_CHECK(into.size() >= size && position_ % chunk_bytes == 0);
  const auto piece = into.first(size);
  const std::uint64_t body = std::min<std::uint64_t>(size, std::max(shape_.table_offset, position_) - position_);
  if (body > 0) {
    std::memset(piece.data(), 0, body);
    if (position_ == 0) std::memcpy(piece.data(), head_.data(), head_.size());
    DLFS_TRY(fill_fields(position_, piece.first(body), source));
    base::store_le<std::uint32_t>(table_.data() + 4 * (position_ / chunk_bytes), base::crc32c(piece.first(body)));
    if (position_ + body == shape_.table_offset) {
      const auto entries = std::span(table_).first(4 * shape_.chunk_count);
      base::store_le<std::uint32_t>(table_.data() + entries.size(),
                                    table_crc(layout_->salt(), id_, shape_.record_bytes, entries));
    }
  }
  if (body < size) {
    const std::uint64_t from = position_ + body - shape_.table_offset;
    std::memcpy(piece.data() + body, table_.data() + from, size - body);
  }
  position_ += size;
  return size;
}

std::uint64_t LargeRecordHead::bytes_needed(const RecordLayout& layout) noexcept {
  return kLargeHeaderBytes + 8 * layout.stored_lengths();
}

std::optional<LargeRecordHead> LargeRecordHead::decode(const RecordLayout& layout, std::span<const std::byte> front,
                                                       SampleId id, std::uint64_t limit_bytes) {
  const std::uint64_t head_bytes = bytes_needed(layout);
  if (front.size() < head_bytes) return std::nullopt;
  if (base::load_le<std::uint32_t>(front.data()) != salted_crc(layout.salt(), front.subspan(4, head_bytes - 4)))
    return std::nullopt;
  if (base::load_le<std::uint32_t>(front.data() + 4) != id.value) return std::nullopt;
  const auto record_bytes = base::load_le<std::uint64_t>(front.data() + 8);
  if (record_bytes > limit_bytes) return std::nullopt;
  const auto shape = LargeShape::of_record(record_bytes, layout.chunk_bytes());
  if (!shape) return std::nullopt;

  LargeRecordHead head;
  head.shape_ = *shape;
  head.id_ = id;
  head.chunk_bytes_ = layout.chunk_bytes();
  head.salt_ = layout.salt();
  head.fields_.resize(layout.field_count());
  const auto keep = [&](std::uint32_t field, std::uint64_t offset, std::uint64_t length) {
    head.fields_[field] = {offset, length};
  };
  if (!layout.locate(head_bytes, front.data() + kLargeHeaderBytes, shape->table_offset, keep)) return std::nullopt;
  return head;
}

bool LargeRecordHead::verify_table(std::span<const std::byte> table) const noexcept {
  if (table.size() != shape_.table_bytes()) return false;
  const auto entries = table.first(4 * shape_.chunk_count);
  return base::load_le<std::uint32_t>(table.data() + entries.size()) ==
         table_crc(salt_, id_, shape_.record_bytes, entries);
}

std::uint64_t LargeRecordHead::piece_bytes(std::uint64_t chunk) const noexcept {
  return std::min<std::uint64_t>(chunk_bytes_, shape_.table_offset - chunk * chunk_bytes_);
}

bool LargeRecordHead::verify_piece(std::span<const std::byte> table, std::uint64_t chunk,
                                   std::span<const std::byte> piece) const noexcept {
  DLFS_CHECK(chunk < shape_.chunk_count && table.size() == shape_.table_bytes());
  return piece.size() == piece_bytes(chunk) &&
         base::load_le<std::uint32_t>(table.data() + 4 * chunk) == base::crc32c(piece);
}

bool decode_large(const RecordLayout& layout, std::span<const std::byte> bytes, SampleId id,
                  std::span<FieldValue> fields) {
  DLFS_CHECK(fields.size() == layout.field_count());
  const auto head = LargeRecordHead::decode(layout, bytes, id, bytes.size());
  if (!head) return false;
  const LargeShape& shape = head->shape();
  const auto table = bytes.subspan(shape.table_offset, shape.table_bytes());
  if (!head->verify_table(table)) return false;
  for (std::uint64_t i = 0; i < shape.chunk_count; ++i) {
    if (!head->verify_piece(table, i, bytes.subspan(i * layout.chunk_bytes(), head->piece_bytes(i)))) return false;
  }
  for (std::size_t f = 0; f < fields.size(); ++f)
    fields[f] = bytes.subspan(head->field(f).offset_bytes, head->field(f).length_bytes);
  return true;
}

}  // namespace dlfs::layout
