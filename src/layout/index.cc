#include "layout/index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/error.h"

namespace dlfs::layout {
namespace {

using base::load_le;
using base::make_error;
using base::store_le;

constexpr char kMagic[8] = {'D', 'L', 'F', 'S', 'I', 'N', 'D', 'X'};
constexpr std::size_t kSectionsAt = 96, kSectionEntryBytes = 24, kCrcAt = kIndexHeaderBytes - 4;
constexpr std::uint32_t kFlagNames = 1;
constexpr std::uint64_t kBytesPerSample = 16;  // the promise
constexpr unsigned kMaxFingerprintBits = 16, kWantedFingerprintBits = 8;
constexpr unsigned kMinLargeShift = 12;

constexpr std::uint64_t align_up(std::uint64_t value) { return (value + (kIndexAlign - 1)) & ~(kIndexAlign - 1); }
unsigned bits_of(std::uint64_t value) { return value == 0 ? 1 : static_cast<unsigned>(std::bit_width(value)); }
unsigned shift_of(std::uint32_t chunk_bytes) { return static_cast<unsigned>(std::countr_zero(chunk_bytes)); }

template <class... Args>
Error corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(Code::kCorrupt, "the index is damaged: its header {}",
                    fmt::format(format, std::forward<Args>(args)...));
}

std::uint64_t section_bytes(const IndexHeader& h, IndexSection which) {
  switch (which) {
    case IndexSection::kLocations:
      return PackedArray::bytes_for(h.sample_count, h.address_bits + h.length_bits);
    case IndexSection::kIdsBySlot:
      return PackedArray::bytes_for(h.sample_count, h.id_bits);
    case IndexSection::kUnitStarts:
      return PackedArray::bytes_for(h.sample_count, 1);
    case IndexSection::kBuckets:
      return h.names ? PackedArray::bytes_for((std::uint64_t{1} << h.bucket_bits) + 1, h.bucket_start_bits) : 0;
    case IndexSection::kNamesByHash:
      return h.names ? PackedArray::bytes_for(h.sample_count, h.id_bits + h.fingerprint_bits) : 0;
    case IndexSection::kNameBlocks:
      return h.names ? PackedArray::bytes_for(h.name_block_count, h.id_bits) : 0;
  }
  return 0;
}

// Sets the fingerprint bits, and where even none are too many the buckets, so that everything stays within the promise.
// Returns false where that cannot be.
bool fit_names(IndexHeader& h) {
  const std::uint64_t budget = kBytesPerSample * h.sample_count;
  // What does not grow with n is left out: the header, the alignment of sections and the bytes behind each array.
  const auto fits = [&] {
    return h.resident_bytes_bound() <= budget + kIndexHeaderBytes + kIndexSections * (kIndexAlign + 24) + 128;
  };
  if (!h.names) return fits();
  const unsigned most = h.bucket_bits;
  for (unsigned fewer = 0; fewer <= 2; ++fewer) {
    h.bucket_bits = static_cast<std::uint8_t>(most - std::min(fewer, most));
    for (int bits = kMaxFingerprintBits; bits >= 0; --bits) {
      h.fingerprint_bits = static_cast<std::uint8_t>(bits);
      if (fits()) return true;
    }
  }
  return false;
}

}  // namespace

const char* index_section_name(IndexSection section) noexcept {
  switch (section) {
    case IndexSection::kLocations:
      return "locations";
    case IndexSection::kIdsBySlot:
      return "ids_by_slot";
    case IndexSection::kUnitStarts:
      return "unit_starts";
    case IndexSection::kBuckets:
      return "buckets";
    case IndexSection::kNamesByHash:
      return "names_by_hash";
    case IndexSection::kNameBlocks:
      return "name_blocks";
  }
  return "unknown";
}

