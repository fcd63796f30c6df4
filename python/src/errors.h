// From dlfs::Error to the Python exceptions of dlfs/_errors.py. **Thread**: everything here needs the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

#include "dlfs/result.h"

namespace dlfs::python {

namespace nb = nanobind;

[[noreturn]] void raise(const Error& error);

template <class T>
T unwrap(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(result).value();
}

inline void unwrap(const Result<void>& result) {
  if (!result.ok()) raise(result.error());
}

// Lets other Python threads run as long as it lives.
// A daemon thread that wants the GIL back while the interpreter exits is ended by Python (before 3.14) with an
// unwinding that C++ frames do not survive. It sleeps until the process is gone instead, as later Pythons do.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;
  ~GilReleased() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }

 private:
  PyThreadState* state_;
};

// Runs `work`, which touches no Python object, without the GIL.
template <class Work>
auto without_gil(Work&& work) {
  const GilReleased released;
  return work();
}

// Raises what a signal handler raised since (KeyboardInterrupt), if this is the main thread.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace dlfs::python
