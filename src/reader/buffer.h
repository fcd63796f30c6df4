// A buffer: a range of the data area in memory, or on its way there. The poller thread alone touches it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dlfs/result.h"
#include "reader/memory_pool.h"

namespace dlfs::reader {

struct BatchBody;

struct RecordRef {
  std::uint64_t address = 0, length = 0;  // in the data area
  std::uint32_t id = 0;
};

// A record that must not be delivered, and why. Of a failed read also what was read where, for the sentence.
struct BadRecord {
  std::uint64_t address = 0;
  Code code = Code::kCorrupt;
  int errno_value = 0;
  std::uint16_t nvme_status = 0;
  std::uint64_t device_offset = 0;
  std::uint32_t length = 0;
};

// Memory that several buffers were cut from.
struct SharedBlock {
  MemoryPool::Block block;
  std::uint64_t filled_bytes = 0;
  std::uint32_t users = 0;
};

struct Buffer {
  std::uint64_t begin = 0, end = 0;                // what is read: whole device blocks
  std::uint64_t covers_begin = 0, covers_end = 0;  // the records inside that are verified when it is ready
  std::byte* memory = nullptr;                     // of `begin`
  MemoryPool::Block block;                         // its own, when `shared` is null
  SharedBlock* shared = nullptr;

  // Which records to verify: the slots [slot_begin, slot_end), listed in `records` or not; or when that is empty,
  // `records`.
  std::uint64_t slot_begin = 0, slot_end = 0;
  std::vector<RecordRef> records;
  std::vector<BadRecord> bad;  // empty unless something is wrong
  std::size_t bad_sorted = 0;
  std::vector<BatchBody*> waiters;  // batches that are not complete before this is ready

  std::uint32_t refs = 0;       // batches planned or out that use it
  std::uint32_t requests = 0;   // queued or in flight
  std::uint32_t abandoned = 0;  // past their deadline, but the device may still write
  bool ready = false;
  bool beyond_limit = false;  // the one sample larger than the whole limit

  // As a part of the cache.
  bool cached = false;    // found by find(); else it belongs to the batches that were planned with it
  std::uint64_t key = 0;  // under which it is found: its unit in chunk mode, else its chunk
  Buffer* next_in_chunk = nullptr;
  std::uint64_t unit = 0;           // chunk mode
  std::uint64_t epoch = 0;          // relative number of the epoch that drew from it last
  bool from_earlier_epoch = false;  // what it holds was read for an earlier epoch
  std::uint64_t draws_left = 0;     // samples of its piece that this epoch has still to draw
  std::uint64_t last_draw = 0;      // the cache's clock then
  std::uint64_t idle_stamp = 0;     // tells a current entry of the eviction queue from an outdated one
  std::uint64_t last_user = 0;      // serial of the batch that used it last

  std::uint64_t length() const noexcept { return end - begin; }
  std::byte* at(std::uint64_t address) const noexcept { return memory + (address - begin); }
  bool covers(std::uint64_t address, std::uint64_t bytes) const noexcept {
    return address >= covers_begin && address + bytes <= covers_end;
  }
  // Of those that were there when sort_bad() was called last.
  const BadRecord* bad_at(std::uint64_t address) const noexcept {
    const auto known = bad.begin() + static_cast<std::ptrdiff_t>(bad_sorted);
    const auto found = std::lower_bound(bad.begin(), known, address,
                                        [](const BadRecord& b, std::uint64_t a) { return b.address < a; });
    return found != known && found->address == address ? &*found : nullptr;
  }
  void sort_bad() {
    std::stable_sort(bad.begin(), bad.end(),
                     [](const BadRecord& a, const BadRecord& b) { return a.address < b.address; });
    bad_sorted = bad.size();
  }
};

}  // namespace dlfs::reader
