// From dlfs::Error to the Python exceptions of dlfs/_errors.py. **Thread**: everything here needs the GIL.
#pragma once

#include <nanobind/nanobind.h>

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

// Runs `work`, which touches no Python object, without the GIL.
template <class Work>
auto without_gil(Work&& work) {
  nb::gil_scoped_release released;
  return work();
}

// Raises what a signal handler raised since (KeyboardInterrupt), if this is the main thread.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace dlfs::python
