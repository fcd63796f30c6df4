// How much to read at once, what to keep, and how far ahead, from the shape of the data and the memory given. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "order/order.h"

namespace dlfs::reader {

struct Shape {
  order::Parameters order;
  std::uint64_t epochs = 1;  // 0: endless
  std::uint64_t samples = 1, units = 1;
  std::uint64_t data_bytes = 0;    // of all chunks
  std::uint64_t sample_bytes = 0;  // of all records together
  std::uint32_t chunk_bytes = 256u << 10;
  std::uint32_t block_bytes = 512;  // of the device
  std::uint64_t cache_bytes = 256u << 20;
  std::uint64_t slab_capacity_bytes = 0;  // of the pool
  std::uint64_t slab_bytes = 0;
  std::uint32_t prefetch_batches = 0;
};

struct Policy {
  // Chunk mode: a piece is one read, kept until all its samples are drawn. Else samples are read by themselves,
  // coalesced.
  bool by_piece = false;
  // Chunk mode: read the unit whole even when its piece is less, because all units stay.
  bool whole_units = false;
  // Sample-wise: a miss reads its whole chunk while the chunks kept are fewer bytes than this. 0: never.
  std::uint64_t resident_limit_bytes = 0;
  std::uint64_t bump_block_bytes = 64u << 10;  // samples read by themselves are cut from blocks of this size
  std::uint64_t footprint_bytes = 0;           // of one sample read by itself, on average
  // Samples read by themselves: batches that are planned together, and so share reads and blocks of memory, need at
  // most so much.
  std::uint64_t group_limit_bytes = 32u << 20;
  std::uint32_t batches_ahead = 64;
  std::uint64_t stale_draws = 0;
  std::string notes;
};

// What cache_bytes is when nobody set it: 256 MiB, or what the batches and chunk mode's lanes need, and at most a
// quarter of `memory_bytes` then. Of `shape` it looks at the data and the order.
std::uint64_t automatic_cache_bytes(const Shape& shape, std::uint64_t memory_bytes);
// Bytes of memory that this machine has, or that its control group may use.
std::uint64_t memory_of_machine();
// Batches that may be finished or under way before the consumer takes them. In chunk mode a read serves many batches,
// so that small samples want many of them. Of `shape` it looks at samples and order.
std::uint32_t batches_ahead(const Shape& shape);
Policy choose_policy(const Shape& shape);

// "1.5 GiB", "640 KiB", "17 bytes".
std::string in_words(std::uint64_t bytes);

}  // namespace dlfs::reader
