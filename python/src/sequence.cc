#include "sequence.h"

#include <utility>

#include "batch.h"
#include "buffers.h"
#include "errors.h"

namespace dlfs::python {
namespace {

using std::chrono::steady_clock;

// Between two looks at the signals that arrived.
constexpr std::chrono::milliseconds kSlice{50};

nb::dict percentiles(const Percentiles& from) {
  nb::dict into;
  into["p50_us"] = from.p50_us;
  into["p95_us"] = from.p95_us;
  into["p99_us"] = from.p99_us;
  into["total_s"] = from.total_s;
  return into;
}

Error closed() { return {Code::kInvalidArgument, "these batches are closed: call batches() again for new ones", 0, 0}; }

}  // namespace

struct PySequence::Outcome {
  Result<std::optional<Batch>> batch = std::optional<Batch>();
  bool slice_over = false;  // nothing yet: call again
};

PySequence::~PySequence() { close(); }

void PySequence::check_process() const {
  if (getpid() == process_) return;
  raise({Code::kForked, "these batches belong to the parent process: call batches() in the child for its own", 0, 0});
}

template <class Work>
auto PySequence::locked(Work&& work) {
  check_process();
  using Value = decltype(work(std::declval<Sequence&>()));
  Result<Value> result = without_gil([&]() -> Result<Value> {
    const std::lock_guard lock(mutex_);
    if (!sequence_) return closed();
    return work(*sequence_);
  });
  return unwrap(std::move(result));
}

// kTimedOut before the slice is over is a device's deadline, an error; at its end it says only that no batch is there
// yet.
PySequence::Outcome PySequence::wait(std::chrono::milliseconds slice) {
  const std::lock_guard lock(mutex_);
  if (!sequence_ || closing_.load()) return {closed(), false};
  const auto start = steady_clock::now();
  Outcome outcome{sequence_->next(slice), false};
  const bool timed_out = !outcome.batch.ok() && outcome.batch.error().code == Code::kTimedOut;
  outcome.slice_over = timed_out && steady_clock::now() - start >= slice - std::chrono::milliseconds(1);
  return outcome;
}

nb::object PySequence::next() {
  check_process();
  for (;;) {
    Outcome outcome = without_gil([&] { return wait(kSlice); });
    if (outcome.slice_over) {
      check_signals();
      continue;
    }
    std::optional<Batch> batch = unwrap(std::move(outcome.batch));
    return batch ? nb::cast(PyBatch(std::move(*batch))) : nb::none();
  }
}

void PySequence::close() {
  if (getpid() != process_) {  // leaked on purpose: the poller thread and its locks are not in this process
    if (sequence_) static_cast<void>(new Sequence(std::move(*sequence_)));
    sequence_.reset();
    return;
  }
  closing_.store(true);
  without_gil([&] {
    const std::lock_guard lock(mutex_);
    sequence_.reset();
  });
}

std::uint64_t PySequence::batches_per_epoch() {
  return locked([](Sequence& sequence) { return sequence.batches_per_epoch(); });
}

std::uint64_t PySequence::epoch() {
  return locked([](Sequence& sequence) { return sequence.epoch(); });
}

std::uint64_t PySequence::next_batch() {
  return locked([](Sequence& sequence) { return sequence.next_batch(); });
}

nb::bytes PySequence::state() {
  return to_bytes(locked([](Sequence& sequence) { return sequence.state(); }));
}

nb::object PySequence::notes() {
  return text(locked([](Sequence& sequence) { return sequence.notes(); }));
}

nb::dict PySequence::statistics() {
  const SequenceStatistics from = locked([](Sequence& sequence) { return sequence.statistics(); });
  nb::dict into;
  into["samples"] = from.samples;
  into["batches"] = from.batches;
  into["payload_bytes"] = from.payload_bytes;
  into["device_bytes"] = from.device_bytes;
  into["device_requests"] = from.device_requests;
  into["cache_hits"] = from.cache_hits;
  into["skipped"] = from.skipped;
  into["memory_bytes"] = from.memory_bytes;
  into["memory_limit_bytes"] = from.memory_limit_bytes;
  into["memory_peak_bytes"] = from.memory_peak_bytes;
  into["amplification"] = from.amplification;
  into["poller_cpu_s"] = from.poller_cpu_s;
  into["wait"] = percentiles(from.wait);
  into["device"] = percentiles(from.device);
  into["queue"] = percentiles(from.queue);
  into["verify"] = percentiles(from.verify);
  into["copy"] = percentiles(from.copy);
  return into;
}

void define_sequence(nb::module_& m) {
  nb::class_<PySequence>(m, "Sequence")
      .def("next", &PySequence::next)
      .def("close", &PySequence::close)
      .def("state", &PySequence::state)
      .def("statistics", &PySequence::statistics)
      .def_prop_ro("notes", &PySequence::notes)
      .def_prop_ro("epoch", &PySequence::epoch)
      .def_prop_ro("next_batch", &PySequence::next_batch)
      .def_prop_ro("batches_per_epoch", &PySequence::batches_per_epoch);
}

}  // namespace dlfs::python
