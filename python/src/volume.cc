#include "volume.h"

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "batch.h"
#include "buffers.h"
#include "dlfs/dlfs.hpp"
#include "errors.h"
#include "sequence.h"

namespace dlfs::python {
namespace {

using std::chrono::steady_clock;

// How often a long walk looks for signals and reports how far it is.
constexpr std::chrono::milliseconds kReportEvery{100};

// ([(name, kind, dtype, shape)], [(key, value)])
nb::tuple schema_of(const Schema& schema) {
  nb::list fields, attributes;
  for (const Field& field : schema.fields) {
    nb::list shape;
    for (const std::uint64_t dimension : field.shape) shape.append(dimension);
    fields.append(nb::make_tuple(text(field.name), static_cast<int>(field.kind), text(field.dtype), nb::tuple(shape)));
  }
  for (const auto& [key, value] : schema.attributes) attributes.append(nb::make_tuple(text(key), text(value)));
  return nb::make_tuple(fields, attributes);
}

nb::dict info_of(const VolumeInfo& from) {
  nb::dict into;
  into["url"] = text(from.url);
  into["volume_id"] = text(from.volume_id);
  into["generation"] = from.generation;
  into["writer"] = text(from.writer);
  into["created_unix_s"] = from.created_unix_s;
  into["samples"] = from.samples;
  into["chunk_bytes"] = from.chunk_bytes;
  into["chunks"] = from.chunks;
  into["device_bytes"] = from.device_bytes;
  into["payload_bytes"] = from.payload_bytes;
  into["record_bytes"] = from.record_bytes;
  into["padding_bytes"] = from.padding_bytes;
  into["index_bytes"] = from.index_bytes;
  into["name_bytes"] = from.name_bytes;
  into["schema_bytes"] = from.schema_bytes;
  into["directory_bytes"] = from.directory_bytes;
  into["mount_s"] = from.mount_s;
  into["engine"] = text(from.engine);
  into["page_kind"] = text(from.page_kind);
  into["notes"] = text(from.notes);
  return into;
}

Volume mount(const nb::bytes& url, double timeout_s, bool direct) {
  const std::string where(view_of(url));
  MountOptions options;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1e3));
  options.direct = direct;
  return unwrap(without_gil([&] { return Volume::mount(where, options); }));
}

std::uint32_t find(const Volume& self, const nb::bytes& name) {
  const std::string key(view_of(name));
  return unwrap(without_gil([&] { return self.find(key); }));
}

nb::bytes name(const Volume& self, std::uint32_t id) {
  const std::string found = unwrap(without_gil([&] { return self.name(id); }));
  return nb::bytes(found.data(), found.size());
}

// At most `limit` names in id order, from id `first` on.
nb::list names(const Volume& self, std::uint32_t first, std::size_t limit) {
  std::vector<std::string> found;
  unwrap(without_gil([&] {
    return self.names(first, [&](std::uint32_t, std::string_view next) {
      found.emplace_back(next);
      return found.size() < limit;
    });
  }));
  nb::list all;
  for (const std::string& each : found) all.append(nb::bytes(each.data(), each.size()));
  return all;
}

PyBatch read(const Volume& self, nb::object ids, bool skip_errors) {
  const HeldBuffer held = HeldBuffer::to_read(ids);
  const std::span<const std::uint32_t> wanted = held.items<std::uint32_t>();
  const OnError on_error = skip_errors ? OnError::kSkip : OnError::kRaise;
  return PyBatch(unwrap(without_gil([&] { return self.read(wanted, on_error); })));
}

PyBatch read_one(const Volume& self, std::uint32_t id) {
  return PyBatch(unwrap(without_gil([&] { return self.read({&id, 1}); })));
}

File open(const Volume& self, std::uint32_t id, std::size_t field) {
  return unwrap(without_gil([&] { return self.open_id(id, field); }));
}

std::uint64_t read_into(const File& self, nb::object into, std::uint64_t offset) {
  const HeldBuffer held = HeldBuffer::to_write(into);
  return unwrap(without_gil([&] { return self.read(held.writable(), offset); }));
}

