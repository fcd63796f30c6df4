// Any bytes as an index: as they are, and with a header made canonical (its counts and widths are the input's, places
// and sums are right), so that the checks behind the header are reached. A directory that loads answers every question
// within bounds.
#include <algorithm>
#include <vector>

#include "directory/directory.h"
#include "fuzz_input.h"

namespace {

using namespace dlfs;

constexpr std::uint64_t kMaxIndexBytes = 1u << 20;

layout::IndexHeader header_of(std::span<const std::byte> bytes) {
  const std::byte* p = bytes.data();
  layout::IndexHeader h;
  h.sample_count = base::load_le<std::uint64_t>(p + 16);
  h.unit_count = base::load_le<std::uint64_t>(p + 24);
  h.name_block_count = base::load_le<std::uint64_t>(p + 32);
  h.data_bytes = base::load_le<std::uint64_t>(p + 40);
  h.chunk_bytes = base::load_le<std::uint32_t>(p + 48);
  h.record_salt = base::load_le<std::uint32_t>(p + 52);
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint8_t>(p[at]); };
  h.align_shift = byte(56), h.large_shift = byte(57), h.address_bits = byte(58), h.length_bits = byte(59);
  h.id_bits = byte(60), h.fingerprint_bits = byte(61), h.bucket_bits = byte(62) % 64, h.bucket_start_bits = byte(63);
  h.ordinary_codes = base::load_le<std::uint32_t>(p + 64);
  h.names = (byte(68) & 1) != 0;
  return h;
}

void ask_everything(const directory::Directory& directory, std::uint64_t data_bytes) {
  const std::uint64_t n = directory.sample_count();
  std::vector<std::uint32_t> ids;
  std::uint64_t previous = 0;
  for (std::uint64_t unit = 0; unit <= directory.unit_count(); ++unit) {
    const std::uint64_t first = directory.first_slot(unit);
    DLFS_CHECK(first <= n && (unit == 0 ? first == 0 : first > previous || n == 0));
    previous = first;
    if (first < n) DLFS_CHECK(directory.unit_of(Slot{static_cast<std::uint32_t>(first)}) == unit);
  }
  DLFS_CHECK(previous == n);
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto id = directory.id_of(Slot{static_cast<std::uint32_t>(i)});
    DLFS_CHECK(id.value < n);
    ids.push_back(id.value);
    const layout::Location at = directory.location(id);
    DLFS_CHECK(at.length_bytes >= 8 && at.address_bytes + at.length_bytes <= data_bytes);
    if (directory.has_names()) DLFS_CHECK(directory.name_block_of(id) < directory.name_block_count());
  }
  std::vector<layout::Location> locations(n);
  directory.locations(ids, locations);
  std::vector<std::uint64_t> hashes, firsts(64);
  for (std::uint64_t i = 0; i < 64; ++i) hashes.push_back(i * 0x0400'0000'0000'0001u);
  directory.first_candidates(hashes, firsts);
  SampleId found[8];
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t count = directory.candidates(hashes[i], found);
    for (std::size_t c = 0; c < std::min(count, std::size(found)); ++c) DLFS_CHECK(found[c].value < n);
    DLFS_CHECK(firsts[i] == (count == 0 ? directory::Directory::kNoCandidate : found[0].value));
  }
  std::sort(ids.begin(), ids.end());
  for (std::uint64_t i = 0; i < n; ++i) DLFS_CHECK(ids[i] == i);
}

void load(std::span<const std::byte> index, const layout::IndexHeader& header) {
  auto arena = base::Arena::create(index.size(), false);
  if (!arena.ok()) return;
  std::ranges::copy(index, arena->bytes().begin());
  layout::Superblock superblock;
  superblock.sample_count = header.sample_count;
  superblock.data.length_bytes = header.data_bytes;
  superblock.chunk_bytes = header.chunk_bytes;
  superblock.record_salt = header.record_salt;
  superblock.index = {0, index.size(), base::crc32c(index)};
  const auto directory = directory::Directory::load(std::move(arena).value(), superblock);
  if (directory.ok()) ask_everything(*directory, header.data_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < layout::kIndexHeaderBytes || size > kMaxIndexBytes) return 0;
  const auto input = fuzz::bytes_of(data, size);
  layout::IndexHeader header = header_of(input);
  load(input, header);
  if (header.sample_count > kMaxIndexBytes || header.name_block_count > kMaxIndexBytes ||
      header.index_bytes() > kMaxIndexBytes)
    return 0;
  std::vector<std::byte> index(header.index_bytes());
  std::copy_n(input.begin(), std::min(input.size(), index.size()), index.begin());
  const auto encoded = encode(header);
  std::ranges::copy(encoded, index.begin());
  load(index, header);
  return 0;
}
