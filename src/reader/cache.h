// The buffers that exist, which of them hold which part of the media, and who goes when memory is short.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reader/buffer.h"
#include "reader/chunk_map.h"
#include "reader/memory_pool.h"

namespace dlfs::reader {

inline constexpr std::uint64_t kNeverUsed = ~std::uint64_t{0};

// Eviction: buffers that no batch uses go in the order of their next use, the furthest first (Belady's rule, which the
// known order makes possible); those that the current epoch has still to draw from go last. **Thread**: one at a time.
class Cache {
 public:
  // `stale_draws`: a piece that was not drawn from for so many draws will not be any more (its epoch was entered in the
  // middle).
  Cache(MemoryPool& pool, std::uint32_t chunk_bytes, std::uint64_t bump_block_bytes, std::uint64_t stale_draws);

  // The buffer that holds the record whole, or null. Its key is the record's chunk.
  Buffer* find(std::uint64_t address, std::uint64_t length) const noexcept;
  std::uint64_t chunk_of(std::uint64_t address) const noexcept { return address >> chunk_shift_; }
  // The buffer with this key whose slots hold `slot`, or null.
  Buffer* find_slot(std::uint64_t key, std::uint64_t slot) const noexcept;

  // A buffer with memory of its own for [begin, end) that is found under `key`, or null when there is no room after
  // eviction.
  Buffer* add_cached(std::uint64_t key, std::uint64_t begin, std::uint64_t end, std::uint64_t covers_begin,
                     std::uint64_t covers_end);
  // Memory for a buffer's records comes from here and goes back here: few buffers need theirs at the same time.
  void lend_records(Buffer& buffer);
  void drop_records(Buffer& buffer);
  // Buffers that only the batches planned with them use. All or none: nothing changes when it returns false.
  struct Range {
    std::uint64_t begin = 0, end = 0;
  };
  bool add_private(const std::vector<Range>& ranges, std::vector<Buffer*>& buffers);

  void note_draw(Buffer& buffer) noexcept;  // one draw of a piece from it
  // The last batch that used it has let go, or its last request has come back: keeps it as cache or frees it.
  // `next_use`: when the next epoch needs it, in whatever unit grows; kNeverUsed frees it; kUnknown keeps it until
  // memory is short.
  static constexpr std::uint64_t kUnknown = kNeverUsed - 1;
  void settle(Buffer& buffer, std::uint64_t next_use);
  // Calls `visit(Buffer&)` for every buffer that find() sees; it may settle() the one it is given.
  template <class Visit>
  void for_each_cached(Visit&& visit) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i]->cached) visit(*all_[i]);
    }
  }
  // find() will not see it any more.
  void forget(Buffer& buffer) noexcept;
  // While set, memory that is short is also taken from pieces that are still to be drawn from: they will be read again.
  void set_desperate(bool desperate) noexcept { desperate_ = desperate; }
  // Frees every buffer that no batch uses, at the end.
  void evict_all();

  std::uint64_t cached_bytes() const noexcept { return cached_bytes_; }  // memory of the buffers that find() sees
  std::uint64_t evictions() const noexcept { return evictions_; }
  bool beyond_limit_in_use() const noexcept { return beyond_limit_in_use_; }

 private:
  struct Idle {
    std::uint64_t next_use = 0;
    Buffer* buffer = nullptr;
    std::uint64_t stamp = 0;
    bool operator<(const Idle& other) const noexcept { return next_use < other.next_use; }
  };
  static bool unused(const Buffer& buffer) noexcept {
    return buffer.refs == 0 && buffer.requests == 0 && buffer.abandoned == 0;
  }
  Buffer* new_buffer();
  void free_buffer(Buffer& buffer);
  bool allocate(std::uint64_t bytes, MemoryPool::Block& block);
  bool evict_one();
  bool evict_stale(std::uint64_t age);
  bool evict_next(bool partly_drawn);
  bool place(Buffer& buffer);
  bool place_beyond_limit(Buffer& buffer);
  void release_memory(Buffer& buffer) noexcept;
  void drop_user(SharedBlock* shared) noexcept;
  void compact_idle();

  MemoryPool& pool_;
  unsigned chunk_shift_;
  std::uint64_t bump_block_bytes_;
  std::uint64_t stale_draws_;
  std::uint64_t clock_ = 0, scanned_at_ = 0;  // draws
  std::uint64_t cached_bytes_ = 0, evictions_ = 0;
  bool beyond_limit_in_use_ = false, desperate_ = false;
  std::vector<std::unique_ptr<Buffer>> all_;
  std::vector<Buffer*> spare_;
  std::vector<std::vector<RecordRef>> spare_records_;
  ChunkMap map_;
  std::vector<Idle> idle_;  // a heap, the furthest next use on top; outdated entries are skipped
  std::uint64_t next_stamp_ = 1, untracked_cursor_ = 0, untracked_ = 0;
  std::vector<std::unique_ptr<SharedBlock>> shared_;
  std::vector<SharedBlock*> spare_shared_;
  SharedBlock* open_ = nullptr;  // where the next private buffer is cut from
};

}  // namespace dlfs::reader
