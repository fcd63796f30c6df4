#include "reader/cache.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace dlfs::reader {

Cache::Cache(MemoryPool& pool, std::uint32_t chunk_bytes, std::uint64_t bump_block_bytes, std::uint64_t stale_draws)
    : pool_(pool),
      chunk_shift_(static_cast<unsigned>(std::countr_zero(chunk_bytes))),
      bump_block_bytes_(bump_block_bytes),
      stale_draws_(stale_draws) {}

Buffer* Cache::find(std::uint64_t address, std::uint64_t length) const noexcept {
  Buffer* buffer = map_.find(chunk_of(address));
  while (buffer != nullptr && !buffer->covers(address, length)) buffer = buffer->next_in_chunk;
  return buffer;
}

Buffer* Cache::find_slot(std::uint64_t key, std::uint64_t slot) const noexcept {
  Buffer* buffer = map_.find(key);
  while (buffer != nullptr && (slot < buffer->slot_begin || slot >= buffer->slot_end)) buffer = buffer->next_in_chunk;
  return buffer;
}

// ---- buffers ----

void Cache::lend_records(Buffer& buffer) {
  if (buffer.records.capacity() != 0 || spare_records_.empty()) return;
  buffer.records = std::move(spare_records_.back());
  spare_records_.pop_back();
}

void Cache::drop_records(Buffer& buffer) {
  if (buffer.records.capacity() == 0) return;
  buffer.records.clear();
  spare_records_.push_back(std::move(buffer.records));
  buffer.records = {};
}

Buffer* Cache::new_buffer() {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<Buffer>());
    spare_.reserve(all_.size());
    return all_.back().get();
  }
  Buffer* buffer = spare_.back();
  spare_.pop_back();
  return buffer;
}

void Cache::free_buffer(Buffer& buffer) {
  forget(buffer);
  release_memory(buffer);
  buffer.slot_begin = buffer.slot_end = 0;
  drop_records(buffer);
  buffer.bad.clear();
  buffer.bad_sorted = 0;
  buffer.waiters.clear();
  buffer.ready = buffer.from_earlier_epoch = false;
  buffer.draws_left = buffer.last_draw = buffer.last_user = 0;
  buffer.idle_stamp = 0;
  buffer.epoch = buffer.unit = 0;
  spare_.push_back(&buffer);
}

void Cache::release_memory(Buffer& buffer) noexcept {
  if (buffer.memory == nullptr) return;
  if (buffer.shared != nullptr) {
    drop_user(buffer.shared);
  } else {
    pool_.release(buffer.block);
  }
  if (buffer.beyond_limit) beyond_limit_in_use_ = buffer.beyond_limit = false;
  buffer.shared = nullptr;
  buffer.memory = nullptr;
}

void Cache::drop_user(SharedBlock* shared) noexcept {
  if (--shared->users != 0) return;
  if (shared == open_) {
    shared->filled_bytes = 0;  // all that was cut from it is back: start again at its front
    shared->users = 1;
    return;
  }
  pool_.release(shared->block);
  spare_shared_.push_back(shared);
}

void Cache::forget(Buffer& buffer) noexcept {
  if (!buffer.cached) return;
  map_.remove(buffer.key, &buffer);
  cached_bytes_ -= buffer.block.bytes;
  buffer.cached = false;
  buffer.draws_left = 0;
}

Buffer* Cache::add_cached(std::uint64_t key, std::uint64_t begin, std::uint64_t end, std::uint64_t covers_begin,
                          std::uint64_t covers_end) {
  MemoryPool::Block block;
  if (!allocate(end - begin, block)) return nullptr;
  Buffer* buffer = new_buffer();
  buffer->begin = begin;
  buffer->end = end;
  buffer->covers_begin = covers_begin;
  buffer->covers_end = covers_end;
  buffer->block = block;
  buffer->memory = block.data;
  buffer->cached = true;
  buffer->last_draw = clock_;
  buffer->key = key;
  map_.add(key, buffer);
  cached_bytes_ += block.bytes;
  return buffer;
}

bool Cache::add_private(const std::vector<Range>& ranges, std::vector<Buffer*>& buffers) {
  buffers.clear();
  for (const Range& range : ranges) {
    Buffer* buffer = new_buffer();
    buffer->begin = buffer->covers_begin = range.begin;
    buffer->end = buffer->covers_end = range.end;
    buffers.push_back(buffer);
    if (place(*buffer)) continue;
    for (Buffer* placed : buffers) free_buffer(*placed);
    buffers.clear();
    return false;
  }
  return true;
}

