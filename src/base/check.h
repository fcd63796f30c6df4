// DLFS_CHECK: an assertion that is always on. For our own bugs only; the world's faults are Errors.
#pragma once

namespace dlfs::base {
[[noreturn]] void check_failed(const char* expression, const char* file, int line) noexcept;
}

#define DLFS_CHECK(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : ::dlfs::base::check_failed(#condition, __FILE__, __LINE__))
