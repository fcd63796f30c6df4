// Buffers for I/O within a bound: kept and used again while they are warm.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace dlfs::target {

// Sizes are rounded up to a power of two from kMinBytes to kMaxBytes; memory is aligned to 4096 bytes. **Thread**: one.
class BufferPool {
 public:
  static constexpr std::size_t kMinBytes = 4096, kMaxBytes = 1u << 20;

  explicit BufferPool(std::size_t limit_bytes) noexcept : limit_bytes_(limit_bytes) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Null when the limit leaves no room now. Precondition: 0 < bytes <= kMaxBytes.
  std::byte* take(std::size_t bytes) noexcept;
  void give(std::byte* buffer, std::size_t bytes) noexcept;  // `bytes` as it was asked for
  std::size_t used_bytes() const noexcept { return used_bytes_; }

 private:
  static constexpr std::size_t kClasses = 9;  // 4 KiB to 1 MiB
  static std::size_t class_of(std::size_t bytes) noexcept;
  bool make_room(std::size_t bytes) noexcept;

  std::size_t limit_bytes_, held_bytes_ = 0, used_bytes_ = 0;  // held: used and kept
  std::array<std::vector<std::byte*>, kClasses> kept_;
};

}  // namespace dlfs::target
