// dlfs::Batch for Python: the batch's memory, and read-only memoryviews of it that keep it alive.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "dlfs/dlfs.hpp"

namespace dlfs::python {

namespace nb = nanobind;

// Owns a batch. In a forked child it is dropped without running the destructor: its memory belongs to the parent's
// reader, whose locks may have been held at the moment of the fork.
class PyBatch {
 public:
  explicit PyBatch(Batch batch) : batch_(std::move(batch)) {}
  PyBatch(PyBatch&&) = default;
  PyBatch& operator=(PyBatch&&) = delete;
  ~PyBatch() {
    if (batch_ && getpid() != process_) static_cast<void>(new Batch(std::move(*batch_)));
  }
  const Batch& get() const noexcept { return *batch_; }

 private:
  std::optional<Batch> batch_;
  pid_t process_ = getpid();
};

void define_batch(nb::module_& m);

}  // namespace dlfs::python
