// Building Errors: one sentence at the place where it failed.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "dlfs/result.h"

namespace dlfs::base {

template <class... Args>
Error make_error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

// Appends ": <strerror text>" and picks the code that fits the errno (ENOENT -> kNotFound, ENOSPC and EDQUOT ->
// kNoSpace, EROFS, EACCES and EPERM -> kReadOnly when writing else kIo, ENODEV and ENXIO -> kDeviceLost, ...).
// errno_value is kept.
Error errno_error(int errno_value, std::string sentence);

// A sample name or path made printable: control characters, invalid UTF-8 and backslashes become \xNN.
std::string escape(std::string_view bytes);
// The same for what somebody else chose the length of: at most 256 bytes of it, "..." in place of the rest.
std::string shorten(std::string_view bytes);

}  // namespace dlfs::base
