// Makes the index section from what a pack collected. Peak memory a sample: 18 bytes collected (10 without names), 16
// of the index, 4 of a sort and 1/2 of its counters.
#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/try.h"
#include "directory/directory.h"

namespace dlfs::directory {
namespace {

using base::make_error;
using layout::IndexSection;
using layout::Location;

constexpr unsigned kBlockShift = 16;
constexpr std::uint64_t kBlockEntries = std::uint64_t{1} << kBlockShift;
constexpr unsigned kLowLengthBits = 21;      // of the length, beside 43 bits of address
constexpr std::uint16_t kLargeBit = 0x8000;  // the length has 37 bits in all, so this one is free beside its upper 15

// 0..count-1 in the order of (key, id): spread by the keys' top bits into small parts, each sorted alone. Even keys
// make it linear; the worst keys make it n log n. Memory: 4 bytes a key and at most 1/2 for the parts.
template <class Key>
std::vector<std::uint32_t> sorted_by(std::uint64_t count, unsigned key_bits, const Key& key_of) {
  const unsigned part_bits = std::min(key_bits, static_cast<unsigned>(std::bit_width(count / 32)));
  const unsigned shift = key_bits - part_bits;
  const auto part_of = [&](std::uint64_t key) { return part_bits == 0 ? 0 : key >> shift; };
  std::vector<std::uint64_t> starts((std::uint64_t{1} << part_bits) + 1);
  for (std::uint64_t id = 0; id < count; ++id) ++starts[part_of(key_of(id)) + 1];
  for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  std::vector<std::uint32_t> order(count);
  for (std::uint64_t id = 0; id < count; ++id) order[starts[part_of(key_of(id))]++] = static_cast<std::uint32_t>(id);

  struct Entry {
    std::uint64_t key;
    std::uint32_t id;
    auto operator<=>(const Entry&) const = default;
  };
  constexpr std::size_t kSmall = 4096;
  std::vector<Entry> part;
  std::uint64_t begin = 0;  // starts[i] is now the end of part i
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto ids = std::span(order).subspan(begin, starts[i] - begin);
    begin = starts[i];
    if (ids.size() > kSmall) {
      std::sort(ids.begin(), ids.end(),
                [&](std::uint32_t a, std::uint32_t b) { return Entry{key_of(a), a} < Entry{key_of(b), b}; });
      continue;
    }
    part.clear();
    for (const std::uint32_t id : ids) part.push_back({key_of(id), id});
    std::sort(part.begin(), part.end());
    std::transform(part.begin(), part.end(), ids.begin(), [](const Entry& entry) { return entry.id; });
  }
  return order;
}

}  // namespace

// An entry that was never added has the length 0.
struct Builder::Block {
  std::array<std::uint64_t, kBlockEntries> address_and_low_length{};
  std::array<std::uint16_t, kBlockEntries> high_length{};
  std::unique_ptr<std::array<std::uint64_t, kBlockEntries>> hash;
};

struct Builder::Pending {
  layout::IndexHeader header;
  std::vector<std::byte> bytes;
  std::span<std::byte> section(IndexSection which) {
    const layout::Extent extent = header.section(which);
    return std::span(bytes).subspan(extent.offset_bytes, extent.length_bytes);
  }
};

Builder::Builder(std::uint32_t chunk_bytes, bool names) noexcept : chunk_bytes_(chunk_bytes), names_(names) {
  DLFS_CHECK(std::has_single_bit(chunk_bytes) && chunk_bytes >= layout::kMinChunkBytes &&
             chunk_bytes <= layout::kMaxChunkBytes);
}
Builder::~Builder() = default;

