#include "directory/directory.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/try.h"

namespace dlfs::directory {
namespace {

using base::make_error;
using layout::IndexSection;
using layout::Location;

constexpr std::uint64_t kAhead = 48;  // entries fetched ahead of their use: some 2 ns each against 100 ns of memory

template <class... Args>
Error corrupt(IndexSection section, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(Code::kCorrupt, "the index is damaged: section {}: {}", layout::index_section_name(section),
                    fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

std::uint64_t name_hash(std::string_view name, std::uint32_t salt) noexcept {
  return XXH3_64bits_withSeed(name.data(), name.size(), salt);
}

struct Directory::Impl {
  base::Arena arena;
  layout::IndexHeader header;
  layout::LocationArray locations;
  layout::PackedArray ids_by_slot, bucket_starts, names_by_hash, name_blocks;
  const std::byte* unit_starts = nullptr;
  std::uint64_t n = 0;
  std::uint64_t units_per_sample = 1;  // first_slots has every units_per_sample-th unit
  std::vector<std::uint32_t> first_slots;
  // Cut out of a hash by candidates().
  unsigned bucket_shift = 0, fingerprint_shift = 0;
  std::uint64_t fingerprint_mask = 0, id_mask = 0;

  std::span<const std::byte> section(IndexSection which) const {
    const layout::Extent extent = header.section(which);
    return arena.bytes().subspan(extent.offset_bytes, extent.length_bytes);
  }
  std::uint64_t unit_word(std::uint64_t i) const noexcept { return base::load_le<std::uint64_t>(unit_starts + 8 * i); }

  Result<void> check_sums(const layout::Superblock& superblock) const;
  Result<void> check_gaps(std::uint64_t index_bytes) const;
  Result<void> check_placement() const;
  Result<void> check_names() const;
  void map_sections();
  void sample_units();
  std::uint64_t bucket_of(std::uint64_t hash) const noexcept {
    return header.bucket_bits == 0 ? 0 : hash >> bucket_shift;
  }
  std::uint64_t fingerprint_of(std::uint64_t hash) const noexcept {
    return header.fingerprint_bits == 0 ? 0 : hash >> fingerprint_shift & fingerprint_mask;
  }
  std::uint64_t fingerprint_at(std::uint64_t i) const noexcept { return names_by_hash[i] >> header.id_bits; }
  std::uint64_t lower_bound(std::uint64_t begin, std::uint64_t end, std::uint64_t fingerprint) const noexcept;
};

// The whole index has one sum, in the superblock; the sums of sections say where the damage is.
Result<void> Directory::Impl::check_sums(const layout::Superblock& superblock) const {
  const auto bytes = arena.bytes().first(superblock.index.length_bytes);
  if (base::crc32c(bytes) == superblock.index.crc) return {};
  for (std::size_t i = 0; i < layout::kIndexSections; ++i) {
    const auto which = static_cast<IndexSection>(i);
    if (base::crc32c(section(which)) != header.section_crcs[i]) {
      return corrupt(which, "bytes {} to {} of the index do not match their CRC", header.section(which).offset_bytes,
                     header.section(which).offset_bytes + header.section(which).length_bytes);
    }
  }
  return make_error(Code::kCorrupt, "the index is damaged: its CRC does not match the superblock's");
}

Result<void> Directory::Impl::check_gaps(std::uint64_t index_bytes) const {
  for (std::size_t i = 0; i < layout::kIndexSections; ++i) {
    const layout::Extent extent = header.section(static_cast<IndexSection>(i));
    const std::uint64_t end = extent.offset_bytes + extent.length_bytes;
    const std::uint64_t next =
        i + 1 < layout::kIndexSections ? header.section(static_cast<IndexSection>(i + 1)).offset_bytes : index_bytes;
    const auto gap = arena.bytes().subspan(end, next - end);
    if (!std::all_of(gap.begin(), gap.end(), [](std::byte b) { return b == std::byte{0}; })) {
      return corrupt(static_cast<IndexSection>(i), "the bytes behind it are not zero");
    }
  }
  return {};
}

void Directory::Impl::map_sections() {
  n = header.sample_count;
  locations = layout::LocationArray(section(IndexSection::kLocations), header);
  ids_by_slot = layout::PackedArray(section(IndexSection::kIdsBySlot), header.id_bits);
  unit_starts = section(IndexSection::kUnitStarts).data();
  id_mask = (std::uint64_t{1} << header.id_bits) - 1;
  if (!header.names) return;
  bucket_starts = layout::PackedArray(section(IndexSection::kBuckets), header.bucket_start_bits);
  names_by_hash = layout::PackedArray(section(IndexSection::kNamesByHash),
                                      static_cast<unsigned>(header.id_bits) + header.fingerprint_bits);
  name_blocks = layout::PackedArray(section(IndexSection::kNameBlocks), header.id_bits);
  bucket_shift = 64u - header.bucket_bits;
  fingerprint_shift = 64u - header.bucket_bits - header.fingerprint_bits;
  fingerprint_mask = (std::uint64_t{1} << header.fingerprint_bits) - 1;
}

// One walk in placement order proves that locations lie inside the data area, do not overlap and keep to chunks, that
// ids_by_slot is a permutation (addresses ascend strictly, so no id comes twice), and that unit_starts says what the
// locations say.
Result<void> Directory::Impl::check_placement() const {
  const std::uint64_t chunk_bytes = header.chunk_bytes;
  const unsigned chunk_shift = static_cast<unsigned>(std::countr_zero(chunk_bytes));
  std::uint64_t free_from = 0, last_chunk = ~std::uint64_t{0}, word = 0, units = 0;
  for (std::uint64_t slot = 0; slot < n; ++slot) {
    if (slot + kAhead < n) locations.prefetch(std::min(ids_by_slot[slot + kAhead], n - 1));
    const std::uint64_t id = ids_by_slot[slot];
    if (id >= n)
      return corrupt(IndexSection::kIdsBySlot, "slot {} holds id {}, but there are only {} samples", slot, id, n);
    const Location at = locations[id];
    if (at.length_bytes < layout::kMinRecordBytes)
      return corrupt(IndexSection::kLocations, "sample {} has no length", id);
    const std::uint64_t begin = at.address_bytes;
    const std::uint64_t first_chunk = begin >> chunk_shift;
    std::uint64_t end = begin + at.length_bytes;
    if (at.large) end = (end + (chunk_bytes - 1)) & ~(chunk_bytes - 1);
    if (begin < free_from)
      return corrupt(IndexSection::kIdsBySlot, "slot {} (sample {}) lies before the end of the slot before it", slot,
                     id);
    if (end > header.data_bytes) return corrupt(IndexSection::kLocations, "sample {} ends behind the data area", id);
    const bool fits_chunks =
        at.large ? begin % chunk_bytes == 0 && at.length_bytes > chunk_bytes : first_chunk == (end - 1) >> chunk_shift;
    if (!fits_chunks) return corrupt(IndexSection::kLocations, "sample {} does not keep to chunks", id);
    const std::uint64_t starts = first_chunk != last_chunk ? 1 : 0;
    word |= starts << (slot % 64);
    units += starts;
    if (slot % 64 == 63 || slot + 1 == n) {
      if (unit_word(slot / 64) != word)
        return corrupt(IndexSection::kUnitStarts, "the units of slots {} to {} do not fit the locations",
                       slot / 64 * 64, slot);
      word = 0;
    }
    free_from = end;
    last_chunk = (end - 1) >> chunk_shift;
  }
  if (units != header.unit_count)
    return corrupt(IndexSection::kUnitStarts, "there are {} units, but the header says {}", units, header.unit_count);
  return {};
}

Result<void> Directory::Impl::check_names() const {
  if (!header.names) return {};
  const std::uint64_t buckets = std::uint64_t{1} << header.bucket_bits;
  for (std::uint64_t i = 0, previous = 0; i <= buckets; ++i) {
    const std::uint64_t start = bucket_starts[i];
    if (start < previous || start > n || (i == 0 && start != 0))
      return corrupt(IndexSection::kBuckets, "bucket {} starts at entry {}", i, start);
    previous = start;
  }
  if (bucket_starts[buckets] != n)
    return corrupt(IndexSection::kBuckets, "the last bucket ends at entry {}, not {}", bucket_starts[buckets], n);
  for (std::uint64_t i = 0; i < n; ++i) {
    if ((names_by_hash[i] & id_mask) >= n)
      return corrupt(IndexSection::kNamesByHash, "entry {} holds an id that does not exist", i);
  }
  const std::uint64_t blocks = header.name_block_count;
  if ((n == 0) != (blocks == 0))
    return corrupt(IndexSection::kNameBlocks, "there are {} blocks for {} names", blocks, n);
  for (std::uint64_t i = 0, next = 0; i < blocks; ++i) {
    const std::uint64_t first = name_blocks[i];
    if (i == 0 ? first != 0 : first < next || first >= n)
      return corrupt(IndexSection::kNameBlocks, "block {} starts at id {}", i, first);
    next = first + 1;
  }
  return {};
}

// At most 1/64 byte a sample: every unit where units hold hundreds of samples, every 256th where each sample is one.
void Directory::Impl::sample_units() {
  const std::uint64_t units = header.unit_count;
  if (units == 0) return;
  units_per_sample = std::max<std::uint64_t>(1, (256 * units + n - 1) / n);
  first_slots.reserve((units + units_per_sample - 1) / units_per_sample);
  std::uint64_t unit = 0;
  for (std::uint64_t i = 0; i * 64 < n; ++i) {
    for (std::uint64_t word = unit_word(i); word != 0; word &= word - 1, ++unit) {
      if (unit % units_per_sample == 0)
        first_slots.push_back(static_cast<std::uint32_t>(i * 64 + static_cast<std::uint64_t>(std::countr_zero(word))));
    }
  }
}

Directory::Directory(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<Directory> Directory::load(base::Arena index, const layout::Superblock& superblock) {
  const std::uint64_t index_bytes = superblock.index.length_bytes;
  if (index_bytes > index.bytes().size()) {
    return make_error(Code::kCorrupt, "the index is cut off: {} of {} bytes are there", index.bytes().size(),
                      index_bytes);
  }
  auto impl = std::make_shared<Impl>();
  DLFS_TRY_ASSIGN(impl->header, layout::decode_index_header(index.bytes().first(index_bytes), index_bytes));
  const layout::IndexHeader& h = impl->header;
  if (h.sample_count != superblock.sample_count || h.data_bytes != superblock.data.length_bytes ||
      h.chunk_bytes != superblock.chunk_bytes || h.record_salt != superblock.record_salt) {
    return make_error(Code::kCorrupt, "the index is damaged: its header does not belong to this superblock");
  }
  impl->arena = std::move(index);
  DLFS_TRY(impl->check_sums(superblock));
  DLFS_TRY(impl->check_gaps(index_bytes));
  impl->map_sections();
  DLFS_TRY(impl->check_placement());
  DLFS_TRY(impl->check_names());
  impl->sample_units();
  return Directory(std::move(impl));
}

std::uint64_t Directory::sample_count() const noexcept { return impl_->n; }
const layout::IndexHeader& Directory::header() const noexcept { return impl_->header; }
base::PageKind Directory::page_kind() const noexcept { return impl_->arena.page_kind(); }

std::uint64_t Directory::resident_bytes() const noexcept {
  return impl_->arena.bytes().size() + impl_->first_slots.capacity() * sizeof(std::uint32_t) + sizeof(Impl);
}

Location Directory::location(SampleId id) const noexcept { return impl_->locations[id.value]; }

SampleId Directory::id_of(Slot slot) const noexcept {
  return SampleId{static_cast<std::uint32_t>(impl_->ids_by_slot[slot.value])};
}

void Directory::locations(std::span<const std::uint32_t> ids, std::span<Location> out) const noexcept {
  const layout::LocationArray& from = impl_->locations;
  for (std::size_t i = 0; i < std::min<std::size_t>(kAhead, ids.size()); ++i) from.prefetch(ids[i]);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i + kAhead < ids.size()) from.prefetch(ids[i + kAhead]);
    out[i] = from[ids[i]];
  }
}

std::uint64_t Directory::unit_count() const noexcept { return impl_->header.unit_count; }

std::uint64_t Directory::first_slot(std::uint64_t unit) const noexcept {
  const Impl& d = *impl_;
  if (unit >= d.header.unit_count) return d.n;
  const std::uint64_t base = d.first_slots[unit / d.units_per_sample];
  std::uint64_t left = unit % d.units_per_sample;  // set bits to pass behind that of `base`
  if (left == 0) return base;
  std::uint64_t i = base / 64;
  std::uint64_t word = d.unit_word(i) & ~std::uint64_t{0} << (base % 64);
  for (auto here = static_cast<std::uint64_t>(std::popcount(word)); here <= left;
       here = static_cast<std::uint64_t>(std::popcount(word))) {
    left -= here;
    word = d.unit_word(++i);
  }
  for (; left > 0; --left) word &= word - 1;
  return i * 64 + static_cast<std::uint64_t>(std::countr_zero(word));
}

std::uint64_t Directory::unit_of(Slot slot) const noexcept {
  const Impl& d = *impl_;
  const auto above = std::upper_bound(d.first_slots.begin(), d.first_slots.end(), slot.value);
  const auto sample = static_cast<std::uint64_t>(above - d.first_slots.begin()) - 1;
  const std::uint64_t base = d.first_slots[sample];
  std::uint64_t unit = sample * d.units_per_sample;
  std::uint64_t i = base / 64;
  const std::uint64_t last = slot.value / 64;
  std::uint64_t word = d.unit_word(i) & ~std::uint64_t{0} << (base % 64);
  for (; i < last; word = d.unit_word(++i)) unit += static_cast<std::uint64_t>(std::popcount(word));
  word &= ~std::uint64_t{0} >> (63 - slot.value % 64);
  return unit + static_cast<std::uint64_t>(std::popcount(word)) - 1;
}

bool Directory::has_names() const noexcept { return impl_->header.names; }

// First entry in [begin, end) whose fingerprint is not below. Fingerprints of a bucket are sorted and, being hash bits,
// evenly spread: the guess is off by a few entries, which lie in the same or the next cache line.
std::uint64_t Directory::Impl::lower_bound(std::uint64_t begin, std::uint64_t end,
                                           std::uint64_t fingerprint) const noexcept {
  std::uint64_t i = begin + (fingerprint * (end - begin) >> header.fingerprint_bits);
  while (i > begin && fingerprint_at(i - 1) >= fingerprint) --i;
  while (i < end && fingerprint_at(i) < fingerprint) ++i;
  return i;
}

std::size_t Directory::candidates(std::uint64_t hash, std::span<SampleId> out) const noexcept {
  const Impl& d = *impl_;
  if (!d.header.names || d.n == 0) return 0;
  const std::uint64_t bucket = d.bucket_of(hash);
  const std::uint64_t begin = d.bucket_starts[bucket], end = d.bucket_starts[bucket + 1];
  const std::uint64_t fingerprint = d.fingerprint_of(hash);
  std::size_t found = 0;
  for (std::uint64_t i = d.lower_bound(begin, end, fingerprint); i < end; ++i, ++found) {
    const std::uint64_t entry = d.names_by_hash[i];
    if (entry >> d.header.id_bits != fingerprint) break;
    if (found < out.size()) out[found] = SampleId{static_cast<std::uint32_t>(entry & d.id_mask)};
  }
  return found;
}

void Directory::first_candidates(std::span<const std::uint64_t> hashes, std::span<std::uint64_t> out) const noexcept {
  const Impl& d = *impl_;
  constexpr std::size_t kGroup = 32;
  for (std::size_t base = 0; base < hashes.size(); base += kGroup) {
    const std::size_t count = std::min(kGroup, hashes.size() - base);
    std::uint64_t begins[kGroup], ends[kGroup];
    if (!d.header.names || d.n == 0) {
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(base), count, kNoCandidate);
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) d.bucket_starts.prefetch(d.bucket_of(hashes[base + i]));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t hash = hashes[base + i], bucket = d.bucket_of(hash);
      begins[i] = d.bucket_starts[bucket];
      ends[i] = d.bucket_starts[bucket + 1];
      d.names_by_hash.prefetch(begins[i] +
                               (d.fingerprint_of(hash) * (ends[i] - begins[i]) >> d.header.fingerprint_bits));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t fingerprint = d.fingerprint_of(hashes[base + i]);
      const std::uint64_t at = d.lower_bound(begins[i], ends[i], fingerprint);
      const bool hit = at < ends[i] && d.fingerprint_at(at) == fingerprint;
      out[base + i] = hit ? d.names_by_hash[at] & d.id_mask : kNoCandidate;
    }
  }
}

std::uint64_t Directory::name_block_of(SampleId id) const noexcept {
  std::uint64_t low = 0, high = impl_->header.name_block_count;  // first[low] <= id < first[high]
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (impl_->name_blocks[middle] <= id.value ? low : high) = middle;
  }
  return low;
}

std::uint64_t Directory::name_block_count() const noexcept { return impl_->header.name_block_count; }

}  // namespace dlfs::directory
