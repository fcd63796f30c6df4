// The memory that samples are read into: a hard bound, mapped as it is needed, handed out in blocks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/arena.h"

namespace dlfs::reader {

// A buddy allocator over slabs of one size, with mappings of their own for blocks that are longer than a slab. What is
// mapped, used or not, never exceeds the limit; a wholly free slab is unmapped when another use needs the room.
// **Thread**: one at a time; mapped_bytes() and peak_bytes() from any.
class MemoryPool {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;  // smallest block, and the alignment of every block

  struct Block {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;  // what may be used: at least what was asked
    std::uint32_t slab = 0;   // or the number of the mapping
    std::uint32_t page = 0;
    std::uint8_t order = 0;  // log2 of its pages; kOwnMapping for a mapping of its own
  };

  // `slab_floor_bytes` (a power of two, or 0): blocks up to this size come from slabs if the limit has room for four of
  // them.
  MemoryPool(std::uint64_t limit_bytes, std::uint64_t slab_floor_bytes);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // False when there is no room for `bytes` (> 0) more. Never blocks but for the kernel's mapping of memory.
  [[nodiscard]] bool allocate(std::uint64_t bytes, Block& block);
  // The same without regard to the limit, for the one sample that is larger than all of it.
  [[nodiscard]] bool allocate_beyond_limit(std::uint64_t bytes, Block& block);
  void release(const Block& block) noexcept;
  // Unmaps everything that is wholly free.
  void trim() noexcept;

  // Whether an empty pool has room for a block of `bytes`.
  bool fits(std::uint64_t bytes) const noexcept;
  std::uint64_t limit_bytes() const noexcept { return limit_; }
  std::uint64_t slab_bytes() const noexcept { return slab_bytes_; }
  // Bytes that blocks from slabs can have together.
  std::uint64_t slab_capacity_bytes() const noexcept { return limit_ / slab_bytes_ * slab_bytes_; }
  std::uint64_t used_bytes() const noexcept { return used_; }  // in blocks handed out
  std::uint64_t mapped_bytes() const noexcept { return mapped_.load(std::memory_order_relaxed); }
  std::uint64_t peak_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }
  const char* page_kind() const noexcept { return page_kind_; }

 private:
  static constexpr std::uint8_t kOwnMapping = 255;
  static constexpr std::size_t kOrders = 14;  // 4 KiB to 32 MiB
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Slab {
    base::Arena arena;
    // A page that begins a free block holds its order + 1, any other page 0; links of the free list of that order.
    std::vector<std::uint8_t> free_order;
    std::vector<std::uint64_t> previous, next;
  };
  struct Mapping {
    base::Arena arena;
    bool in_use = false;
  };

  static std::uint64_t handle(std::uint32_t slab, std::uint32_t page) noexcept {
    return std::uint64_t{slab} << 32 | page;
  }
  void push(std::uint32_t slab, std::uint32_t page, std::size_t order) noexcept;
  void remove(std::uint32_t slab, std::uint32_t page, std::size_t order) noexcept;
  bool take(std::size_t order, Block& block) noexcept;
  bool map_slab();
  bool make_room(std::uint64_t bytes) noexcept;
  bool allocate_mapping(std::uint64_t bytes, bool bounded, Block& block);
  bool reuse_mapping(std::uint64_t bytes, Block& block) noexcept;
  void unmap_slab(std::uint32_t slab) noexcept;
  bool unmap_one_spare() noexcept;
  void count_mapped(std::uint64_t bytes) noexcept;

  std::uint64_t limit_;
  std::uint64_t slab_bytes_;
  std::size_t top_order_;
  std::array<std::uint64_t, kOrders> free_heads_;
  std::vector<Slab> slabs_;
  std::vector<std::uint32_t> unmapped_slabs_;  // numbers to use again
  std::vector<Mapping> mappings_;
  std::vector<std::uint32_t> unmapped_mappings_;
  std::uint64_t used_ = 0;
  std::atomic<std::uint64_t> mapped_{0}, peak_{0};
  const char* page_kind_ = "none";
};

}  // namespace dlfs::reader
