#include "reader/batch_body.h"

#include <algorithm>
#include <cstring>

#include "base/types.h"
#include "layout/large_record.h"

namespace dlfs::reader {
namespace {

// Records lie anywhere in the cache, and processors see where a copy goes only page by page: half of the time of
// copying 4 KiB samples together was waiting for their first lines.
void prefetch(layout::FieldValue bytes) noexcept {
  constexpr std::size_t kLine = 64, kMost = 4096;
  for (std::size_t at = 0; at < std::min(bytes.size(), kMost); at += kLine) __builtin_prefetch(bytes.data() + at);
}

void locate_record(const layout::RecordLayout& layout, const RecordView& view, SampleId id,
                   std::span<layout::FieldValue> fields) {
  const std::span record(view.data, view.length);
  if (!layout.large(view.length)) {
    if (!layout.decode_unverified(record, id, fields)) std::ranges::fill(fields, layout::FieldValue());
    return;
  }
  const auto head = layout::LargeRecordHead::decode(layout, record, id, view.length);
  for (std::size_t f = 0; f < fields.size(); ++f) {
    fields[f] = head ? record.subspan(head->field(f).offset_bytes, head->field(f).length_bytes) : layout::FieldValue();
  }
}

}  // namespace

void locate_fields(const layout::RecordLayout& layout, BatchBody& body) {
  const std::size_t width = layout.field_count();
  body.fields.resize(body.size() * width);
  constexpr std::size_t kAhead = 8;  // records lie anywhere in the cache: hide the misses behind each other
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (i + kAhead < body.size()) __builtin_prefetch(body.records[i + kAhead].data);
    locate_record(layout, body.records[i], SampleId{body.ids[i]}, std::span(body.fields).subspan(i * width, width));
  }
  body.located = true;
}

std::uint64_t gather_field(const BatchBody& body, std::size_t field_count, std::size_t field, std::span<std::byte> into,
                           std::span<std::uint64_t> offsets) noexcept {
  const auto value = [&](std::size_t i) { return body.fields[i * field_count + field]; };
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (i < offsets.size()) offsets[i] = total;
    total += value(i).size();
  }
  if (body.size() < offsets.size()) offsets[body.size()] = total;
  if (into.size() < total) return total;
  std::byte* to = into.data();
  for (std::size_t i = 0; i < body.size(); ++i) {
    const layout::FieldValue bytes = value(i);
    if (i + 1 < body.size()) prefetch(value(i + 1));
    if (bytes.empty()) continue;
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
  return total;
}

}  // namespace dlfs::reader
