// Python's buffer protocol in both directions. Needs the GIL, except where it says otherwise.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>
#include <utility>

#include "dlfs/dlfs.hpp"

namespace dlfs::python {

namespace nb = nanobind;

// A contiguous buffer of another Python object, held (and so neither freed nor resized) while this lives.
// The bytes may be used without the GIL.
class HeldBuffer {
 public:
  static HeldBuffer to_read(nb::handle object) { return HeldBuffer(object, PyBUF_SIMPLE); }
  static HeldBuffer to_write(nb::handle object) { return HeldBuffer(object, PyBUF_WRITABLE); }
  HeldBuffer(HeldBuffer&& other) noexcept : buffer_(other.buffer_), held_(std::exchange(other.held_, false)) {}
  HeldBuffer& operator=(HeldBuffer&&) = delete;
  ~HeldBuffer() {
    if (held_) PyBuffer_Release(&buffer_);
  }

  Bytes bytes() const noexcept { return {static_cast<const std::byte*>(buffer_.buf), size()}; }
  std::span<std::byte> writable() const noexcept { return {static_cast<std::byte*>(buffer_.buf), size()}; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(buffer_.len); }

  // The same bytes as items of type T. Raises ValueError when they are not aligned or no whole number of items.
  template <class T>
  std::span<T> items() const {
    if (size() % sizeof(T) != 0 || reinterpret_cast<std::uintptr_t>(buffer_.buf) % alignof(T) != 0) {
      throw nb::value_error("the buffer is not an aligned array of the expected type");
    }
    return {static_cast<T*>(buffer_.buf), size() / sizeof(T)};
  }

 private:
  HeldBuffer(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) throw nb::python_error();
  }
  Py_buffer buffer_{};
  bool held_ = true;
};

// Reads a few bytes out of a volume as Python text; what is not UTF-8 becomes lone surrogates (as file names do).
inline nb::object text(std::string_view bytes) {
  PyObject* result = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

inline nb::bytes to_bytes(Bytes bytes) { return nb::bytes(bytes.data(), bytes.size()); }
inline std::string_view view_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

}  // namespace dlfs::python