void packed_set(std::span<std::byte> bytes, unsigned width, std::uint64_t i, std::uint64_t value) noexcept {
  const std::uint64_t bit = i * width;
  std::byte* p = bytes.data() + bit / 8;
  const unsigned shift = bit % 8;
  DLFS_CHECK(bit / 8 + 16 <= bytes.size() && (width == 64 || value >> width == 0));
  store_le<std::uint64_t>(p, load_le<std::uint64_t>(p) | value << shift);
  if (shift > 0 && width + shift > 64)
    store_le<std::uint64_t>(p + 8, load_le<std::uint64_t>(p + 8) | value >> (64 - shift));
}

Extent IndexHeader::section(IndexSection which) const noexcept {
  Extent extent{kIndexHeaderBytes, 0, section_crcs[static_cast<std::size_t>(which)]};
  for (std::size_t i = 0; i < kIndexSections; ++i) {
    extent.offset_bytes = align_up(extent.offset_bytes + extent.length_bytes);
    extent.length_bytes = section_bytes(*this, static_cast<IndexSection>(i));
    if (i == static_cast<std::size_t>(which)) break;
  }
  return extent;
}

std::uint64_t IndexHeader::index_bytes() const noexcept {
  const Extent last = section(IndexSection::kNameBlocks);
  return align_up(last.offset_bytes + last.length_bytes);
}

std::uint64_t IndexHeader::resident_bytes_bound() const noexcept { return index_bytes() + sample_count / 64; }

IndexHeader plan_index(const IndexFacts& facts) noexcept {
  IndexHeader h;
  h.sample_count = facts.sample_count;
  h.unit_count = facts.unit_count;
  h.data_bytes = facts.data_bytes;
  h.chunk_bytes = facts.chunk_bytes;
  h.record_salt = facts.record_salt;
  h.names = facts.names;
  h.name_block_count = facts.names ? facts.name_block_count : 0;
  const unsigned chunk_shift = shift_of(facts.chunk_bytes);
  const unsigned common =
      facts.address_bits_used == 0 ? chunk_shift : static_cast<unsigned>(std::countr_zero(facts.address_bits_used));
  h.align_shift = static_cast<std::uint8_t>(std::min(common, chunk_shift));
  h.address_bits = static_cast<std::uint8_t>(bits_of(facts.address_bits_used >> h.align_shift));
  h.id_bits = static_cast<std::uint8_t>(bits_of(facts.sample_count == 0 ? 0 : facts.sample_count - 1));
  if (facts.longest_ordinary_bytes > 0)
    h.ordinary_codes = static_cast<std::uint32_t>(facts.longest_ordinary_bytes - (kMinRecordBytes - 1));
  if (h.names) {
    h.bucket_bits = static_cast<std::uint8_t>(bits_of(facts.sample_count / 16) - 1);
    h.bucket_start_bits = static_cast<std::uint8_t>(bits_of(facts.sample_count));
  }
  const unsigned bucket_bits = h.bucket_bits;
  for (unsigned shift = kMinLargeShift; shift <= chunk_shift; ++shift) {
    h.large_shift = static_cast<std::uint8_t>(shift);
    h.bucket_bits = static_cast<std::uint8_t>(bucket_bits);
    const std::uint64_t large_codes = (facts.longest_large_bytes + ((std::uint64_t{1} << shift) - 1)) >> shift;
    h.length_bits = static_cast<std::uint8_t>(bits_of(h.ordinary_codes + large_codes));
    const bool fits = fit_names(h);
    if (large_codes == 0 || (fits && (!h.names || h.fingerprint_bits >= kWantedFingerprintBits))) break;
  }
  return h;
}

