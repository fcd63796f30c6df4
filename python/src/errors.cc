#include "errors.h"

namespace dlfs::python {

void raise(const Error& error) {
  const nb::object make = nb::module_::import_("dlfs._errors").attr("make");
  const nb::str message = nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(error.message.data(), static_cast<Py_ssize_t>(error.message.size()), "backslashreplace"));
  const nb::object exception =
      make(static_cast<int>(error.code), message, error.errno_value, static_cast<int>(error.nvme_status));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace dlfs::python
