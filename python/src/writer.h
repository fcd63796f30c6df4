// dlfs::Writer for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace dlfs::python {

void define_writer(nanobind::module_& m);

}  // namespace dlfs::python
