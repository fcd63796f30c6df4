// Result<T>: a value, or an Error that says what went wrong and what to do about it. Nothing in DLFS throws below
// Python.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace dlfs {

// What kind of failure, for programs. The sentence for people is Error::message.
// The numbers are part of the C ABI (DLFS_E_* in dlfs.h) and of the CLI's --json: never renumber, only add.
enum class Code : int {
  kInvalidArgument = 1,     // the caller asked for something that makes no sense; the message says what would
  kNotFound = 2,            // no such file, device, sample id or name
  kExists = 3,              // the destination holds data, or a name is taken
  kIncomplete = 4,          // a pack into this volume was never committed
  kForeign = 5,             // this is not a DLFS volume
  kUnsupportedVersion = 6,  // a DLFS volume of a newer format
  kCorrupt = 7,             // a check failed: the bytes are not what was written
  kTruncated = 8,           // the device is shorter than the volume that was written to it
  kIo = 9,                  // the device or the operating system failed a read or write
  kNoSpace = 10,            // device or file system full
  kReadOnly = 11,           // write to something that cannot be written
  kTimedOut = 12,           // a deadline passed
  kInterrupted = 13,        // a signal or a cancel call
  kDeviceLost = 14,         // the device went away
  kForked = 15,             // the object belongs to the parent process
  kOutOfMemory = 16,        // the memory limit is too small for what was asked
  kBusy = 17,               // somebody else holds it (another packer)
  kUnsupported = 18,        // not on this kernel, device or build
  kSourceChanged = 19,      // a source file changed, vanished or could not be read while it was packed
  kDuplicateName = 20,      // two samples with one name
  kSchemaMismatch = 21,     // a sample does not fit the volume's schema
};

// The enumerator's name in words, for example "not found". Static storage.
const char* code_name(Code code) noexcept;

struct Error {
  Code code = Code::kInvalidArgument;
  std::string message;  // one sentence: what failed, on what, and what to do. UTF-8, printable (names are escaped)
  int errno_value = 0;  // the errno, where the operating system failed; else 0
  std::uint16_t nvme_status = 0;  // the NVMe status field, where a controller failed a command; else 0
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: conversions are the point
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  // Precondition of value access: ok(). Precondition of error(): !ok(). Violations abort.
  T& value() & { return check(), *std::get_if<0>(&state_); }
  const T& value() const& { return check(), *std::get_if<0>(&state_); }
  T&& value() && { return check(), std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return check_error(), *std::get_if<1>(&state_); }
  Error&& error() && { return check_error(), std::move(*std::get_if<1>(&state_)); }

 private:
  void check() const {
    if (!ok()) std::abort();
  }
  void check_error() const {
    if (ok()) std::abort();
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT
  bool ok() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  void value() const {
    if (!ok_) std::abort();
  }
  const Error& error() const& {
    if (ok_) std::abort();
    return error_;
  }
  Error&& error() && {
    if (ok_) std::abort();
    return std::move(error_);
  }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace dlfs
