// The two superblocks of a device: reading, choosing, writing, and the checks that a single one cannot make of itself.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "block/device.h"
#include "layout/format.h"

namespace dlfs::volume {

// Both slots and all between: chunk 0 never starts before.
inline constexpr std::uint64_t kHeaderBytes = 2 * layout::kSuperblockOffsets[1];

struct SuperblockPair {
  struct Slot {
    std::vector<std::byte> raw;  // as read; empty where the device ends before it or cannot be read
    std::optional<layout::Superblock> superblock;
    std::optional<Error> error;  // why there is no superblock
  };
  std::array<Slot, 2> slots;
  // The valid one of the highest generation (committed wins a tie); null when neither is valid.
  const layout::Superblock* chosen() const noexcept;
};

// **Errors**: kTimedOut and kIo when neither slot can be read. A slot that is damaged or not there is no error here.
Result<SuperblockPair> read_superblocks(block::BlockDevice& device, std::chrono::milliseconds timeout);

// Slot 0, flush, slot 1, flush: whenever it stops, one slot is whole.
Result<void> write_superblocks(block::BlockDevice& device, const layout::Superblock& superblock,
                               std::chrono::milliseconds timeout);

// Where the data of a volume with this chunk size begins.
std::uint64_t data_begin(std::uint32_t chunk_bytes) noexcept;

// What layout::decode_superblock leaves open: where the data begins, and how much memory the index may ask for.
// **Errors**: kCorrupt.
Result<void> check_extents(const layout::Superblock& superblock);

// What a device that holds no volume seems to hold: "a tar archive", "only zeros", "data that DLFS did not write".
std::string foreign_description(std::span<const std::byte> beginning);

}  // namespace dlfs::volume
