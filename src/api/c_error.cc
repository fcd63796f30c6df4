#include <algorithm>
#include <new>
#include <stdexcept>
#include <system_error>

#include "api/c_handles.h"

static_assert(sizeof(dlfs_error) == 1024);
static_assert(static_cast<int>(dlfs::Code::kInvalidArgument) == DLFS_E_INVALID_ARGUMENT);
static_assert(static_cast<int>(dlfs::Code::kNotFound) == DLFS_E_NOT_FOUND);
static_assert(static_cast<int>(dlfs::Code::kExists) == DLFS_E_EXISTS);
static_assert(static_cast<int>(dlfs::Code::kIncomplete) == DLFS_E_INCOMPLETE);
static_assert(static_cast<int>(dlfs::Code::kForeign) == DLFS_E_FOREIGN);
static_assert(static_cast<int>(dlfs::Code::kUnsupportedVersion) == DLFS_E_UNSUPPORTED_VERSION);
static_assert(static_cast<int>(dlfs::Code::kCorrupt) == DLFS_E_CORRUPT);
static_assert(static_cast<int>(dlfs::Code::kTruncated) == DLFS_E_TRUNCATED);
static_assert(static_cast<int>(dlfs::Code::kIo) == DLFS_E_IO);
static_assert(static_cast<int>(dlfs::Code::kNoSpace) == DLFS_E_NO_SPACE);
static_assert(static_cast<int>(dlfs::Code::kReadOnly) == DLFS_E_READ_ONLY);
static_assert(static_cast<int>(dlfs::Code::kTimedOut) == DLFS_E_TIMED_OUT);
static_assert(static_cast<int>(dlfs::Code::kInterrupted) == DLFS_E_INTERRUPTED);
static_assert(static_cast<int>(dlfs::Code::kDeviceLost) == DLFS_E_DEVICE_LOST);
static_assert(static_cast<int>(dlfs::Code::kForked) == DLFS_E_FORKED);
static_assert(static_cast<int>(dlfs::Code::kOutOfMemory) == DLFS_E_OUT_OF_MEMORY);
static_assert(static_cast<int>(dlfs::Code::kBusy) == DLFS_E_BUSY);
static_assert(static_cast<int>(dlfs::Code::kUnsupported) == DLFS_E_UNSUPPORTED);
static_assert(static_cast<int>(dlfs::Code::kSourceChanged) == DLFS_E_SOURCE_CHANGED);
static_assert(static_cast<int>(dlfs::Code::kDuplicateName) == DLFS_E_DUPLICATE_NAME);
static_assert(static_cast<int>(dlfs::Code::kSchemaMismatch) == DLFS_E_SCHEMA_MISMATCH);

namespace dlfs::api {

namespace {

constexpr char kCut[] = "...";

// Copies with a NUL; a longer text is cut in front of a UTF-8 character and ends in "...".
template <std::size_t N>
void copy_message(std::string_view from, char (&to)[N]) noexcept {
  std::size_t length = from.size();
  const bool cut = length >= N;
  if (cut) {
    length = N - sizeof kCut;
    while (length > 0 && (static_cast<unsigned char>(from[length]) & 0xC0) == 0x80) --length;
  }
  from.copy(to, length);
  if (cut) {
    std::memcpy(to + length, kCut, sizeof kCut);
  } else {
    to[length] = '\0';
  }
}

}  // namespace

void clear(dlfs_error* error) noexcept {
  if (error == nullptr) return;
  error->code = DLFS_OK;
  error->errno_value = 0;
  error->nvme_status = 0;
  error->reserved = 0;
  error->message[0] = '\0';
}

void store(dlfs_error* error, Code code, const char* message) noexcept {
  if (error == nullptr) return;
  clear(error);
  error->code = static_cast<std::int32_t>(code);
  copy_message(message, error->message);
}

void store(dlfs_error* error, const Error& from) noexcept {
  if (error == nullptr) return;
  clear(error);
  error->code = static_cast<std::int32_t>(from.code);
  error->errno_value = from.errno_value;
  error->nvme_status = from.nvme_status;
  copy_message(from.message, error->message);
}

void store_current_exception(dlfs_error* error) noexcept {
  constexpr const char* kNoMemory = "the process ran out of memory: free some, or ask for less at a time";
  try {
    throw;
  } catch (const std::bad_alloc&) {
    store(error, Code::kOutOfMemory, kNoMemory);
  } catch (const std::length_error&) {
    store(error, Code::kOutOfMemory, kNoMemory);
  } catch (const std::system_error& e) {  // a thread that could not be started, for example
    store(error, Code::kIo, e.what());
    if (error != nullptr) error->errno_value = e.code().value();
  } catch (const std::exception& e) {
    store(error, Code::kIo, e.what());
  } catch (...) {
    store(error, Code::kIo, "an exception of unknown type came from the C++ library");
  }
}

}  // namespace dlfs::api

const char* dlfs_code_name(std::int32_t code) {
  return code == DLFS_OK ? "ok" : dlfs::code_name(static_cast<dlfs::Code>(code));
}

const char* dlfs_version(void) { return dlfs::version(); }
