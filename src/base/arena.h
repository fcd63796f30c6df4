// A fixed block of anonymous memory for buffers: huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <span>

#include "dlfs/result.h"

namespace dlfs::base {

enum class PageKind { kHugeTlb, kTransparentHuge, kPlain };
const char* page_kind_name(PageKind kind) noexcept;  // "hugetlb", "transparent huge", "plain": static storage

// Owns one mapping; memory is zero at first and aligned to at least 4096 bytes (2 MiB when huge). Movable, not
// copyable.
// **Thread**: immutable after create(); the bytes are the user's to guard.
class Arena {
 public:
  // Tries MAP_HUGETLB (2 MiB pages) when `huge` and the size is at least 2 MiB, then transparent huge pages, then
  // plain. The size is rounded up to the page size in use. **Errors**: kOutOfMemory.
  static Result<Arena> create(std::size_t size_bytes, bool huge = true);
  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  PageKind page_kind() const noexcept { return kind_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  PageKind kind_ = PageKind::kPlain;
};

}  // namespace dlfs::base
