#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace dlfs {

const char* code_name(Code code) noexcept {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kExists:
      return "exists";
    case Code::kIncomplete:
      return "incomplete";
    case Code::kForeign:
      return "foreign";
    case Code::kUnsupportedVersion:
      return "unsupported version";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kTruncated:
      return "truncated";
    case Code::kIo:
      return "input/output error";
    case Code::kNoSpace:
      return "no space";
    case Code::kReadOnly:
      return "read-only";
    case Code::kTimedOut:
      return "timed out";
    case Code::kInterrupted:
      return "interrupted";
    case Code::kDeviceLost:
      return "device lost";
    case Code::kForked:
      return "forked";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kBusy:
      return "busy";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kSourceChanged:
      return "source changed";
    case Code::kDuplicateName:
      return "duplicate name";
    case Code::kSchemaMismatch:
      return "schema mismatch";
  }
  return "unknown";
}

namespace base {

void check_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "dlfs: internal error: %s at %s:%d\n", expression, file, line);
  std::abort();
}

namespace {

Code code_of_errno(int errno_value) {
  switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EEXIST:
      return Code::kExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Code::kNoSpace;
    case EROFS:
    case EACCES:
    case EPERM:
      return Code::kReadOnly;
    case ENODEV:
    case ENXIO:
    case ESHUTDOWN:
      return Code::kDeviceLost;
    case ETIMEDOUT:
      return Code::kTimedOut;
    case EINTR:
    case ECANCELED:
      return Code::kInterrupted;
    case ENOMEM:
      return Code::kOutOfMemory;
    case EBUSY:
    case EWOULDBLOCK:
      return Code::kBusy;
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::kUnsupported;
    case EINVAL:
    case ENAMETOOLONG:
    case EISDIR:
    case ELOOP:
      return Code::kInvalidArgument;
    default:
      return Code::kIo;
  }
}

// Length of the valid UTF-8 sequence at the front of `s`, or 0.
std::size_t utf8_length(std::string_view s) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || s.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);  // overlong forms, surrogates and code points above U+10FFFF
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
      (lead == 0xF4 && second > 0x8F) || (lead == 0xC2 && second < 0xA0)) {  // the last: C1 control characters
    return 0;
  }
  return length;
}

}  // namespace

Error errno_error(int errno_value, std::string sentence) {
  return Error{code_of_errno(errno_value), std::move(sentence) + ": " + std::strerror(errno_value), errno_value};
}

std::string escape(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto c = static_cast<unsigned char>(bytes.front());
    const std::size_t length = utf8_length(bytes);
    if (length == 0 || c < 0x20 || c == 0x7F || c == '\\') {
      out += fmt::format("\\x{:02x}", c);
      bytes.remove_prefix(1);
    } else {
      out += bytes.substr(0, length);
      bytes.remove_prefix(length);
    }
  }
  return out;
}

std::string shorten(std::string_view bytes) {
  constexpr std::size_t kMost = 256;
  std::string out = escape(bytes.substr(0, kMost));
  if (bytes.size() > kMost) out.append("...");
  return out;
}

}  // namespace base
}  // namespace dlfs
