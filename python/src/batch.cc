#include "batch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "buffers.h"
#include "errors.h"

namespace dlfs::python {
namespace {

// One field of one sample, exported by the buffer protocol. Keeps its batch. A type of its own, not one of nanobind's:
// there is one a sample, and nanobind's would cost twice as much.
struct View {
  PyObject_HEAD PyObject* owner;
  const std::byte* data;
  Py_ssize_t size;
};

PyTypeObject* view_type = nullptr;  // lives as long as the process

int view_getbuffer(PyObject* self, Py_buffer* into, int flags) {
  const View& view = *reinterpret_cast<View*>(self);
  return PyBuffer_FillInfo(into, self, const_cast<std::byte*>(view.data), view.size, /*readonly=*/1, flags);
}

void view_free(PyObject* self) {
  Py_DECREF(reinterpret_cast<View*>(self)->owner);
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyType_Slot view_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(view_getbuffer)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(view_free)},
                            {0, nullptr}};
PyType_Spec view_spec = {"dlfs._core.View", sizeof(View), 0, Py_TPFLAGS_DEFAULT, view_slots};

nb::object memory_view(nb::handle owner, Bytes bytes) {
  static const std::byte nothing{};  // an empty field still needs an address
  View* const exporter = PyObject_New(View, view_type);
  if (exporter == nullptr) throw nb::python_error();
  exporter->owner = owner.inc_ref().ptr();
  exporter->data = bytes.empty() ? &nothing : bytes.data();
  exporter->size = static_cast<Py_ssize_t>(bytes.size());
  const nb::object held = nb::steal(reinterpret_cast<PyObject*>(exporter));
  PyObject* const result = PyMemoryView_FromObject(held.ptr());
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

// Checked: indices come from Python.
Bytes field_of(const Batch& batch, std::size_t i, std::size_t field) {
  if (i >= batch.size()) throw nb::index_error("sample index out of range");
  return batch.field(i, field);
}

nb::object view(nb::handle self, std::size_t i, std::size_t field) {
  return memory_view(self, field_of(nb::cast<PyBatch&>(self).get(), i, field));
}

nb::object views(nb::handle self, std::size_t field) {
  const Batch& batch = nb::cast<PyBatch&>(self).get();
  nb::object all = nb::steal(PyList_New(static_cast<Py_ssize_t>(batch.size())));
  if (!all.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    PyList_SetItem(all.ptr(), static_cast<Py_ssize_t>(i), memory_view(self, batch.field(i, field)).release().ptr());
  }
  return all;
}

nb::list copies(const PyBatch& self, std::size_t field) {
  nb::list all;
  for (std::size_t i = 0; i < self.get().size(); ++i) all.append(to_bytes(self.get().field(i, field)));
  return all;
}

// Copies without the GIL. `offsets` is None or an int64 buffer of size + 1 items. Returns the bytes needed.
std::uint64_t gather(const PyBatch& self, std::size_t field, nb::object into, nb::object offsets) {
  std::optional<HeldBuffer> data, table;
  std::span<std::byte> target;
  std::span<std::uint64_t> entries;
  if (!into.is_none()) target = data.emplace(HeldBuffer::to_write(into)).writable();
  if (!offsets.is_none()) {
    entries = table.emplace(HeldBuffer::to_write(offsets)).items<std::uint64_t>();
    if (entries.size() != self.get().size() + 1)
      throw nb::value_error("offsets need one entry more than there are samples");
  }
  // A batch finds its fields at the first look at one, which is not for two threads at once: that look is under the
  // GIL.
  if (self.get().size() != 0) static_cast<void>(self.get().field(0, field));
  return without_gil([&] { return self.get().gather(field, target, entries); });
}

void copy_ids(const PyBatch& self, nb::object into) {
  const HeldBuffer held = HeldBuffer::to_write(into);
  const std::span<std::int64_t> target = held.items<std::int64_t>();
  const std::span<const std::uint32_t> ids = self.get().ids();
  if (target.size() != ids.size()) throw nb::value_error("one entry a sample is needed");
  std::copy(ids.begin(), ids.end(), target.begin());
}

void copy_lengths(const PyBatch& self, std::size_t field, nb::object into) {
  const HeldBuffer held = HeldBuffer::to_write(into);
  const std::span<std::int64_t> target = held.items<std::int64_t>();
  if (target.size() != self.get().size()) throw nb::value_error("one entry a sample is needed");
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = static_cast<std::int64_t>(self.get().field(i, field).size());
  }
}

}  // namespace

void define_batch(nb::module_& m) {
  view_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&view_spec));
  if (view_type == nullptr) throw nb::python_error();
  nb::class_<PyBatch>(m, "Batch")
      .def_prop_ro("epoch", [](const PyBatch& self) { return self.get().epoch(); })
      .def_prop_ro("number", [](const PyBatch& self) { return self.get().number(); })
      .def_prop_ro("size", [](const PyBatch& self) { return self.get().size(); })
      .def_prop_ro("padding", [](const PyBatch& self) { return self.get().padding(); })
      .def("view", view)
      .def("views", views)
      .def("copy", [](const PyBatch& self, std::size_t i,
                      std::size_t field) { return to_bytes(field_of(self.get(), i, field)); })
      .def("copies", copies)
      .def("gather", gather, nb::arg("field"), nb::arg("into").none(), nb::arg("offsets").none())
      .def("copy_ids", copy_ids)
      .def("copy_lengths", copy_lengths);
}

}  // namespace dlfs::python
