// dlfs::Volume, dlfs::File and the schema for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace dlfs::python {

void define_volume(nanobind::module_& m);

}  // namespace dlfs::python
