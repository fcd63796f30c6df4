#include "layout/name_block.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/error.h"

namespace dlfs::layout {
namespace {

constexpr std::uint32_t kMagic = 0x424E4C44;  // "DLNB"
constexpr std::size_t kHeaderBytes = 16;
static_assert(kHeaderBytes + 2 + kMaxNameBytes <= kNameBlockBytes);
static_assert(kNameBlockBytes <= 65536);  // ends are 16 bits

std::uint32_t block_crc(std::span<const std::byte> block, std::uint32_t salt) {
  std::byte prefix[4];
  base::store_le<std::uint32_t>(prefix, salt);
  return base::crc32c(block.subspan(8), base::crc32c(prefix));
}

std::size_t end_of(const std::byte* block, std::size_t i) {
  return base::load_le<std::uint16_t>(block + kHeaderBytes + 2 * i);
}

Error corrupt(std::string what) { return base::make_error(Code::kCorrupt, "the name block is damaged: {}", what); }

}  // namespace

bool NameBlockBuilder::add(SampleId id, std::string_view name) {
  DLFS_CHECK(name.size() <= kMaxNameBytes);
  DLFS_CHECK(ends_.empty() || std::uint64_t{id.value} == std::uint64_t{first_id_.value} + ends_.size());
  if (kHeaderBytes + 2 * (ends_.size() + 1) + names_.size() + name.size() > kNameBlockBytes) return false;
  if (ends_.empty()) first_id_ = id;
  names_ += name;
  ends_.push_back(static_cast<std::uint16_t>(names_.size()));
  return true;
}

void NameBlockBuilder::finish(std::span<std::byte> into) noexcept {
  DLFS_CHECK(into.size() == kNameBlockBytes && !ends_.empty());
  std::memset(into.data(), 0, into.size());
  base::store_le<std::uint32_t>(into.data(), kMagic);
  base::store_le<std::uint32_t>(into.data() + 8, first_id_.value);
  base::store_le<std::uint16_t>(into.data() + 12, static_cast<std::uint16_t>(ends_.size()));
  for (std::size_t i = 0; i < ends_.size(); ++i)
    base::store_le<std::uint16_t>(into.data() + kHeaderBytes + 2 * i, ends_[i]);
  if (!names_.empty()) std::memcpy(into.data() + kHeaderBytes + 2 * ends_.size(), names_.data(), names_.size());
  base::store_le<std::uint32_t>(into.data() + 4, block_crc(into, salt_));
  ends_.clear();
  names_.clear();
}

Result<NameBlock> NameBlock::decode(std::span<const std::byte> bytes, std::uint32_t salt) {
  if (bytes.size() != kNameBlockBytes)
    return corrupt(fmt::format("it is {} bytes long, not {}", bytes.size(), kNameBlockBytes));
  if (base::load_le<std::uint32_t>(bytes.data()) != kMagic) return corrupt("its magic is wrong");
  if (base::load_le<std::uint32_t>(bytes.data() + 4) != block_crc(bytes, salt))
    return corrupt("its CRC does not match");
  const SampleId first{base::load_le<std::uint32_t>(bytes.data() + 8)};
  const std::size_t count = base::load_le<std::uint16_t>(bytes.data() + 12);
  if (base::load_le<std::uint16_t>(bytes.data() + 14) != 0) return corrupt("a reserved byte is not zero");
  if (count == 0 || kHeaderBytes + 2 * count > bytes.size())
    return corrupt(fmt::format("it cannot hold {} names", count));
  if (first.value > ~std::uint32_t{0} - (count - 1)) return corrupt("its ids go beyond 2^32");
  const std::size_t room = bytes.size() - kHeaderBytes - 2 * count;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = end_of(bytes.data(), i);
    if (end < begin || end > room || end - begin > kMaxNameBytes)
      return corrupt(fmt::format("name {} has an impossible length", i));
    begin = end;
  }
  const auto rest = bytes.subspan(kHeaderBytes + 2 * count + begin);
  if (!std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return corrupt("the bytes behind the last name are not zero");
  }
  return NameBlock(bytes, first, count);
}

std::string_view NameBlock::name(std::size_t i) const noexcept {
  const std::size_t begin = i == 0 ? 0 : end_of(bytes_.data(), i - 1);
  const std::size_t end = end_of(bytes_.data(), i);
  const auto* names = reinterpret_cast<const char*>(bytes_.data()) + kHeaderBytes + 2 * count_;
  return {names + begin, end - begin};
}

}  // namespace dlfs::layout
