// dlfs._core: the C++ API as Python sees it, one class a handle. Arguments are checked in python/dlfs, which is its
// only user.
#include <nanobind/nanobind.h>

#include "batch.h"
#include "dlfs/dlfs.hpp"
#include "sequence.h"
#include "volume.h"
#include "writer.h"

NB_MODULE(_core, m) {
  namespace python = dlfs::python;
  nanobind::set_leak_warnings(false);  // objects still alive when the interpreter exits are no fault
  m.attr("version") = dlfs::version();
  python::define_batch(m);
  python::define_sequence(m);
  python::define_volume(m);
  python::define_writer(m);
}