void Builder::add(SampleId id, Location at, std::uint64_t hash) {
  const std::uint64_t block_number = id.value >> kBlockShift;
  if (block_number >= blocks_.size()) blocks_.resize(block_number + 1);
  auto& block = blocks_[block_number];
  if (!block) {
    block = std::make_unique<Block>();
    if (names_) block->hash = std::make_unique<std::array<std::uint64_t, kBlockEntries>>();
  }
  const std::uint64_t chunk_end = (at.address_bytes & ~std::uint64_t{chunk_bytes_ - 1}) + chunk_bytes_;
  const bool placed = at.address_bytes < layout::kMaxDeviceBytes && at.address_bytes % layout::kRecordAlign == 0 &&
                      at.length_bytes >= layout::kMinRecordBytes &&
                      at.length_bytes < (std::uint64_t{1} << 36) + (std::uint64_t{1} << 35) &&
                      (at.large ? at.length_bytes > chunk_bytes_ && at.address_bytes % chunk_bytes_ == 0
                                : at.length_bytes <= chunk_end - at.address_bytes);
  const std::uint64_t i = id.value & (kBlockEntries - 1);
  if (!placed || block->address_and_low_length[i] != 0 || block->high_length[i] != 0) {
    misused_ = true;
    return;
  }
  block->address_and_low_length[i] =
      at.address_bytes / layout::kRecordAlign << kLowLengthBits | (at.length_bytes & ((1u << kLowLengthBits) - 1));
  block->high_length[i] = static_cast<std::uint16_t>(at.length_bytes >> kLowLengthBits | (at.large ? kLargeBit : 0));
  if (names_) (*block->hash)[i] = hash;
  ++count_;
}

void Builder::add_name_block(SampleId first_id) {
  if (name_blocks_.empty() ? first_id.value != 0 : first_id.value <= name_blocks_.back()) misused_ = true;
  name_blocks_.push_back(first_id.value);
}

Location Builder::location(std::uint64_t id) const noexcept {
  const Block& block = *blocks_[id >> kBlockShift];
  const std::uint64_t word = block.address_and_low_length[id & (kBlockEntries - 1)];
  const std::uint16_t high = block.high_length[id & (kBlockEntries - 1)];
  return {(word >> kLowLengthBits) * layout::kRecordAlign,
          (std::uint64_t{high} & (kLargeBit - 1u)) << kLowLengthBits | (word & ((1u << kLowLengthBits) - 1)),
          (high & kLargeBit) != 0};
}

std::uint64_t Builder::hash(std::uint64_t id) const noexcept {
  return (*blocks_[id >> kBlockShift]->hash)[id & (kBlockEntries - 1)];
}

Result<layout::IndexFacts> Builder::gather(const layout::Superblock& superblock) const {
  if (misused_)
    return make_error(Code::kInvalidArgument,
                      "a sample or name block was added twice, out of order or with an impossible location");
  layout::IndexFacts facts;
  facts.sample_count = count_;
  facts.data_bytes = superblock.data.length_bytes;
  facts.chunk_bytes = chunk_bytes_;
  facts.record_salt = superblock.record_salt;
  facts.names = names_;
  facts.name_block_count = name_blocks_.size();
  for (std::uint64_t id = 0; id < count_; ++id) {
    const bool there = id >> kBlockShift < blocks_.size() && blocks_[id >> kBlockShift] != nullptr;
    const Location at = there ? location(id) : Location{};
    if (at.length_bytes == 0)
      return make_error(Code::kInvalidArgument, "{} samples were added, but not sample {}", count_, id);
    if (at.address_bytes + at.length_bytes > facts.data_bytes) {
      return make_error(Code::kInvalidArgument, "sample {} ends at byte {} of a data area of {}", id,
                        at.address_bytes + at.length_bytes, facts.data_bytes);
    }
    facts.address_bits_used |= at.address_bytes;
    std::uint64_t& longest = at.large ? facts.longest_large_bytes : facts.longest_ordinary_bytes;
    longest = std::max(longest, at.length_bytes);
  }
  return facts;
}

void Builder::fill_locations(Pending& pending) const {
  const auto section = pending.section(IndexSection::kLocations);
  for (std::uint64_t id = 0; id < count_; ++id) layout::set_location(section, pending.header, id, location(id));
}

