#include "base/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace dlfs::base {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = 2u << 20;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

bool transparent_huge_pages_allowed() {
  bool allowed = false;
  if (std::FILE* file = std::fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re")) {
    char text[128] = {};
    const std::size_t length = std::fread(text, 1, sizeof text - 1, file);
    text[length] = 0;
    allowed = std::strstr(text, "[never]") == nullptr && length > 0;
    std::fclose(file);
  }
  return allowed;
}

void* map(std::size_t size, int flags) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

const char* page_kind_name(PageKind kind) noexcept {
  switch (kind) {
    case PageKind::kHugeTlb:
      return "hugetlb";
    case PageKind::kTransparentHuge:
      return "transparent huge";
    case PageKind::kPlain:
      return "plain";
  }
  return "unknown";
}

Result<Arena> Arena::create(std::size_t size_bytes, bool huge) {
  Arena arena;
  if (size_bytes > SIZE_MAX / 2) return make_error(Code::kOutOfMemory, "cannot map {} bytes of memory", size_bytes);
  if (huge && size_bytes >= kHugePageBytes) {
    const std::size_t size = round_up(size_bytes, kHugePageBytes);
    // MAP_HUGETLB reserves at once, so that success here cannot become SIGBUS later.
    if (void* memory = map(size, MAP_HUGETLB)) {
      arena.data_ = static_cast<std::byte*>(memory);
      arena.size_ = size;
      arena.kind_ = PageKind::kHugeTlb;
      return arena;
    }
    // Transparent huge pages need an aligned range: map one page more and give the ends back.
    if (void* memory = map(size + kHugePageBytes, 0)) {
      auto* begin = static_cast<std::byte*>(memory);
      const auto address = reinterpret_cast<std::uintptr_t>(begin);
      const std::size_t front = round_up(address, kHugePageBytes) - address;
      if (front > 0) munmap(begin, front);
      if (front < kHugePageBytes) munmap(begin + front + size, kHugePageBytes - front);
      arena.data_ = begin + front;
      arena.size_ = size;
      const bool advised = madvise(arena.data_, size, MADV_HUGEPAGE) == 0;
      arena.kind_ = advised && transparent_huge_pages_allowed() ? PageKind::kTransparentHuge : PageKind::kPlain;
      return arena;
    }
  }
  const std::size_t size = round_up(size_bytes == 0 ? 1 : size_bytes, kPageBytes);
  void* memory = map(size, 0);
  if (memory == nullptr) return errno_error(ENOMEM, fmt::format("cannot map {} bytes of memory", size));
  arena.data_ = static_cast<std::byte*>(memory);
  arena.size_ = size;
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), kind_(other.kind_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(kind_, other.kind_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace dlfs::base
