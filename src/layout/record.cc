#include "layout/record.h"

#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "layout/large_record.h"

namespace dlfs::layout {
namespace {

constexpr std::uint64_t align_up(std::uint64_t value) {
  return (value + (kRecordAlign - 1)) & ~std::uint64_t{kRecordAlign - 1};
}

std::uint32_t record_crc(std::uint32_t salt, std::span<const std::byte> record) {
  std::byte prefix[12];
  base::store_le<std::uint32_t>(prefix, salt);
  base::store_le<std::uint64_t>(prefix + 4, record.size());
  return base::crc32c(record.subspan(4), base::crc32c(prefix));
}

}  // namespace

RecordLayout::RecordLayout(const Schema& schema, std::uint32_t chunk_bytes, std::uint32_t salt)
    : chunk_bytes_(chunk_bytes), salt_(salt) {
  std::size_t variable = 0;
  for (const Field& field : schema.fields) {
    fixed_.push_back(field.fixed() ? field.fixed_bytes() : kVariable);
    variable += field.fixed() ? 0 : 1;
  }
  stored_lengths_ = variable == 0 ? 0 : variable - 1;
  for (const bool fixed : {true, false}) {
    for (std::size_t i = 0; i < fixed_.size(); ++i) {
      if ((fixed_[i] != kVariable) == fixed) media_order_.push_back(static_cast<std::uint32_t>(i));
    }
  }
}

std::uint64_t RecordLayout::place(std::uint64_t head_bytes, std::span<const std::uint64_t> field_lengths,
                                  std::span<std::uint64_t> offsets) const noexcept {
  std::uint64_t position = head_bytes;
  for (const std::uint32_t field : media_order_) {
    position = align_up(position);
    if (!offsets.empty()) offsets[field] = position;
    position += field_lengths[field];
  }
  return position;
}

std::uint64_t RecordLayout::record_bytes(std::span<const std::uint64_t> field_lengths) const noexcept {
  DLFS_CHECK(field_lengths.size() == fixed_.size());
  const std::uint64_t ordinary = place(kRecordHeaderBytes + 8 * stored_lengths_, field_lengths, {});
  if (ordinary <= chunk_bytes_) return ordinary;
  const std::uint64_t body = place(kLargeHeaderBytes + 8 * stored_lengths_, field_lengths, {});
  return LargeShape::of_body(body, chunk_bytes_).record_bytes;
}

void RecordLayout::encode(SampleId id, std::span<const FieldValue> fields, std::span<std::byte> into) const noexcept {
  DLFS_CHECK(fields.size() == fixed_.size() && into.size() <= chunk_bytes_);
  const std::uint64_t head = kRecordHeaderBytes + 8 * stored_lengths_;
  DLFS_CHECK(into.size() >= head);
  base::store_le<std::uint32_t>(into.data() + 4, id.value);
  std::uint64_t stored_at = kRecordHeaderBytes;
  std::uint64_t position = head;
  for (const std::uint32_t field : media_order_) {
    const FieldValue value = fields[field];
    DLFS_CHECK(fixed_[field] == kVariable || fixed_[field] == value.size());
    if (fixed_[field] == kVariable && stored_at < head) {
      base::store_le<std::uint64_t>(into.data() + stored_at, value.size());
      stored_at += 8;
    }
    const std::uint64_t begin = align_up(position);
    DLFS_CHECK(begin <= into.size() && value.size() <= into.size() - begin);
    std::memset(into.data() + position, 0, begin - position);
    if (!value.empty()) std::memcpy(into.data() + begin, value.data(), value.size());
    position = begin + value.size();
  }
  DLFS_CHECK(position == into.size());
  base::store_le<std::uint32_t>(into.data(), record_crc(salt_, into));
}

bool RecordLayout::decode(std::span<const std::byte> record, SampleId id, std::span<FieldValue> fields) const noexcept {
  if (record.size() < kRecordHeaderBytes) return false;
  if (base::load_le<std::uint32_t>(record.data()) != record_crc(salt_, record)) return false;
  return decode_unverified(record, id, fields);
}

bool RecordLayout::decode_unverified(std::span<const std::byte> record, SampleId id,
                                     std::span<FieldValue> fields) const noexcept {
  DLFS_CHECK(fields.size() == fixed_.size());
  const std::uint64_t head = kRecordHeaderBytes + 8 * stored_lengths_;
  if (record.size() < head || record.size() > chunk_bytes_) return false;
  if (base::load_le<std::uint32_t>(record.data() + 4) != id.value) return false;
  return locate(head, record.data() + kRecordHeaderBytes, record.size(),
                [&](std::uint32_t field, std::uint64_t offset, std::uint64_t length) {
                  fields[field] = record.subspan(offset, length);
                });
}

}  // namespace dlfs::layout
