#include "target/buffer_pool.h"

#include <bit>

#include "base/check.h"

namespace dlfs::target {
namespace {

constexpr std::align_val_t kAlignment{4096};

}  // namespace

BufferPool::~BufferPool() {
  for (auto& list : kept_) {
    for (std::byte* buffer : list) ::operator delete(buffer, kAlignment);
  }
}

std::size_t BufferPool::class_of(std::size_t bytes) noexcept {
  DLFS_CHECK(bytes > 0 && bytes <= kMaxBytes);
  return static_cast<std::size_t>(std::bit_width((bytes - 1) / kMinBytes));
}

// Gives kept buffers back to the system, the largest first, until `bytes` more fit.
bool BufferPool::make_room(std::size_t bytes) noexcept {
  for (std::size_t i = kClasses; i-- > 0;) {
    while (held_bytes_ + bytes > limit_bytes_ && !kept_[i].empty()) {
      ::operator delete(kept_[i].back(), kAlignment);
      kept_[i].pop_back();
      held_bytes_ -= kMinBytes << i;
    }
  }
  return held_bytes_ + bytes <= limit_bytes_;
}

std::byte* BufferPool::take(std::size_t bytes) noexcept {
  const std::size_t index = class_of(bytes);
  const std::size_t size = kMinBytes << index;
  if (!kept_[index].empty()) {
    std::byte* buffer = kept_[index].back();
    kept_[index].pop_back();
    used_bytes_ += size;
    return buffer;
  }
  if (!make_room(size)) return nullptr;
  auto* buffer = static_cast<std::byte*>(::operator new(size, kAlignment, std::nothrow));
  if (buffer == nullptr) return nullptr;
  held_bytes_ += size;
  used_bytes_ += size;
  return buffer;
}

void BufferPool::give(std::byte* buffer, std::size_t bytes) noexcept {
  const std::size_t index = class_of(bytes);
  used_bytes_ -= kMinBytes << index;
  kept_[index].push_back(buffer);
}

}  // namespace dlfs::target
