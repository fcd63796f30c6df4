#include "volume/sample_check.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "base/try.h"

namespace dlfs::volume {
namespace {

using layout::Field;
using layout::FieldValue;
using layout::Schema;

std::string sample_text(SampleId id, std::string_view name) {
  return name.empty() ? fmt::format("sample {}", id.value)
                      : fmt::format("sample {} ('{}')", id.value, base::escape(name));
}

// Length of the UTF-8 sequence at the front, 0 when there is none (RFC 3629: no overlong forms, no surrogates).
std::size_t sequence_bytes(std::span<const std::byte> bytes) noexcept {
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(bytes[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() < length) return 0;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

Result<void> check_value(const Field& field, SampleId id, std::string_view name, FieldValue value) {
  if (field.fixed() && value.size() != field.fixed_bytes()) {
    return base::make_error(Code::kSchemaMismatch, "{}: field '{}' takes {} bytes of {}, {} were given",
                            sample_text(id, name), field.name, field.fixed_bytes(), layout::dtype_name(field.dtype),
                            value.size());
  }
  if (field.kind != layout::Kind::kText) return {};
  if (const std::size_t valid = valid_utf8_bytes(value); valid != value.size()) {
    return base::make_error(Code::kSchemaMismatch,
                            "{}: field '{}' is text, but its byte {} is not UTF-8; declare it as bytes or convert it",
                            sample_text(id, name), field.name, valid);
  }
  return {};
}

Result<void> check_total(SampleId id, std::string_view name, std::uint64_t total) {
  if (total <= layout::kMaxSampleBytes) return {};
  return base::make_error(Code::kSchemaMismatch, "{} has {} bytes; a sample has at most {} (64 GiB)",
                          sample_text(id, name), total, layout::kMaxSampleBytes);
}

Result<void> check_count(const Schema& schema, SampleId id, std::string_view name, std::size_t given,
                         std::size_t expected) {
  if (given == expected) return {};
  return base::make_error(Code::kSchemaMismatch, "{}: {} fields were given, {} are expected (the schema is '{}')",
                          sample_text(id, name), given, expected, schema.to_string());
}

}  // namespace

Result<void> check_name(SampleId id, std::string_view name) {
  if (name.empty()) {
    return base::make_error(Code::kInvalidArgument,
                            "sample {} has no name; give it one of 1 to {} bytes, or pack without names", id.value,
                            layout::kMaxNameBytes);
  }
  if (name.size() > layout::kMaxNameBytes) {
    return base::make_error(Code::kInvalidArgument,
                            "the name of sample {} has {} bytes; at most {} are possible (it begins '{}')", id.value,
                            name.size(), layout::kMaxNameBytes, base::escape(name.substr(0, 60)));
  }
  if (name.find('\0') != std::string_view::npos) {
    return base::make_error(Code::kInvalidArgument,
                            "the name of sample {} ('{}') holds a NUL byte; any other byte is possible", id.value,
                            base::escape(name.substr(0, 200)));
  }
  return {};
}

Result<void> check_fields(const Schema& schema, SampleId id, std::string_view name,
                          std::span<const FieldValue> fields) {
  DLFS_TRY(check_count(schema, id, name, fields.size(), schema.fields.size()));
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    DLFS_TRY(check_value(schema.fields[i], id, name, fields[i]));
    total += fields[i].size();
  }
  return check_total(id, name, total);
}

Result<void> check_stream_fields(const Schema& schema, SampleId id, std::string_view name,
                                 std::span<const FieldValue> fields, std::size_t streamed, std::uint64_t length_bytes) {
  DLFS_TRY(check_count(schema, id, name, fields.size(), schema.fields.size() - 1));
  DLFS_TRY(check_total(id, name, length_bytes));
  std::uint64_t total = length_bytes;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    DLFS_TRY(check_value(schema.fields[i < streamed ? i : i + 1], id, name, fields[i]));
    total += fields[i].size();
  }
  return check_total(id, name, total);
}

std::size_t valid_utf8_bytes(std::span<const std::byte> bytes) noexcept {
  std::size_t position = 0;
  while (position < bytes.size()) {
    if (bytes.size() - position >= 8) {  // eight bytes of ASCII at once
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + position, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        position += 8;
        continue;
      }
    }
    const std::size_t length = sequence_bytes(bytes.subspan(position));
    if (length == 0) break;
    position += length;
  }
  return position;
}

}  // namespace dlfs::volume
