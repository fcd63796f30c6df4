#include "writer.h"

#include <nanobind/stl/pair.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "buffers.h"
#include "dlfs/dlfs.hpp"
#include "errors.h"

namespace dlfs::python {
namespace {

// **Thread**: any; calls take turns. **fork**: a child can neither write nor abort what its parent packs.
class PyWriter {
 private:
  template <class Work>
  auto locked(Work&& work) {
    if (getpid() != process_) {
      raise(
          {Code::kForked, "this writer belongs to the parent process: make one in the child for another volume", 0, 0});
    }
    using Value = decltype(work(std::declval<Writer&>()));
    return without_gil([&]() -> Value {
      const std::lock_guard lock(mutex_);
      if (!writer_) return Error{Code::kInvalidArgument, "this writer is closed: make a new one", 0, 0};
      return work(*writer_);
    });
  }

 public:
  explicit PyWriter(Writer writer) : writer_(std::move(writer)) {}
  PyWriter(const PyWriter&) = delete;
  PyWriter& operator=(const PyWriter&) = delete;
  ~PyWriter() { abort(); }

  // `fields`: one object with the buffer protocol a schema field, in schema order.
  void append(const nb::bytes& name, const nb::list& fields) {
    std::vector<HeldBuffer> held;
    std::vector<Bytes> values;
    held.reserve(fields.size());
    for (const nb::handle field : fields) values.push_back(held.emplace_back(HeldBuffer::to_read(field)).bytes());
    const std::string_view key = view_of(name);
    unwrap(locked([&](Writer& writer) -> Result<bool> {
      Result<void> appended = writer.append(key, values);
      if (!appended.ok()) return std::move(appended).error();
      return true;
    }));
  }

  // The new volume's samples and payload bytes.
  std::pair<std::uint64_t, std::uint64_t> commit() {
    const VolumeInfo info = unwrap(locked([](Writer& writer) { return writer.commit(); }));
    abort();  // only lets go of it now
    return {info.samples, info.payload_bytes};
  }

  void abort() {
    if (getpid() != process_) {  // leaked on purpose: its destructor would remove the parent's file
      if (writer_) static_cast<void>(new Writer(std::move(*writer_)));
      writer_.reset();
      return;
    }
    without_gil([&] {
      const std::lock_guard lock(mutex_);
      writer_.reset();
    });
  }

 private:
  std::mutex mutex_;
  std::optional<Writer> writer_;
  pid_t process_ = getpid();
};

// `attributes`: pairs of bytes.
PyWriter* create(const nb::bytes& url, const nb::bytes& schema_text, const nb::list& attributes, const nb::dict& from) {
  const std::string where(view_of(url));
  Schema schema = unwrap(Schema::parse(view_of(schema_text)));
  for (const nb::handle pair : attributes) {
    schema.attributes.emplace_back(view_of(nb::cast<nb::bytes>(pair[0])), view_of(nb::cast<nb::bytes>(pair[1])));
  }
  WriterOptions options;
  options.chunk_bytes = nb::cast<std::uint32_t>(from["chunk_bytes"]);
  options.overwrite = nb::cast<bool>(from["overwrite"]);
  options.shuffle = nb::cast<bool>(from["shuffle"]);
  options.names = nb::cast<bool>(from["names"]);
  options.seed = nb::cast<std::uint64_t>(from["seed"]);
  options.pool_bytes = nb::cast<std::uint64_t>(from["pool_bytes"]);
  return new PyWriter(unwrap(without_gil([&] { return Writer::create(where, schema, options); })));
}

}  // namespace

void define_writer(nb::module_& m) {
  nb::class_<PyWriter>(m, "Writer")
      .def("append", &PyWriter::append)
      .def("commit", &PyWriter::commit)
      .def("abort", &PyWriter::abort);
  m.def("create_writer", create, nb::rv_policy::take_ownership);
}

}  // namespace dlfs::python
