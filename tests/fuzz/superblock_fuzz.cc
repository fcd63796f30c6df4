// Any bytes as a superblock, as they are and with the sum made right. What decodes encodes to the same bytes.
#include <algorithm>
#include <vector>

#include "fuzz_input.h"
#include "layout/format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlfs;
  (void)layout::decode_superblock(fuzz::bytes_of(data, size));
  std::vector<std::byte> bytes(layout::kSuperblockBytes);
  const std::size_t crc_at = bytes.size() - 4;
  std::copy_n(fuzz::bytes_of(data, size).begin(), std::min(size, crc_at), bytes.begin());
  base::store_le<std::uint32_t>(bytes.data() + crc_at, base::crc32c(std::span(bytes).first(crc_at)));
  const auto decoded = layout::decode_superblock(bytes);
  if (decoded.ok()) DLFS_CHECK(std::ranges::equal(layout::encode(*decoded), bytes));
  return 0;
}
