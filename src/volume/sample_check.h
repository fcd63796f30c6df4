// Does a sample fit the volume? Checked for every sample before anything of it is kept.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/types.h"
#include "layout/record.h"

namespace dlfs::volume {

// kInvalidArgument unless 1..4095 bytes without NUL.
Result<void> check_name(SampleId id, std::string_view name);

// One value a field, fixed ones of their size, text in UTF-8, all together at most 64 GiB: else kSchemaMismatch naming
// sample and field.
Result<void> check_fields(const layout::Schema& schema, SampleId id, std::string_view name,
                          std::span<const layout::FieldValue> fields);

// The same where field `streamed`, of `length_bytes`, is missing in `fields`. Streamed text is not looked into.
Result<void> check_stream_fields(const layout::Schema& schema, SampleId id, std::string_view name,
                                 std::span<const layout::FieldValue> fields, std::size_t streamed,
                                 std::uint64_t length_bytes);

// Where `bytes` stops being UTF-8; its size when all of it is.
std::size_t valid_utf8_bytes(std::span<const std::byte> bytes) noexcept;

}  // namespace dlfs::volume
