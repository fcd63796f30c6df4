// dlfs::Sequence for Python: waits in slices so that signals are seen, and can be closed from any thread.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>

#include "dlfs/dlfs.hpp"

namespace dlfs::python {

namespace nb = nanobind;

// **Thread**: any; consumers take turns. Nobody waits for the GIL while holding the mutex, so close() can wait for a
// consumer's slice to end. **fork**: in a child every call raises kForked, and nothing of the parent's is destroyed.
class PySequence {
 public:
  explicit PySequence(Sequence sequence) : sequence_(std::move(sequence)) {}
  PySequence(const PySequence&) = delete;
  PySequence& operator=(const PySequence&) = delete;
  ~PySequence();

  nb::object next();  // a Batch, or None after the last epoch. **Blocks** without the GIL
  void close();       // stops the poller thread. Idempotent
  std::uint64_t batches_per_epoch();
  std::uint64_t epoch();
  std::uint64_t next_batch();
  nb::bytes state();
  nb::dict statistics();
  nb::object notes();

 private:
  struct Outcome;
  Outcome wait(std::chrono::milliseconds slice);
  template <class Work>
  auto locked(Work&& work);  // work(Sequence&) without the GIL; raises when closed or forked
  void check_process() const;

  std::mutex mutex_;
  std::optional<Sequence> sequence_;
  std::atomic<bool> closing_{false};
  pid_t process_ = getpid();
};

void define_sequence(nb::module_& m);

}  // namespace dlfs::python
