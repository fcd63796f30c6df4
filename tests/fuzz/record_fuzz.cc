// Any bytes as a record. The first byte chooses a schema; the rest is decoded as an ordinary and as a large record, as
// it is and with the sums made right (every sum, so that lengths and tables are reached).
#include <algorithm>
#include <string_view>
#include <vector>

#include "fuzz_input.h"
#include "layout/large_record.h"

namespace {

using namespace dlfs;

constexpr std::uint32_t kSalt = 7;
constexpr SampleId kId{1};
constexpr std::string_view kSchemas[] = {"a: bytes",
                                         "a: bytes, b: text",
                                         "a: int64",
                                         "a: bytes, b: uint8[3,5], c: text, d: float16",
                                         "a: uint8[70000], b: bytes",
                                         "a: bytes, b: bytes, c: bytes, d: bytes, e: bytes, f: int8, g: bytes"};

void touch_all(std::span<const layout::FieldValue> fields) {
  for (const auto field : fields) fuzz::touch(field);
}

void ordinary(const layout::RecordLayout& layout, std::vector<std::byte> record) {
  std::vector<layout::FieldValue> fields(layout.field_count());
  if (layout.decode(record, kId, fields)) touch_all(fields);
  if (record.size() < 8) return;
  base::store_le<std::uint32_t>(record.data() + 4, kId.value);
  std::byte prefix[12];
  base::store_le<std::uint32_t>(prefix, kSalt);
  base::store_le<std::uint64_t>(prefix + 4, record.size());
  base::store_le<std::uint32_t>(record.data(), base::crc32c(std::span(record).subspan(4), base::crc32c(prefix)));
  const bool decoded = layout.decode(record, kId, fields);
  DLFS_CHECK(decoded == layout.decode_unverified(record, kId, fields));  // the sum was made right
  if (decoded) touch_all(fields);
}

// The input stands for a long record: its front, zeros, and its last 32 bytes.
void large(const layout::RecordLayout& layout, std::span<const std::byte> input) {
  std::vector<layout::FieldValue> fields(layout.field_count());
  if (decode_large(layout, input, kId, fields)) touch_all(fields);
  if (input.size() < 48) return;
  const std::size_t size = 65'536 + base::load_le<std::uint16_t>(input.data()) * 3;
  std::vector<std::byte> record(size);
  std::ranges::copy(input.first(std::min(input.size(), size)), record.begin());
  base::store_le<std::uint32_t>(record.data() + 4, kId.value);
  base::store_le<std::uint64_t>(record.data() + 8, size);
  const std::size_t head_bytes = layout::LargeRecordHead::bytes_needed(layout);
  std::byte salt[4];
  base::store_le<std::uint32_t>(salt, kSalt);
  base::store_le<std::uint32_t>(record.data(),
                                base::crc32c(std::span(record).subspan(4, head_bytes - 4), base::crc32c(salt)));
  const auto head = layout::LargeRecordHead::decode(layout, record, kId, size);
  if (!head) return;
  const layout::LargeShape& shape = head->shape();
  DLFS_CHECK(shape.record_bytes == size && shape.table_offset + shape.table_bytes() == size);
  const auto table = std::span(record).subspan(shape.table_offset, shape.table_bytes());
  DLFS_CHECK(!head->verify_table(table.first(table.size() - 1)));
  for (std::uint64_t i = 0; i < shape.chunk_count; ++i) {
    const auto piece = std::span(record).subspan(i * layout.chunk_bytes(), head->piece_bytes(i));
    base::store_le<std::uint32_t>(table.data() + 4 * i, base::crc32c(piece));
    DLFS_CHECK(head->verify_piece(table, i, piece));
  }
  for (std::size_t f = 0; f < layout.field_count(); ++f)
    fuzz::touch(std::span(record).subspan(head->field(f).offset_bytes, head->field(f).length_bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto schema = layout::parse_schema(kSchemas[data[0] % std::size(kSchemas)]);
  const layout::RecordLayout layout(schema.value(), layout::kMinChunkBytes, kSalt);
  const auto input = fuzz::bytes_of(data + 1, size - 1);
  ordinary(layout, {input.begin(), input.end()});
  large(layout, input);
  return 0;
}
