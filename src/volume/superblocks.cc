#include "volume/superblocks.h"

#include <algorithm>
#include <cstring>

#include "base/arena.h"
#include "base/error.h"
#include "base/try.h"
#include "volume/device_io.h"

namespace dlfs::volume {
namespace {

using layout::Superblock;

Result<void> read_slot(block::BlockDevice& device, std::uint64_t offset, std::chrono::milliseconds timeout,
                       SuperblockPair::Slot& slot) {
  if (device.geometry().capacity_bytes < offset + layout::kSuperblockBytes) {
    slot.error = base::make_error(Code::kTruncated, "'{}' ends at byte {}, before the superblock at byte {}",
                                  device.url(), device.geometry().capacity_bytes, offset);
    return {};
  }
  DLFS_TRY_ASSIGN(const base::Arena memory, read_range(device, offset, layout::kSuperblockBytes, timeout));
  slot.raw.assign(memory.bytes().begin(), memory.bytes().begin() + layout::kSuperblockBytes);
  auto decoded = layout::decode_superblock(slot.raw);
  if (decoded.ok())
    slot.superblock = std::move(decoded).value();
  else
    slot.error = std::move(decoded).error();
  return {};
}

}  // namespace

const Superblock* SuperblockPair::chosen() const noexcept {
  const Superblock* best = nullptr;
  for (const Slot& slot : slots) {
    if (!slot.superblock) continue;
    const Superblock& candidate = *slot.superblock;
    const bool better = best == nullptr || candidate.generation > best->generation ||
                        (candidate.generation == best->generation && best->state != layout::State::kCommitted);
    if (better) best = &candidate;
  }
  return best;
}

Result<SuperblockPair> read_superblocks(block::BlockDevice& device, std::chrono::milliseconds timeout) {
  SuperblockPair pair;
  int failures = 0;
  for (int i = 0; i < 2; ++i) {
    const auto result = read_slot(device, layout::kSuperblockOffsets[i], timeout, pair.slots[i]);
    if (result.ok()) continue;
    pair.slots[i].error = result.error();
    if (++failures == 2 || result.error().code == Code::kTimedOut) return result.error();
  }
  return pair;
}

Result<void> write_superblocks(block::BlockDevice& device, const Superblock& superblock,
                               std::chrono::milliseconds timeout) {
  DLFS_TRY_ASSIGN(base::Arena buffer, base::Arena::create(layout::kSuperblockBytes, false));
  const auto encoded = layout::encode(superblock);
  std::ranges::copy(encoded, buffer.bytes().begin());
  for (const std::uint64_t offset : layout::kSuperblockOffsets) {
    // Again, where the device was away between write and flush: it may have forgotten the write.
    for (std::uint64_t before = ~device.interruptions(); before != device.interruptions();) {
      before = device.interruptions();
      auto written = block::write_all(device, offset, buffer.bytes().first(encoded.size()), timeout);
      if (!written.ok()) {
        if (written.error().code == Code::kTimedOut) abandon_memory(std::move(buffer));
        return written;
      }
      DLFS_TRY(block::flush(device, timeout));
    }
  }
  return {};
}

std::uint64_t data_begin(std::uint32_t chunk_bytes) noexcept { return round_up(kHeaderBytes, chunk_bytes); }

Result<void> check_extents(const Superblock& superblock) {
  if (superblock.data.offset_bytes != data_begin(superblock.chunk_bytes)) {
    return base::make_error(Code::kCorrupt, "the superblock is impossible: the data starts at byte {}, not at {}",
                            superblock.data.offset_bytes, data_begin(superblock.chunk_bytes));
  }
  // The directory has at most 16 bytes a sample: a hostile length cannot ask for much more memory than that.
  const std::uint64_t limit = 32 * superblock.sample_count + (1u << 20);
  if (superblock.index.length_bytes > limit) {
    return base::make_error(Code::kCorrupt, "the superblock is impossible: an index of {} bytes for {} samples",
                            superblock.index.length_bytes, superblock.sample_count);
  }
  return {};
}

std::string foreign_description(std::span<const std::byte> beginning) {
  if (std::ranges::all_of(beginning, [](std::byte b) { return b == std::byte{0}; })) return "only zeros";
  struct Magic {
    std::size_t offset;
    std::string_view bytes;
    const char* what;
  };
  static constexpr Magic kMagics[] = {
      {257, "ustar", "a tar archive"},
      {0, "PK\x03\x04", "a zip archive"},
      {0, "\x1f\x8b", "a gzip file"},
      {0, "\x28\xb5\x2f\xfd", "a zstd file"},
      {0, "\x89HDF\r\n", "an HDF5 file"},
      {0, "\x89PNG", "a PNG image"},
      {0, "\xff\xd8\xff", "a JPEG image"},
      {0, "\x93NUMPY", "a NumPy array"},
      {0, "PAR1", "a Parquet file"},
      {0, "ARROW1", "an Arrow file"},
      {0, "hsqs", "a squashfs image"},
      {0, "XFSB", "an XFS file system"},
      {1080, "\x53\xef", "an ext2/3/4 file system"},
      {0x10040, "_BHRfS_M", "a Btrfs file system"},
      {510, "\x55\xaa", "a partition table"},
  };
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()), beginning.size());
  for (const Magic& magic : kMagics) {
    if (text.size() >= magic.offset && text.substr(magic.offset).starts_with(magic.bytes)) return magic.what;
  }
  return "data that DLFS did not write";
}

}  // namespace dlfs::volume
