#include "layout/format.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/error.h"
#include "base/try.h"

namespace dlfs::layout {
namespace {

using base::load_le;
using base::make_error;
using base::store_le;

// Offsets within a superblock.
constexpr char kMagic[8] = {'D', 'L', 'F', 'S', 'V', 'O', 'L', 'M'};
constexpr std::size_t kExtentsAt = 80, kExtentBytes = 24, kWriterAt = 208, kWriterBytes = 64, kReservedAt = 272;
constexpr std::size_t kCrcAt = kSuperblockBytes - 4;
constexpr std::size_t kMaxWriter = kWriterBytes - 1;

template <class... Args>
Error corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(Code::kCorrupt, "the superblock is damaged: {}", fmt::format(format, std::forward<Args>(args)...));
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

void store_extent(std::byte* at, const Extent& extent) {
  store_le<std::uint64_t>(at, extent.offset_bytes);
  store_le<std::uint64_t>(at + 8, extent.length_bytes);
  store_le<std::uint32_t>(at + 16, extent.crc);
}

Extent load_extent(const std::byte* at) {
  return {load_le<std::uint64_t>(at), load_le<std::uint64_t>(at + 8), load_le<std::uint32_t>(at + 16)};
}

Result<void> check_extents(const Superblock& s) {
  struct Part {
    const char* name;
    Extent extent;
    std::uint64_t unit, length_unit;
  };
  const Part parts[] = {{"data", s.data, s.chunk_bytes, s.chunk_bytes},
                        {"names", s.names, kSectorBytes, kNameBlockBytes},
                        {"index", s.index, kSectorBytes, 1},
                        {"schema", s.schema, kSectorBytes, 1}};
  std::uint64_t end = kDataStartBytes;
  for (const Part& part : parts) {
    const auto [offset, length, crc] = part.extent;
    if (offset % part.unit != 0)
      return corrupt("the {} section starts at byte {}, not at a multiple of {}", part.name, offset, part.unit);
    if (length % part.length_unit != 0)
      return corrupt("the {} section is {} bytes long, not a multiple of {}", part.name, length, part.length_unit);
    if (offset < end && length > 0)
      return corrupt("the {} section starts at byte {}, inside what lies before it", part.name, offset);
    if (offset > s.device_bytes || length > s.device_bytes - offset)
      return corrupt("the {} section ends behind the device's {} bytes", part.name, s.device_bytes);
    end = std::max(end, offset + length);
  }
  if (s.data.length_bytes / kRecordAlign < s.sample_count)
    return corrupt("{} samples cannot lie in {} bytes of data", s.sample_count, s.data.length_bytes);
  if (s.index.length_bytes == 0 || s.schema.length_bytes == 0) return corrupt("it has no index or no schema");
  if (s.schema.length_bytes > kMaxSchemaBytes) return corrupt("the schema is {} bytes long", s.schema.length_bytes);
  return {};
}

Result<void> check_values(const Superblock& s) {
  if (s.state != State::kIncomplete && s.state != State::kCommitted)
    return corrupt("its state is {}", static_cast<std::uint32_t>(s.state));
  if (s.generation == 0) return corrupt("its generation is 0");
  if (s.members == 0 || s.member >= s.members) return corrupt("it is member {} of {}", s.member, s.members);
  if (s.members != 1) {
    return make_error(Code::kUnsupportedVersion,
                      "the volume lies on {} devices; this version reads volumes of one device", s.members);
  }
  if (!std::has_single_bit(s.chunk_bytes) || s.chunk_bytes < kMinChunkBytes || s.chunk_bytes > kMaxChunkBytes)
    return corrupt("its chunks are {} bytes long", s.chunk_bytes);
  if (s.sample_count > kMaxSamples) return corrupt("it has {} samples", s.sample_count);
  if (s.device_bytes > kMaxDeviceBytes || s.device_bytes % kSectorBytes != 0)
    return corrupt("its device is {} bytes long", s.device_bytes);
  return s.state == State::kCommitted ? check_extents(s) : Result<void>{};
}

}  // namespace

std::array<std::byte, kSuperblockBytes> encode(const Superblock& s) {
  std::array<std::byte, kSuperblockBytes> out{};
  std::byte* p = out.data();
  std::memcpy(p, kMagic, sizeof kMagic);
  store_le<std::uint32_t>(p + 8, kFormatVersion);
  store_le<std::uint32_t>(p + 12, kSuperblockBytes);
  std::memcpy(p + 16, s.volume_id.data(), s.volume_id.size());
  store_le<std::uint64_t>(p + 32, s.generation);
  store_le<std::uint32_t>(p + 40, static_cast<std::uint32_t>(s.state));
  store_le<std::uint32_t>(p + 44, s.member);
  store_le<std::uint32_t>(p + 48, s.members);
  store_le<std::uint32_t>(p + 52, s.chunk_bytes);
  store_le<std::uint32_t>(p + 56, s.record_salt);
  store_le<std::uint64_t>(p + 64, s.sample_count);
  store_le<std::uint64_t>(p + 72, s.device_bytes);
  std::byte* extent = p + kExtentsAt;
  for (const Extent* e : {&s.data, &s.names, &s.index, &s.schema})
    store_extent(std::exchange(extent, extent + kExtentBytes), *e);
  store_le<std::uint64_t>(p + 176, s.payload_bytes);
  store_le<std::uint64_t>(p + 184, s.record_bytes);
  store_le<std::uint64_t>(p + 192, s.padding_bytes);
  store_le<std::uint64_t>(p + 200, s.unix_time_s);
  const std::string_view writer = std::string_view(s.writer).substr(0, kMaxWriter);
  if (!writer.empty()) std::memcpy(p + kWriterAt, writer.data(), writer.size());
  store_le<std::uint32_t>(p + kCrcAt, base::crc32c(std::span(out).first(kCrcAt)));
  return out;
}

Result<Superblock> decode_superblock(std::span<const std::byte> bytes) {
  if (bytes.size() < kSuperblockBytes)
    return corrupt("only {} of its {} bytes are there", bytes.size(), kSuperblockBytes);
  const std::byte* p = bytes.data();
  if (std::memcmp(p, kMagic, sizeof kMagic) != 0)
    return make_error(Code::kForeign, "this is not a DLFS volume: it does not start with DLFSVOLM");
  // Every version keeps magic, version and sum in these places, so that damage and a newer version can be told apart.
  const std::uint32_t crc = base::crc32c(bytes.first(kCrcAt));
  if (crc != load_le<std::uint32_t>(p + kCrcAt))
    return corrupt("its CRC is {:08x}, not {:08x}", load_le<std::uint32_t>(p + kCrcAt), crc);
  const auto version = load_le<std::uint32_t>(p + 8);
  if (version != kFormatVersion) {
    return make_error(Code::kUnsupportedVersion, "the volume has format version {}; this program reads version {}",
                      version, kFormatVersion);
  }
  if (load_le<std::uint32_t>(p + 12) != kSuperblockBytes)
    return corrupt("it says that it is {} bytes long", load_le<std::uint32_t>(p + 12));

  Superblock s;
  std::memcpy(s.volume_id.data(), p + 16, s.volume_id.size());
  s.generation = load_le<std::uint64_t>(p + 32);
  s.state = static_cast<State>(load_le<std::uint32_t>(p + 40));
  s.member = load_le<std::uint32_t>(p + 44);
  s.members = load_le<std::uint32_t>(p + 48);
  s.chunk_bytes = load_le<std::uint32_t>(p + 52);
  s.record_salt = load_le<std::uint32_t>(p + 56);
  s.sample_count = load_le<std::uint64_t>(p + 64);
  s.device_bytes = load_le<std::uint64_t>(p + 72);
  const std::byte* extent = p + kExtentsAt;
  bool reserved_zero = all_zero(bytes.subspan(60, 4)) && all_zero(bytes.subspan(kReservedAt, kCrcAt - kReservedAt));
  for (Extent* e : {&s.data, &s.names, &s.index, &s.schema}) {
    *e = load_extent(extent);
    reserved_zero = reserved_zero && load_le<std::uint32_t>(extent + 20) == 0;
    extent += kExtentBytes;
  }
  s.payload_bytes = load_le<std::uint64_t>(p + 176);
  s.record_bytes = load_le<std::uint64_t>(p + 184);
  s.padding_bytes = load_le<std::uint64_t>(p + 192);
  s.unix_time_s = load_le<std::uint64_t>(p + 200);
  const auto writer = bytes.subspan(kWriterAt, kWriterBytes);
  const auto writer_end = std::find(writer.begin(), writer.end(), std::byte{0});
  s.writer.assign(reinterpret_cast<const char*>(writer.data()), static_cast<std::size_t>(writer_end - writer.begin()));
  if (!reserved_zero || writer_end == writer.end() || !all_zero(writer.subspan(s.writer.size())))
    return corrupt("a reserved byte is not zero");
  DLFS_TRY(check_values(s));
  return s;
}

}  // namespace dlfs::layout