// Cuts memory for a private buffer from the open block, or takes a block for it alone when it is long.
bool Cache::place(Buffer& buffer) {
  const std::uint64_t bytes = buffer.length();
  if (!pool_.fits(bytes)) return place_beyond_limit(buffer);
  if (bytes > bump_block_bytes_ / 4) {
    if (!allocate(bytes, buffer.block)) return false;
    buffer.memory = buffer.block.data;
    return true;
  }
  if (open_ == nullptr || open_->filled_bytes + bytes > open_->block.bytes) {
    MemoryPool::Block block;
    if (!allocate(bump_block_bytes_, block)) return false;
    SharedBlock* const before = open_;
    if (spare_shared_.empty()) {
      shared_.push_back(std::make_unique<SharedBlock>());
      spare_shared_.reserve(shared_.size());
      open_ = shared_.back().get();
    } else {
      open_ = spare_shared_.back();
      spare_shared_.pop_back();
    }
    *open_ = {block, 0, 1};  // the one user is being open
    if (before != nullptr) drop_user(before);
  }
  buffer.shared = open_;
  buffer.memory = open_->block.data + open_->filled_bytes;
  open_->filled_bytes += bytes;
  ++open_->users;
  return true;
}

bool Cache::place_beyond_limit(Buffer& buffer) {
  if (beyond_limit_in_use_ || !pool_.allocate_beyond_limit(buffer.length(), buffer.block)) return false;
  buffer.memory = buffer.block.data;
  beyond_limit_in_use_ = buffer.beyond_limit = true;
  return true;
}

// ---- use ----

void Cache::note_draw(Buffer& buffer) noexcept {
  buffer.last_draw = ++clock_;
  if (buffer.draws_left > 0) --buffer.draws_left;
}

void Cache::settle(Buffer& buffer, std::uint64_t next_use) {
  if (!unused(buffer)) return;
  if (!buffer.cached) return free_buffer(buffer);
  if (buffer.draws_left > 0) return;
  if (next_use == kNeverUsed || !buffer.bad.empty()) return free_buffer(buffer);
  drop_records(buffer);  // listed again when it is drawn from again
  if (next_use == kUnknown) {
    ++untracked_;
    return;
  }
  buffer.idle_stamp = next_stamp_++;
  idle_.push_back({next_use, &buffer, buffer.idle_stamp});
  std::push_heap(idle_.begin(), idle_.end());
  if (idle_.size() > 64 + 2 * all_.size()) compact_idle();
}

void Cache::compact_idle() {
  std::erase_if(idle_,
                [](const Idle& entry) { return entry.buffer->idle_stamp != entry.stamp || !unused(*entry.buffer); });
  std::make_heap(idle_.begin(), idle_.end());
}

// ---- eviction ----

bool Cache::allocate(std::uint64_t bytes, MemoryPool::Block& block) {
  if (!pool_.fits(bytes)) return false;
  while (!pool_.allocate(bytes, block)) {
    if (!evict_one()) return false;
  }
  return true;
}

bool Cache::evict_one() {
  while (!idle_.empty()) {
    std::pop_heap(idle_.begin(), idle_.end());
    const Idle entry = idle_.back();
    idle_.pop_back();
    if (entry.buffer->idle_stamp != entry.stamp || !unused(*entry.buffer) || entry.buffer->draws_left > 0) continue;
    ++evictions_;
    free_buffer(*entry.buffer);
    return true;
  }
  if (untracked_ != 0) {
    if (evict_next(false)) return true;
    untracked_ = 0;  // not worth another walk before one more was settled
  }
  return evict_stale(stale_draws_) || (desperate_ && evict_next(true));
}

// Whichever unused buffer comes next, going round.
bool Cache::evict_next(bool partly_drawn) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    Buffer& buffer = *all_[untracked_cursor_++ % all_.size()];
    if (!buffer.cached || !unused(buffer) || (buffer.draws_left > 0 && !partly_drawn)) continue;
    ++evictions_;
    free_buffer(buffer);
    return true;
  }
  return false;
}

bool Cache::evict_stale(std::uint64_t age) {
  if (clock_ < scanned_at_ + stale_draws_ / 4) return false;  // a walk over all buffers, now and then
  scanned_at_ = clock_;
  bool freed = false;
  for (const auto& buffer : all_) {
    if (!buffer->cached || !unused(*buffer) || buffer->last_draw + age > clock_) continue;
    ++evictions_;
    free_buffer(*buffer);
    freed = true;
  }
  return freed;
}

void Cache::evict_all() {
  for (const auto& buffer : all_) {
    if (buffer->memory == nullptr || !unused(*buffer)) continue;
    ++evictions_;
    free_buffer(*buffer);
  }
  idle_.clear();
  if (open_ != nullptr && open_->users == 1) {
    SharedBlock* const last = open_;
    open_ = nullptr;
    drop_user(last);
  }
}

}  // namespace dlfs::reader
