// Chunk number -> the chain of buffers that hold parts of it. Open addressing with linear probing and backward-shift
// deletion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mix.h"
#include "reader/buffer.h"

namespace dlfs::reader {

class ChunkMap {
 public:
  // Head of the chain (Buffer::next_in_chunk), or null.
  Buffer* find(std::uint64_t chunk) const noexcept {
    if (entries_.empty()) return nullptr;
    for (std::size_t i = home(chunk);; i = next(i)) {
      if (entries_[i].head == nullptr) return nullptr;
      if (entries_[i].chunk == chunk) return entries_[i].head;
    }
  }

  void add(std::uint64_t chunk, Buffer* buffer) {
    if ((count_ + 1) * 2 > entries_.size()) grow();
    std::size_t i = home(chunk);
    while (entries_[i].head != nullptr && entries_[i].chunk != chunk) i = next(i);
    if (entries_[i].head == nullptr) ++count_;
    buffer->next_in_chunk = entries_[i].head;
    entries_[i] = {chunk, buffer};
  }

  // Precondition: `buffer` was added under `chunk`.
  void remove(std::uint64_t chunk, Buffer* buffer) noexcept {
    std::size_t i = home(chunk);
    while (entries_[i].chunk != chunk || entries_[i].head == nullptr) i = next(i);
    Buffer** link = &entries_[i].head;
    while (*link != buffer) link = &(*link)->next_in_chunk;
    *link = buffer->next_in_chunk;
    buffer->next_in_chunk = nullptr;
    if (entries_[i].head == nullptr) erase(i);
  }

  std::size_t size() const noexcept { return count_; }

 private:
  struct Entry {
    std::uint64_t chunk = 0;
    Buffer* head = nullptr;
  };

  std::size_t home(std::uint64_t chunk) const noexcept { return base::mix64(chunk) & (entries_.size() - 1); }
  std::size_t next(std::size_t i) const noexcept { return (i + 1) & (entries_.size() - 1); }

  void erase(std::size_t hole) noexcept {
    --count_;
    entries_[hole].head = nullptr;
    for (std::size_t i = next(hole); entries_[i].head != nullptr; i = next(i)) {
      const std::size_t wanted = home(entries_[i].chunk);
      const std::size_t mask = entries_.size() - 1;
      if (((i - wanted) & mask) < ((i - hole) & mask)) continue;  // it may not move in front of its home
      entries_[hole] = entries_[i];
      entries_[i].head = nullptr;
      hole = i;
    }
  }

  void grow() {
    std::vector<Entry> old(entries_.empty() ? 64 : entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.head == nullptr) continue;
      std::size_t i = home(entry.chunk);
      while (entries_[i].head != nullptr) i = next(i);
      entries_[i] = entry;
    }
  }

  std::vector<Entry> entries_;
  std::size_t count_ = 0;
};

}  // namespace dlfs::reader