// The keys are SequenceOptions' own; dlfs/_options.py has checked the values.
SequenceOptions options_of(const nb::dict& from) {
  SequenceOptions into;
  into.mode = static_cast<Mode>(nb::cast<int>(from["mode"]));
  into.tail = static_cast<Tail>(nb::cast<int>(from["tail"]));
  into.on_error = nb::cast<bool>(from["skip_errors"]) ? OnError::kSkip : OnError::kRaise;
  into.seed = nb::cast<std::uint64_t>(from["seed"]);
  into.epoch = nb::cast<std::uint64_t>(from["epoch"]);
  into.epochs = nb::cast<std::uint64_t>(from["epochs"]);
  into.batch = nb::cast<std::uint32_t>(from["batch"]);
  into.rank = nb::cast<std::uint32_t>(from["rank"]);
  into.ranks = nb::cast<std::uint32_t>(from["ranks"]);
  into.lanes = nb::cast<std::uint32_t>(from["lanes"]);
  into.window = nb::cast<std::uint32_t>(from["window"]);
  into.start_batch = nb::cast<std::uint64_t>(from["start_batch"]);
  into.cache_bytes = nb::cast<std::uint64_t>(from["cache_bytes"]);
  into.depth = nb::cast<std::uint32_t>(from["depth"]);
  into.prefetch_batches = nb::cast<std::uint32_t>(from["prefetch_batches"]);
  into.verify = nb::cast<bool>(from["verify"]);
  return into;
}

PySequence* sequence(const Volume& self, const nb::dict& options) {
  const SequenceOptions wanted = options_of(options);
  return new PySequence(unwrap(without_gil([&] { return self.sequence(wanted); })));
}

PySequence* resume(const Volume& self, const nb::bytes& state, const nb::dict& options) {
  const SequenceOptions wanted = options_of(options);
  const std::string_view from = view_of(state);
  const Bytes bytes = std::as_bytes(std::span(from));
  return new PySequence(unwrap(without_gil([&] { return self.resume(bytes, wanted); })));
}

// Up to `limit` batches of ids from options["start_batch"] on: each as the bytes of a uint32 array.
nb::list order(const Volume& self, const nb::dict& options, std::size_t limit) {
  const SequenceOptions wanted = options_of(options);
  std::vector<std::vector<std::uint32_t>> found;
  unwrap(without_gil([&] {
    return self.order(wanted, [&](std::uint64_t, std::span<const std::uint32_t> ids) {
      found.emplace_back(ids.begin(), ids.end());
      return found.size() < limit;
    });
  }));
  nb::list all;
  for (const auto& ids : found) all.append(to_bytes(std::as_bytes(std::span(ids))));
  return all;
}

// Calls back into Python from a walk that runs without the GIL: what Python raises ends the walk and is raised after
// it.
class Caller {
 public:
  template <class Work>
  bool call(Work&& work) {
    if (raised_) return false;
    const nb::gil_scoped_acquire acquired;
    try {
      work();
      return true;
    } catch (...) {
      raised_ = std::current_exception();
      return false;
    }
  }
  void rethrow() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  std::exception_ptr raised_;
};

nb::tuple finding_of(const Volume::Finding& from) {
  const nb::object id = from.id ? nb::cast(*from.id) : nb::none();
  return nb::make_tuple(text(from.what), id, text(from.name), from.chunk, from.device_offset, text(from.message));
}

// (samples, bytes, bad samples, bad chunks, findings). found(tuple) for each finding, progress(done, total) now and
// then.
nb::tuple verify(const Volume& self, nb::callable found, nb::object progress) {
  Caller caller;
  auto reported = steady_clock::now() - kReportEvery;
  const auto on_found = [&](const Volume::Finding& finding) { caller.call([&] { found(finding_of(finding)); }); };
  const auto on_progress = [&](std::uint64_t done, std::uint64_t total) {
    const auto now = steady_clock::now();
    if (now - reported < kReportEvery && done != total) return true;
    reported = now;
    return caller.call([&] {
      check_signals();
      if (!progress.is_none()) progress(done, total);
    });
  };
  Result<Volume::VerifyReport> result = without_gil([&] { return self.verify(on_found, on_progress); });
  caller.rethrow();
  const Volume::VerifyReport report = unwrap(std::move(result));
  return nb::make_tuple(report.samples, report.bytes, report.bad_samples, report.bad_chunks, report.findings);
}

}  // namespace

void define_volume(nb::module_& m) {
  m.def("mount", mount);
  m.def("parse_schema", [](const nb::bytes& from) { return schema_of(unwrap(Schema::parse(view_of(from)))); });
  nb::class_<File>(m, "File").def_prop_ro("id", &File::id).def_prop_ro("size", &File::size).def("read_into", read_into);
  nb::class_<Volume>(m, "Volume")
      .def_prop_ro("size", &Volume::size)
      .def("schema", [](const Volume& self) { return schema_of(self.schema()); })
      .def("info", [](const Volume& self) { return info_of(without_gil([&] { return self.info(); })); })
      .def("find", find)
      .def("name", name)
      .def("names", names)
      .def("read", read)
      .def("read_one", read_one)
      .def("open", open)
      .def("sequence", sequence, nb::rv_policy::take_ownership)
      .def("resume", resume, nb::rv_policy::take_ownership)
      .def("order", order)
      .def("verify", verify, nb::arg("found"), nb::arg("progress").none());
}

}  // namespace dlfs::python
