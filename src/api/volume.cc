#include "dlfs/dlfs.hpp"

#include <chrono>

#include "api/impl.h"
#include "base/error.h"
#include "volume/verify.h"

namespace dlfs {

namespace api {

Result<void> check_id(const volume::Volume& volume, std::uint32_t id) {
  if (id < volume.size()) return {};
  if (volume.size() == 0)
    return base::make_error(Code::kNotFound, "there is no sample {}: {} is empty", id, volume.url());
  return base::make_error(Code::kNotFound, "there is no sample {}: {} holds the ids 0 to {}", id, volume.url(),
                          volume.size() - 1);
}

Result<void> check_field(const volume::Volume& volume, std::size_t field) {
  const std::size_t count = volume.schema().fields.size();
  if (field < count) return {};
  return base::make_error(Code::kInvalidArgument, "there is no field {}: samples of {} have {} ({})", field,
                          volume.url(), count, volume.schema().to_string());
}

void fill_info(const layout::Superblock& superblock, VolumeInfo& info) {
  info.volume_id.clear();
  for (const std::byte b : superblock.volume_id) info.volume_id += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  info.writer = superblock.writer;
  info.generation = superblock.generation;
  info.samples = superblock.sample_count;
  info.chunk_bytes = superblock.chunk_bytes;
  info.chunks = superblock.chunk_bytes == 0 ? 0 : superblock.data.length_bytes / superblock.chunk_bytes;
  info.device_bytes = superblock.device_bytes;
  info.payload_bytes = superblock.payload_bytes;
  info.record_bytes = superblock.record_bytes;
  info.padding_bytes = superblock.padding_bytes;
  info.index_bytes = superblock.index.length_bytes;
  info.name_bytes = superblock.names.length_bytes;
  info.schema_bytes = superblock.schema.length_bytes;
  info.created_unix_s = superblock.unix_time_s;
}

}  // namespace api

Volume::Volume(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<Volume> Volume::mount(std::string_view url, const MountOptions& options) {
  if (options.timeout <= std::chrono::milliseconds::zero()) {
    return base::make_error(Code::kInvalidArgument, "a mount timeout of {} ms is not positive: 30000 is usual",
                            options.timeout.count());
  }
  volume::MountOptions native;
  native.timeout = options.timeout;
  native.direct = options.direct;
  DLFS_TRY_ASSIGN(auto mounted, volume::Volume::mount(url, native));
  auto schema = api::from_layout(mounted->schema());
  return Volume(std::make_shared<const Impl>(Impl{std::move(mounted), std::move(schema)}));
}

std::uint64_t Volume::size() const noexcept { return impl_->volume->size(); }

const Schema& Volume::schema() const noexcept { return impl_->schema; }

VolumeInfo Volume::info() const {
  const volume::Volume& volume = *impl_->volume;
  const volume::Volume::MountReport& report = volume.report();
  VolumeInfo info;
  api::fill_info(volume.superblock(), info);
  info.url = volume.url();
  info.engine = report.engine;
  info.page_kind = report.page_kind;
  info.notes = report.notes;
  if (!report.warning.empty()) info.notes += (info.notes.empty() ? "warning: " : "; warning: ") + report.warning;
  info.directory_bytes = volume.directory().resident_bytes();
  info.mount_s = std::chrono::duration<double>(report.elapsed).count();
  return info;
}

Result<std::uint32_t> Volume::find(std::string_view name) const {
  DLFS_TRY_ASSIGN(const SampleId id, impl_->volume->find(name));
  return id.value;
}

Result<std::string> Volume::name(std::uint32_t id) const {
  DLFS_TRY(api::check_id(*impl_->volume, id));
  return impl_->volume->name(SampleId{id});
}

Result<void> Volume::names(std::uint32_t first,
                           const std::function<bool(std::uint32_t, std::string_view)>& visit) const {
  if (first == size()) return {};
  DLFS_TRY(api::check_id(*impl_->volume, first));
  return impl_->volume->names(SampleId{first}, [&](SampleId id, std::span<const std::string_view> names) {
    std::uint32_t next = id.value;
    for (const std::string_view name : names) {
      if (!visit(next++, name)) return false;
    }
    return true;
  });
}

Result<Batch> Volume::read(std::span<const std::uint32_t> ids, OnError on_error) const {
  for (const std::uint32_t id : ids) DLFS_TRY(api::check_id(*impl_->volume, id));
  DLFS_TRY_ASSIGN(auto batch, reader::read_samples(impl_->volume, ids, static_cast<reader::OnError>(on_error)));
  return Batch(std::make_unique<Batch::Impl>(Batch::Impl{std::move(batch)}));
}

Result<Volume::VerifyReport> Volume::verify(const std::function<void(const Finding&)>& found,
                                            const std::function<bool(std::uint64_t, std::uint64_t)>& progress) const {
  static constexpr const char* kWhat[] = {"record", "large record", "padding", "names", "superblock", "read", "index"};
  const auto on_finding = [&](const volume::Finding& from) {
    if (!found) return;
    Finding to;
    to.what = kWhat[static_cast<std::size_t>(from.what)];
    to.name = from.name;
    to.message = from.message;
    if (from.has_id) to.id = from.id.value;
    to.chunk = from.chunk;
    to.device_offset = from.device_offset;
    found(to);
  };
  const auto on_progress = [&](std::uint64_t done, std::uint64_t all) { return !progress || progress(done, all); };
  DLFS_TRY_ASSIGN(const volume::VerifyReport report, volume::verify(*impl_->volume, on_finding, on_progress));
  return VerifyReport{report.samples, report.bytes, report.bad_samples, report.bad_chunks, report.findings};
}

}  // namespace dlfs
