#include "api/c_handles.h"

using dlfs::Result;
using dlfs::api::check_reserved;
using dlfs::api::guarded;

namespace dlfs::api {

void export_info(const VolumeInfo& from, dlfs_volume_info& to) noexcept {
  to = dlfs_volume_info{};
  to.generation = from.generation;
  to.samples = from.samples;
  to.chunk_bytes = from.chunk_bytes;
  to.chunks = from.chunks;
  to.device_bytes = from.device_bytes;
  to.payload_bytes = from.payload_bytes;
  to.record_bytes = from.record_bytes;
  to.padding_bytes = from.padding_bytes;
  to.index_bytes = from.index_bytes;
  to.name_bytes = from.name_bytes;
  to.schema_bytes = from.schema_bytes;
  to.directory_bytes = from.directory_bytes;
  to.created_unix_s = from.created_unix_s;
  to.mount_s = from.mount_s;
  to.url = from.url.c_str();
  to.volume_id = from.volume_id.c_str();
  to.writer = from.writer.c_str();
  to.engine = from.engine.c_str();
  to.page_kind = from.page_kind.c_str();
  to.notes = from.notes.c_str();
}

}  // namespace dlfs::api

dlfs_volume* dlfs_mount(const char* url, const dlfs_options* options, dlfs_error* error) {
  return guarded<dlfs_volume*>(error, nullptr, [&, public_name = __func__]() -> Result<dlfs_volume*> {
    DLFS_REQUIRE(url);
    dlfs::MountOptions native;
    if (options != nullptr) {
      DLFS_TRY(check_reserved("dlfs_options", options->reserved));
      if (options->timeout_ms != 0) native.timeout = std::chrono::milliseconds(options->timeout_ms);
      native.direct = !options->buffered;
    }
    DLFS_TRY_ASSIGN(dlfs::Volume volume, dlfs::Volume::mount(url, native));
    auto info = volume.info();
    auto text = volume.schema().to_string();
    return new dlfs_volume{std::move(volume), std::move(info), std::move(text)};
  });
}

void dlfs_unmount(dlfs_volume* volume) { delete volume; }

std::uint64_t dlfs_sample_count(const dlfs_volume* volume) { return volume == nullptr ? 0 : volume->volume.size(); }

std::int64_t dlfs_find(const dlfs_volume* volume, const char* name, dlfs_error* error) {
  return guarded<std::int64_t>(error, -1, [&, public_name = __func__]() -> Result<std::int64_t> {
    DLFS_REQUIRE(volume);
    DLFS_REQUIRE(name);
    DLFS_TRY_ASSIGN(const std::uint32_t id, volume->volume.find(name));
    return std::int64_t{id};
  });
}

std::int64_t dlfs_name(const dlfs_volume* volume, std::uint32_t id, char* buffer, std::size_t size, dlfs_error* error) {
  return guarded<std::int64_t>(error, -1, [&, public_name = __func__]() -> Result<std::int64_t> {
    DLFS_REQUIRE(volume);
    if (size > 0) {
      DLFS_REQUIRE(buffer);
      buffer[0] = '\0';
    }
    DLFS_TRY_ASSIGN(const std::string name, volume->volume.name(id));
    if (name.size() < size) std::memcpy(buffer, name.c_str(), name.size() + 1);
    return static_cast<std::int64_t>(name.size());
  });
}

int dlfs_names(const dlfs_volume* volume, std::uint32_t first,
               bool (*visit)(void* context, std::uint32_t id, const char* name), void* context, dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_REQUIRE(volume);
    DLFS_REQUIRE(visit);
    std::string terminated;
    return volume->volume.names(first, [&](std::uint32_t id, std::string_view name) {
      terminated.assign(name);
      return visit(context, id, terminated.c_str());
    });
  });
}

int dlfs_stat(const dlfs_volume* volume, dlfs_volume_info* info, dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_REQUIRE(volume);
    DLFS_REQUIRE(info);
    dlfs::api::export_info(volume->info, *info);
    return {};
  });
}

int dlfs_verify(const dlfs_volume* volume, void (*found)(void* context, const dlfs_finding* finding),
                bool (*progress)(void* context, std::uint64_t done_bytes, std::uint64_t all_bytes), void* context,
                dlfs_verify_report* report, dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_REQUIRE(volume);
    DLFS_REQUIRE(report);
    *report = dlfs_verify_report{};
    const auto on_finding = [&](const dlfs::Volume::Finding& from) {
      if (found == nullptr) return;
      dlfs_finding to{};
      to.what = from.what.c_str();
      to.name = from.name.c_str();
      to.message = from.message.c_str();
      to.id = from.id ? std::int64_t{*from.id} : -1;
      to.chunk = from.chunk;
      to.device_offset = from.device_offset;
      found(context, &to);
    };
    const auto on_progress = [&](std::uint64_t done, std::uint64_t all) {
      return progress == nullptr || progress(context, done, all);
    };
    DLFS_TRY_ASSIGN(const auto native, volume->volume.verify(on_finding, on_progress));
    report->samples = native.samples;
    report->bytes = native.bytes;
    report->bad_samples = native.bad_samples;
    report->bad_chunks = native.bad_chunks;
    report->findings = native.findings;
    return {};
  });
}
