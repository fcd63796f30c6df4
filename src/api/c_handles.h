// What the C API's opaque handles hold, and the one way in which its functions fail. Private to the module.
#pragma once

#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/try.h"
#include "dlfs/dlfs.h"
#include "dlfs/dlfs.hpp"

struct dlfs_volume {
  dlfs::Volume volume;
  dlfs::VolumeInfo info;  // what dlfs_stat's pointers point into
  std::string schema_text;
};

struct dlfs_file {
  dlfs::File file;
};

struct dlfs_sequence {
  dlfs::Volume volume;
  dlfs::SequenceOptions options;
  std::chrono::milliseconds timeout;
  std::optional<dlfs::Sequence> sequence;  // from the moment when the batch size is known
};

struct dlfs_batch {
  dlfs::Batch batch;
  std::size_t fields;
};

struct dlfs_writer {
  std::optional<dlfs::Writer> writer;  // until the commit
  std::uint64_t committed = 0;
  dlfs::VolumeInfo info;
};

namespace dlfs::api {

void clear(dlfs_error* error) noexcept;
void store(dlfs_error* error, const Error& from) noexcept;
void store(dlfs_error* error, Code code, const char* message) noexcept;
void store_current_exception(dlfs_error* error) noexcept;

// Runs `body`, which returns Result<R>. Gives its value, or `failed` with *error filled in; no exception gets out.
template <class R, class Body>
R guarded(dlfs_error* error, R failed, const Body& body) noexcept {
  clear(error);
  try {
    Result<R> result = body();
    if (result.ok()) return std::move(result).value();
    store(error, result.error());
  } catch (...) {
    store_current_exception(error);
  }
  return failed;
}

// The same for functions that return 0 or -1, with a body that returns Result<void>.
template <class Body>
int guarded(dlfs_error* error, const Body& body) noexcept {
  return guarded<int>(error, -1, [&]() -> Result<int> {
    DLFS_TRY(body());
    return 0;
  });
}

inline Error null_argument(const char* function, const char* argument) {
  return base::make_error(Code::kInvalidArgument, "{}: {} is NULL", function, argument);
}

// Return this error from a guarded body when `pointer` is NULL.
#define DLFS_REQUIRE(pointer)                                                           \
  do {                                                                                  \
    if ((pointer) == nullptr) return ::dlfs::api::null_argument(public_name, #pointer); \
  } while (false)

template <std::size_t N>
Result<void> check_reserved(const char* structure, const std::uint64_t (&reserved)[N]) {
  for (const std::uint64_t word : reserved) {
    if (word != 0) {
      return base::make_error(
          Code::kInvalidArgument,
          "a reserved member of {} is not zero: set the whole structure to zero first, or use the library "
          "that the program's dlfs.h belongs to",
          structure);
    }
  }
  return {};
}

Result<SequenceOptions> sequence_options(const dlfs_order* order);  // NULL: defaults. `batch` 0 is kept
Result<OnError> on_error_of(std::int32_t value);
void export_info(const VolumeInfo& from, dlfs_volume_info& to) noexcept;  // `to` points into `from`

}  // namespace dlfs::api