std::array<std::byte, kIndexHeaderBytes> encode(const IndexHeader& h) {
  std::array<std::byte, kIndexHeaderBytes> out{};
  std::byte* p = out.data();
  std::memcpy(p, kMagic, sizeof kMagic);
  store_le<std::uint32_t>(p + 8, kFormatVersion);
  store_le<std::uint32_t>(p + 12, kIndexHeaderBytes);
  store_le<std::uint64_t>(p + 16, h.sample_count);
  store_le<std::uint64_t>(p + 24, h.unit_count);
  store_le<std::uint64_t>(p + 32, h.name_block_count);
  store_le<std::uint64_t>(p + 40, h.data_bytes);
  store_le<std::uint32_t>(p + 48, h.chunk_bytes);
  store_le<std::uint32_t>(p + 52, h.record_salt);
  std::byte* byte = p + 56;
  for (const std::uint8_t value : {h.align_shift, h.large_shift, h.address_bits, h.length_bits, h.id_bits,
                                   h.fingerprint_bits, h.bucket_bits, h.bucket_start_bits}) {
    *byte++ = std::byte{value};
  }
  store_le<std::uint32_t>(p + 64, h.ordinary_codes);
  store_le<std::uint32_t>(p + 68, h.names ? kFlagNames : 0);
  for (std::size_t i = 0; i < kIndexSections; ++i) {
    const Extent extent = h.section(static_cast<IndexSection>(i));
    std::byte* entry = p + kSectionsAt + i * kSectionEntryBytes;
    store_le<std::uint64_t>(entry, extent.offset_bytes);
    store_le<std::uint64_t>(entry + 8, extent.length_bytes);
    store_le<std::uint32_t>(entry + 16, extent.crc);
  }
  store_le<std::uint32_t>(p + kCrcAt, base::crc32c(std::span(out).first(kCrcAt)));
  return out;
}

namespace {

Result<void> check_widths(const IndexHeader& h) {
  if (h.sample_count > kMaxSamples || h.unit_count > h.sample_count || h.name_block_count > h.sample_count) {
    return corrupt("counts {} samples, {} units and {} name blocks", h.sample_count, h.unit_count, h.name_block_count);
  }
  if (!std::has_single_bit(h.chunk_bytes) || h.chunk_bytes < kMinChunkBytes || h.chunk_bytes > kMaxChunkBytes ||
      h.data_bytes > kMaxDeviceBytes) {
    return corrupt("has chunks of {} and a data area of {} bytes", h.chunk_bytes, h.data_bytes);
  }
  const unsigned chunk_shift = shift_of(h.chunk_bytes);
  const bool shifts = h.align_shift >= 3 && h.align_shift <= chunk_shift && h.large_shift >= kMinLargeShift &&
                      h.large_shift <= chunk_shift;
  const bool location = h.address_bits >= 1 && h.address_bits <= 46 && h.length_bits >= 1 && h.length_bits <= 32;
  const bool ids = h.id_bits == bits_of(h.sample_count == 0 ? 0 : h.sample_count - 1);
  if (!shifts || !location || !ids || h.ordinary_codes > h.chunk_bytes - (kMinRecordBytes - 1))
    return corrupt("has an impossible width");
  const bool no_names =
      h.fingerprint_bits == 0 && h.bucket_bits == 0 && h.bucket_start_bits == 0 && h.name_block_count == 0;
  const bool names = h.fingerprint_bits <= kMaxFingerprintBits && h.bucket_start_bits == bits_of(h.sample_count) &&
                     h.bucket_bits < 33 &&
                     (std::uint64_t{1} << h.bucket_bits) <= std::max<std::uint64_t>(1, h.sample_count);
  if (!(h.names ? names : no_names)) return corrupt("has an impossible width for names");
  return {};
}

}  // namespace

