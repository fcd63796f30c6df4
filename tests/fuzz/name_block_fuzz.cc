// Any bytes as a name block, as they are and (cut or filled to the block's size) with the sum made right.
#include <algorithm>
#include <vector>

#include "fuzz_input.h"
#include "layout/name_block.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlfs;
  constexpr std::uint32_t kSalt = 7;
  const auto input = fuzz::bytes_of(data, size);
  (void)layout::NameBlock::decode(input, kSalt);
  std::vector<std::byte> block(layout::kNameBlockBytes);
  std::copy_n(input.begin(), std::min<std::size_t>(size, block.size()), block.begin());
  std::byte salt[4];
  base::store_le<std::uint32_t>(salt, kSalt);
  base::store_le<std::uint32_t>(block.data() + 4, base::crc32c(std::span(block).subspan(8), base::crc32c(salt)));
  const auto decoded = layout::NameBlock::decode(block, kSalt);
  if (!decoded.ok()) return 0;
  layout::NameBlockBuilder builder(kSalt);
  for (std::size_t i = 0; i < decoded->count(); ++i) {
    DLFS_CHECK(builder.add(SampleId{decoded->first_id().value + static_cast<std::uint32_t>(i)}, decoded->name(i)));
  }
  std::vector<std::byte> again(block.size());
  builder.finish(again);
  DLFS_CHECK(again == block);  // there is one way to write the same names
  return 0;
}
