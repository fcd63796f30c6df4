// A simulated drive with a volatile write cache, and BlockDevice handles of it on the world's clock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "block/device.h"
#include "sim/world.h"

namespace dlfs::sim {

struct DiskFaults {
  double error = 0;        // of a request: EIO
  double interrupted = 0;  // of a request: EAGAIN, worth another try
  double slow = 0;         // of a request: up to slow_ns more
  std::uint64_t slow_ns = 400'000'000;
};

enum class Plant { kNone, kWrongOffset, kLostCompletion, kUnverified };

class SimDisk {
 public:
  SimDisk(World& w, std::uint64_t size_bytes, std::uint32_t block) : world(w), block_bytes(block), bytes(size_bytes) {}

  // What was written since the last flush is kept or lost, block by block.
  void lose_power();
  // A handle of a process; requests in flight fail once `dead` says that the process has gone.
  std::unique_ptr<block::BlockDevice> open(bool write, std::shared_ptr<bool> dead);

  World& world;
  DiskFaults faults;
  Plant plant = Plant::kNone;
  std::uint32_t block_bytes;
  std::vector<std::byte> bytes;  // as reads see them
  struct Old {                   // what a block held when it was last flushed
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };
  std::vector<Old> unflushed;
};

}  // namespace dlfs::sim
