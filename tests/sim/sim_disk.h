// A simulated drive with a volatile write cache, and BlockDevice handles of it on the world's clock.
#pragma once

#include <functional>
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
  std::uint64_t slow_ns = kSecond * 2 / 5;
  double strike = 0;  // of a write: `struck` is called while it is at the drive
  std::function<void()> struck = {};
};

// Faults of what is around the code, that must be found.
enum class Plant {
  kNone,
  kWrongOffset,     // the drive reads the block before
  kHalfRead,        // the drive answers a read that it did half
  kLostFlush,       // the drive says that it flushed
  kLostCompletion,  // the host's device swallows completions
  kUnverified,      // the reader does not verify, and the drive reads the block before
};
const char* plant_name(Plant plant) noexcept;  // as the command line has it
bool plant_of(const std::string& name, Plant& plant) noexcept;

// A process's life, as the drive sees it.
struct Process {
  bool dead = false;
};

class SimDisk {
 public:
  SimDisk(World& w, std::uint64_t size_bytes, std::uint32_t block) : world(w), block_bytes(block), bytes(size_bytes) {}

  // A handle of a process. What a dead process had at the drive is answered as failed, and some of its writes are done
  // all the same, when their time comes.
  std::unique_ptr<block::BlockDevice> open(bool write, std::shared_ptr<const Process> process);
  // What was written since the last flush is kept or lost, block by block; so is what was on its way.
  void lose_power();
  void write(std::uint64_t offset_bytes, const std::byte* from, std::uint32_t length_bytes);
  void flush();
  void leave_behind(const block::Request& request, std::uint64_t due_ns);

  World& world;
  DiskFaults faults;
  Plant plant = Plant::kNone;
  std::uint32_t block_bytes;
  std::vector<std::byte> bytes;  // as reads see them

 private:
  struct Block {
    std::uint64_t offset_bytes;
    std::vector<std::byte> bytes;
  };
  std::vector<Block> unflushed_;                       // what blocks held before they were written
  std::vector<std::shared_ptr<const Block>> orphans_;  // writes of dead processes that are still to be done
};

}  // namespace dlfs::sim
