// Any bytes as an encoded schema (as they are, and with length and sum made right) and as the text of a schema.
#include <algorithm>
#include <vector>

#include "fuzz_input.h"
#include "layout/format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlfs;
  const auto input = fuzz::bytes_of(data, size);
  (void)layout::decode_schema(input);
  if (size >= 28) {
    std::vector<std::byte> bytes(input.begin(), input.end());
    base::store_le<std::uint32_t>(bytes.data() + 12, static_cast<std::uint32_t>(size));
    base::store_le<std::uint32_t>(bytes.data() + size - 4, base::crc32c(std::span(bytes).first(size - 4)));
    const auto decoded = layout::decode_schema(bytes);
    if (decoded.ok()) DLFS_CHECK(layout::encode(*decoded) == bytes);
  }
  const auto parsed = layout::parse_schema({reinterpret_cast<const char*>(data), size});
  if (parsed.ok()) {
    DLFS_CHECK(layout::validate(*parsed).ok());
    const auto again = layout::parse_schema(parsed->to_string());
    DLFS_CHECK(again.ok() && *again == *parsed);
    DLFS_CHECK(*layout::decode_schema(layout::encode(*parsed)) == *parsed);
  }
  return 0;
}