Result<IndexHeader> decode_index_header(std::span<const std::byte> bytes, std::uint64_t index_bytes) {
  if (bytes.size() < kIndexHeaderBytes)
    return corrupt("is cut off: {} of {} bytes are there", bytes.size(), kIndexHeaderBytes);
  const std::byte* p = bytes.data();
  if (std::memcmp(p, kMagic, sizeof kMagic) != 0) return corrupt("has the wrong magic");
  if (base::crc32c(bytes.first(kCrcAt)) != load_le<std::uint32_t>(p + kCrcAt)) return corrupt("does not match its CRC");
  const auto version = load_le<std::uint32_t>(p + 8);
  if (version != kFormatVersion) {
    return make_error(Code::kUnsupportedVersion, "the index has format version {}; this program reads version {}",
                      version, kFormatVersion);
  }
  IndexHeader h;
  h.sample_count = load_le<std::uint64_t>(p + 16);
  h.unit_count = load_le<std::uint64_t>(p + 24);
  h.name_block_count = load_le<std::uint64_t>(p + 32);
  h.data_bytes = load_le<std::uint64_t>(p + 40);
  h.chunk_bytes = load_le<std::uint32_t>(p + 48);
  h.record_salt = load_le<std::uint32_t>(p + 52);
  const std::byte* byte = p + 56;
  for (std::uint8_t* value : {&h.align_shift, &h.large_shift, &h.address_bits, &h.length_bits, &h.id_bits,
                              &h.fingerprint_bits, &h.bucket_bits, &h.bucket_start_bits}) {
    *value = std::to_integer<std::uint8_t>(*byte++);
  }
  h.ordinary_codes = load_le<std::uint32_t>(p + 64);
  h.names = (load_le<std::uint32_t>(p + 68) & kFlagNames) != 0;
  for (std::size_t i = 0; i < kIndexSections; ++i) {
    h.section_crcs[i] = load_le<std::uint32_t>(p + kSectionsAt + i * kSectionEntryBytes + 16);
  }
  if (auto valid = check_widths(h); !valid) return valid.error();
  // Places and lengths of sections follow from the rest: an honest header is what encode() makes of these values.
  if (std::memcmp(encode(h).data(), p, kIndexHeaderBytes) != 0)
    return corrupt("has a misplaced section or a reserved byte that is not zero");
  if (h.index_bytes() != index_bytes)
    return corrupt("describes {} bytes, but the index is {} bytes long", h.index_bytes(), index_bytes);
  return h;
}

LocationArray::LocationArray(std::span<const std::byte> bytes, const IndexHeader& h) noexcept
    : data_(bytes.data()),
      width_(static_cast<unsigned>(h.address_bits) + h.length_bits),
      length_bits_(h.length_bits),
      align_shift_(h.align_shift),
      large_shift_(h.large_shift),
      ordinary_codes_(h.ordinary_codes),
      length_mask_((std::uint64_t{1} << h.length_bits) - 1),
      address_mask_((std::uint64_t{1} << h.address_bits) - 1) {}

void set_location(std::span<std::byte> bytes, const IndexHeader& h, std::uint64_t i, const Location& exact) noexcept {
  const std::uint64_t rounded = (exact.length_bytes + ((std::uint64_t{1} << h.large_shift) - 1)) >> h.large_shift;
  const std::uint64_t code = exact.large ? h.ordinary_codes + rounded : exact.length_bytes - (kMinRecordBytes - 1);
  const unsigned width = static_cast<unsigned>(h.address_bits) + h.length_bits;
  const unsigned __int128 value =
      static_cast<unsigned __int128>(exact.address_bytes >> h.align_shift) << h.length_bits | code;
  DLFS_CHECK(code != 0 && code >> h.length_bits == 0 && exact.address_bytes >> h.align_shift >> h.address_bits == 0);
  const std::uint64_t bit = i * width;
  std::byte* p = bytes.data() + bit / 8;
  DLFS_CHECK(bit / 8 + 16 <= bytes.size());
  const unsigned __int128 shifted = value << (bit % 8);
  store_le<std::uint64_t>(p, load_le<std::uint64_t>(p) | static_cast<std::uint64_t>(shifted));
  store_le<std::uint64_t>(p + 8, load_le<std::uint64_t>(p + 8) | static_cast<std::uint64_t>(shifted >> 64));
}

}  // namespace dlfs::layout
