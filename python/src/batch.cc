#include "batch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "buffers.h"
#include "errors.h"

namespace dlfs::python {
namespace {

// One field of one sample, exported by the buffer protocol. Keeps its batch.
struct View {
  nb::object owner;
  Bytes bytes;
};

int view_getbuffer(PyObject* self, Py_buffer* into, int flags) {
  static std::byte nothing{};  // an empty field still needs an address
  const View& view = *nb::inst_ptr<View>(self);
  auto* data = const_cast<std::byte*>(view.bytes.empty() ? &nothing : view.bytes.data());
  return PyBuffer_FillInfo(into, self, data, static_cast<Py_ssize_t>(view.bytes.size()), /*readonly=*/1, flags);
}

PyType_Slot view_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(view_getbuffer)}, {0, nullptr}};

// Checked: indices come from Python.
Bytes field_of(const Batch& batch, std::size_t i, std::size_t field) {
  if (i >= batch.size()) throw nb::index_error("sample index out of range");
  return batch.field(i, field);
}

nb::object view(nb::object self, std::size_t i, std::size_t field) {
  const Bytes bytes = field_of(nb::cast<PyBatch&>(self).get(), i, field);
  const nb::object exporter = nb::cast(View{std::move(self), bytes});
  PyObject* result = PyMemoryView_FromObject(exporter.ptr());
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
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
  nb::class_<View>(m, "View", nb::type_slots(view_slots));
  nb::class_<PyBatch>(m, "Batch")
      .def_prop_ro("epoch", [](const PyBatch& self) { return self.get().epoch(); })
      .def_prop_ro("number", [](const PyBatch& self) { return self.get().number(); })
      .def_prop_ro("size", [](const PyBatch& self) { return self.get().size(); })
      .def_prop_ro("padding", [](const PyBatch& self) { return self.get().padding(); })
      .def("view", view)
      .def("copy", [](const PyBatch& self, std::size_t i,
                      std::size_t field) { return to_bytes(field_of(self.get(), i, field)); })
      .def("copies", copies)
      .def("gather", gather, nb::arg("field"), nb::arg("into").none(), nb::arg("offsets").none())
      .def("copy_ids", copy_ids)
      .def("copy_lengths", copy_lengths);
}

}  // namespace dlfs::python
