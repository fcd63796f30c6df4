#include <algorithm>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/error.h"
#include "order/order.h"

namespace dlfs::order {
namespace {

constexpr std::uint32_t kMagic = 0x50464C44u;  // "DLFP"
constexpr std::uint16_t kVersion = 1;

// Where each value lies; docs/shuffling.md, "A saved position".
enum Offset : std::size_t {
  kAtMagic = 0,
  kAtVersion = 4,
  kAtMode = 6,
  kAtTail = 7,
  kAtVolume = 8,
  kAtSeed = 16,
  kAtEpoch = 24,
  kAtBatchNumber = 32,
  kAtBatch = 40,
  kAtLanes = 44,
  kAtWindow = 48,
  kAtZero = 52,
  kAtCheck = 60
};

bool usable(const Position& position) {
  const Parameters& p = position.parameters;
  return p.mode <= Mode::kChunk && p.tail <= Tail::kPad && p.batch > 0 && p.lanes > 0 && p.window > 0;
}

}  // namespace

std::array<std::byte, kPositionBytes> encode(const Position& position) noexcept {
  std::array<std::byte, kPositionBytes> bytes{};
  const Parameters& p = position.parameters;
  std::byte* to = bytes.data();
  base::store_le(to + kAtMagic, kMagic);
  base::store_le(to + kAtVersion, kVersion);
  base::store_le(to + kAtMode, static_cast<std::uint8_t>(p.mode));
  base::store_le(to + kAtTail, static_cast<std::uint8_t>(p.tail));
  base::store_le(to + kAtVolume, position.volume);
  base::store_le(to + kAtSeed, p.seed);
  base::store_le(to + kAtEpoch, p.epoch);
  base::store_le(to + kAtBatchNumber, position.next_batch);
  base::store_le(to + kAtBatch, p.batch);
  base::store_le(to + kAtLanes, p.lanes);
  base::store_le(to + kAtWindow, p.window);
  base::store_le(to + kAtCheck, base::crc32c(std::span(bytes).first(kAtCheck)));
  return bytes;
}

Result<Position> decode_position(std::span<const std::byte> bytes) {
  if (bytes.size() != kPositionBytes) {
    return base::make_error(Code::kInvalidArgument, "a saved position has {} bytes, not {}; pass it whole",
                            kPositionBytes, bytes.size());
  }
  const std::byte* from = bytes.data();
  if (base::load_le<std::uint32_t>(from + kAtMagic) != kMagic) {
    return base::make_error(Code::kInvalidArgument,
                            "these {} bytes are no saved position: they do not begin with 'DLFP'", kPositionBytes);
  }
  if (base::load_le<std::uint32_t>(from + kAtCheck) != base::crc32c(bytes.first(kAtCheck))) {
    return base::make_error(Code::kCorrupt, "the saved position is damaged (its check fails); use an older one");
  }
  if (const auto version = base::load_le<std::uint16_t>(from + kAtVersion); version != kVersion) {
    return base::make_error(
        Code::kUnsupportedVersion,
        "the saved position has version {} and this program knows {}; resume with the newer program", version,
        kVersion);
  }
  Position position;
  Parameters& p = position.parameters;
  p.mode = static_cast<Mode>(from[kAtMode]);
  p.tail = static_cast<Tail>(from[kAtTail]);
  position.volume = base::load_le<std::uint64_t>(from + kAtVolume);
  p.seed = base::load_le<std::uint64_t>(from + kAtSeed);
  p.epoch = base::load_le<std::uint64_t>(from + kAtEpoch);
  position.next_batch = base::load_le<std::uint64_t>(from + kAtBatchNumber);
  p.batch = base::load_le<std::uint32_t>(from + kAtBatch);
  p.lanes = base::load_le<std::uint32_t>(from + kAtLanes);
  p.window = base::load_le<std::uint32_t>(from + kAtWindow);
  if (!usable(position) || base::load_le<std::uint64_t>(from + kAtZero) != 0) {
    return base::make_error(Code::kCorrupt, "the saved position holds values that no run can have; use an older one");
  }
  return position;
}

}  // namespace dlfs::order
