#include "reader/memory_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace dlfs::reader {
namespace {

constexpr std::uint64_t kNoBlock = ~std::uint64_t{0};
constexpr std::uint64_t kLargestSlabBytes = 32u << 20;
constexpr std::uint64_t kHugePageBytes = 2u << 20;
constexpr std::uint64_t kSlabsWanted =
    16;  // few enough for huge pages, many enough that the odd rest of the limit is small

std::uint64_t choose_slab_bytes(std::uint64_t limit, std::uint64_t floor) {
  const std::uint64_t fair = std::bit_floor(std::max(limit / kSlabsWanted, MemoryPool::kPageBytes));
  const std::uint64_t size = std::min(fair, kLargestSlabBytes);
  return floor <= kLargestSlabBytes && limit / 4 >= floor ? std::max(size, floor) : size;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

// What an Arena of `bytes` occupies at most.
std::uint64_t mapping_bytes(std::uint64_t bytes) {
  return round_up(bytes, bytes >= kHugePageBytes ? kHugePageBytes : MemoryPool::kPageBytes);
}

}  // namespace

MemoryPool::MemoryPool(std::uint64_t limit_bytes, std::uint64_t slab_floor_bytes)
    : limit_(limit_bytes),
      slab_bytes_(choose_slab_bytes(limit_bytes, slab_floor_bytes)),
      top_order_(static_cast<std::size_t>(std::countr_zero(slab_bytes_ / kPageBytes))) {
  DLFS_CHECK(top_order_ < kOrders);
  free_heads_.fill(kNoBlock);
}

void MemoryPool::push(std::uint32_t slab, std::uint32_t page, std::size_t order) noexcept {
  Slab& s = slabs_[slab];
  s.free_order[page] = static_cast<std::uint8_t>(order + 1);
  s.previous[page] = kNoBlock;
  s.next[page] = free_heads_[order];
  if (const std::uint64_t head = free_heads_[order]; head != kNoBlock) {
    slabs_[head >> 32].previous[static_cast<std::uint32_t>(head)] = handle(slab, page);
  }
  free_heads_[order] = handle(slab, page);
}

void MemoryPool::remove(std::uint32_t slab, std::uint32_t page, std::size_t order) noexcept {
  Slab& s = slabs_[slab];
  const std::uint64_t previous = s.previous[page];
  const std::uint64_t next = s.next[page];
  if (previous == kNoBlock) {
    free_heads_[order] = next;
  } else {
    slabs_[previous >> 32].next[static_cast<std::uint32_t>(previous)] = next;
  }
  if (next != kNoBlock) slabs_[next >> 32].previous[static_cast<std::uint32_t>(next)] = previous;
  s.free_order[page] = 0;
}

bool MemoryPool::take(std::size_t order, Block& block) noexcept {
  std::size_t from = order;
  while (from <= top_order_ && free_heads_[from] == kNoBlock) ++from;
  if (from > top_order_) return false;
  const auto slab = static_cast<std::uint32_t>(free_heads_[from] >> 32);
  const auto page = static_cast<std::uint32_t>(free_heads_[from]);
  remove(slab, page, from);
  for (std::size_t o = from; o > order; --o) push(slab, page + (1u << (o - 1)), o - 1);
  block = {slabs_[slab].arena.bytes().data() + page * kPageBytes, kPageBytes << order, slab, page,
           static_cast<std::uint8_t>(order)};
  used_ += block.bytes;
  return true;
}

void MemoryPool::count_mapped(std::uint64_t bytes) noexcept {
  const std::uint64_t now = mapped_bytes() + bytes;
  mapped_.store(now, std::memory_order_relaxed);
  if (now > peak_bytes()) peak_.store(now, std::memory_order_relaxed);
}

bool MemoryPool::map_slab() {
  if (!make_room(slab_bytes_)) return false;
  auto arena = base::Arena::create(slab_bytes_, slab_bytes_ >= kHugePageBytes);
  if (!arena.ok()) return false;
  page_kind_ = base::page_kind_name(arena->page_kind());
  std::uint32_t number = static_cast<std::uint32_t>(slabs_.size());
  if (unmapped_slabs_.empty()) {
    slabs_.emplace_back();
  } else {
    number = unmapped_slabs_.back();
    unmapped_slabs_.pop_back();
  }
  Slab& slab = slabs_[number];
  slab.arena = std::move(arena).value();
  const std::size_t pages = slab_bytes_ / kPageBytes;
  slab.free_order.assign(pages, 0);
  slab.previous.assign(pages, kNoBlock);
  slab.next.assign(pages, kNoBlock);
  count_mapped(slab_bytes_);
  push(number, 0, top_order_);
  return true;
}

void MemoryPool::unmap_slab(std::uint32_t slab) noexcept {
  remove(slab, 0, top_order_);
  slabs_[slab].arena = base::Arena();
  unmapped_slabs_.push_back(slab);
  mapped_.store(mapped_bytes() - slab_bytes_, std::memory_order_relaxed);
}

bool MemoryPool::unmap_one_spare() noexcept {
  for (std::uint32_t i = 0; i < mappings_.size(); ++i) {
    Mapping& mapping = mappings_[i];
    const std::uint64_t bytes = mapping.arena.bytes().size();
    if (mapping.in_use || bytes == 0) continue;
    mapping.arena = base::Arena();
    unmapped_mappings_.push_back(i);
    mapped_.store(mapped_bytes() - bytes, std::memory_order_relaxed);
    return true;
  }
  if (free_heads_[top_order_] == kNoBlock) return false;
  unmap_slab(static_cast<std::uint32_t>(free_heads_[top_order_] >> 32));
  return true;
}

bool MemoryPool::make_room(std::uint64_t bytes) noexcept {
  if (bytes > limit_) return false;
  while (mapped_bytes() > limit_ - bytes) {
    if (!unmap_one_spare()) return false;
  }
  return true;
}

bool MemoryPool::fits(std::uint64_t bytes) const noexcept {
  return bytes <= slab_bytes_ ? slab_bytes_ <= limit_ : mapping_bytes(bytes) <= limit_;
}

bool MemoryPool::allocate(std::uint64_t bytes, Block& block) {
  if (bytes > slab_bytes_) return allocate_mapping(bytes, true, block);
  const std::uint64_t rounded = std::bit_ceil(std::max(bytes, kPageBytes));
  const auto order = static_cast<std::size_t>(std::countr_zero(rounded / kPageBytes));
  return take(order, block) || (map_slab() && take(order, block));
}

bool MemoryPool::allocate_beyond_limit(std::uint64_t bytes, Block& block) {
  return allocate_mapping(bytes, false, block);
}

// A spare that is not much longer than needed is warm memory and saves the kernel's work.
bool MemoryPool::reuse_mapping(std::uint64_t bytes, Block& block) noexcept {
  for (std::uint32_t i = 0; i < mappings_.size(); ++i) {
    Mapping& mapping = mappings_[i];
    const std::span<std::byte> memory = mapping.arena.bytes();
    if (mapping.in_use || memory.size() < bytes || memory.size() - bytes > bytes / 4) continue;
    mapping.in_use = true;
    block = {memory.data(), memory.size(), i, 0, kOwnMapping};
    used_ += memory.size();
    return true;
  }
  return false;
}

bool MemoryPool::allocate_mapping(std::uint64_t bytes, bool bounded, Block& block) {
  if (reuse_mapping(bytes, block)) return true;
  const std::uint64_t size = mapping_bytes(bytes);
  if (bounded && !make_room(size)) return false;
  auto arena = base::Arena::create(size, size >= kHugePageBytes);
  if (!arena.ok()) return false;
  std::uint32_t number = static_cast<std::uint32_t>(mappings_.size());
  if (unmapped_mappings_.empty()) {
    mappings_.emplace_back();
  } else {
    number = unmapped_mappings_.back();
    unmapped_mappings_.pop_back();
  }
  Mapping& mapping = mappings_[number];
  mapping.arena = std::move(arena).value();
  mapping.in_use = true;
  const std::span<std::byte> memory = mapping.arena.bytes();
  count_mapped(memory.size());
  used_ += memory.size();
  block = {memory.data(), memory.size(), number, 0, kOwnMapping};
  return true;
}

void MemoryPool::release(const Block& block) noexcept {
  used_ -= block.bytes;
  if (block.order == kOwnMapping) {
    mappings_[block.slab].in_use = false;
    if (mapped_bytes() > limit_) make_room(0);
    return;
  }
  std::uint32_t page = block.page;
  std::size_t order = block.order;
  while (order < top_order_) {
    const std::uint32_t buddy = page ^ (1u << order);
    if (slabs_[block.slab].free_order[buddy] != order + 1) break;
    remove(block.slab, buddy, order);
    page &= ~(1u << order);
    ++order;
  }
  push(block.slab, page, order);
}

void MemoryPool::trim() noexcept {
  while (unmap_one_spare()) {
  }
}

}  // namespace dlfs::reader
