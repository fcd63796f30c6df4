// Turns samples that are wanted into few device reads. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dlfs::reader {

// A record that a batch needs. Addresses are from the start of the data area.
struct Want {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t id = 0;
  std::uint32_t batch = 0;   // number of the batch within the group that is planned together, the earliest is 0
  std::uint32_t sample = 0;  // place within that batch
};

// One read: whole blocks [begin, end), and the wants [first, first + count) of the sorted list that lie in it.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t batch = 0;  // the earliest batch that needs it
};

struct CoalesceRules {
  std::uint64_t block_bytes = 512;         // of the device
  std::uint64_t chunk_bytes = 256u << 10;  // extents never cross a chunk's edge, but for one record that itself does
  std::uint64_t gap_bytes = 8u << 10;      // unwanted bytes between two records that are cheaper to read than a request
  std::uint64_t longest_bytes = 128u << 10;
};

// Sorts `wants` by address and replaces `extents`, which come in the order of the batches that need them.
void coalesce(std::vector<Want>& wants, const CoalesceRules& rules, std::vector<Extent>& extents);

}  // namespace dlfs::reader