void Builder::fill_slots(Pending& pending) const {
  const auto address_units = [&](std::uint64_t id) { return location(id).address_bytes / layout::kRecordAlign; };
  const auto key_bits = static_cast<unsigned>(std::bit_width(pending.header.data_bytes / layout::kRecordAlign));
  const std::vector<std::uint32_t> order = sorted_by(count_, key_bits, address_units);
  const auto ids_by_slot = pending.section(IndexSection::kIdsBySlot);
  const auto unit_starts = pending.section(IndexSection::kUnitStarts);
  std::uint64_t last_chunk = ~std::uint64_t{0};
  for (std::uint64_t slot = 0; slot < count_; ++slot) {
    layout::packed_set(ids_by_slot, pending.header.id_bits, slot, order[slot]);
    const std::uint64_t chunk = location(order[slot]).address_bytes / chunk_bytes_;
    if (chunk == std::exchange(last_chunk, chunk)) continue;
    layout::packed_set(unit_starts, 1, slot, 1);
    ++pending.header.unit_count;
  }
}

void Builder::fill_names(Pending& pending) {
  const layout::IndexHeader& h = pending.header;
  const std::vector<std::uint32_t> order = sorted_by(count_, 64, [&](std::uint64_t id) { return hash(id); });
  const auto buckets = pending.section(IndexSection::kBuckets);
  const auto names_by_hash = pending.section(IndexSection::kNamesByHash);
  const std::uint64_t fingerprint_mask = (std::uint64_t{1} << h.fingerprint_bits) - 1;
  std::uint64_t next_bucket = 0;
  for (std::uint64_t i = 0; i < count_; ++i) {
    const std::uint64_t id = order[i], value = hash(id);
    const std::uint64_t bucket = h.bucket_bits == 0 ? 0 : value >> (64u - h.bucket_bits);
    for (; next_bucket <= bucket; ++next_bucket) layout::packed_set(buckets, h.bucket_start_bits, next_bucket, i);
    const unsigned below = 64u - h.bucket_bits - h.fingerprint_bits;
    const std::uint64_t fingerprint = h.fingerprint_bits == 0 ? 0 : value >> below & fingerprint_mask;
    layout::packed_set(names_by_hash, static_cast<unsigned>(h.id_bits) + h.fingerprint_bits, i,
                       fingerprint << h.id_bits | id);
    const bool same = (i > 0 && hash(order[i - 1]) == value) || (i + 1 < count_ && hash(order[i + 1]) == value);
    if (same && same_hash_.size() < kMaxSameHash) same_hash_.push_back({value, SampleId{order[i]}});
  }
  for (; next_bucket <= std::uint64_t{1} << h.bucket_bits; ++next_bucket)
    layout::packed_set(buckets, h.bucket_start_bits, next_bucket, count_);
  const auto name_blocks = pending.section(IndexSection::kNameBlocks);
  for (std::uint64_t i = 0; i < name_blocks_.size(); ++i)
    layout::packed_set(name_blocks, h.id_bits, i, name_blocks_[i]);
}

Result<std::vector<std::byte>> Builder::finish(const layout::Superblock& superblock) {
  DLFS_TRY_ASSIGN(const layout::IndexFacts facts, gather(superblock));
  if (names_ && (count_ == 0) != name_blocks_.empty())
    return make_error(Code::kInvalidArgument, "there are {} name blocks for {} names", name_blocks_.size(), count_);
  if (!name_blocks_.empty() && (!names_ || name_blocks_.back() >= count_))
    return make_error(Code::kInvalidArgument, "a name block starts behind the last sample");
  same_hash_.clear();
  Pending pending{layout::plan_index(facts), {}};
  pending.bytes.resize(pending.header.index_bytes());
  fill_locations(pending);
  fill_slots(pending);
  if (names_) fill_names(pending);
  blocks_.clear();
  name_blocks_.clear();
  count_ = 0;
  for (std::size_t i = 0; i < layout::kIndexSections; ++i) {
    pending.header.section_crcs[i] = base::crc32c(pending.section(static_cast<IndexSection>(i)));
  }
  const auto header = encode(pending.header);
  std::copy(header.begin(), header.end(), pending.bytes.begin());
  return std::move(pending.bytes);
}

}  // namespace dlfs::directory
