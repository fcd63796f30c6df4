#include "api/c_handles.h"

using dlfs::Result;
using dlfs::api::guarded;

dlfs_file* dlfs_open(const dlfs_volume* volume, const char* name, dlfs_error* error) {
  return guarded<dlfs_file*>(error, nullptr, [&, public_name = __func__]() -> Result<dlfs_file*> {
    DLFS_REQUIRE(volume);
    DLFS_REQUIRE(name);
    DLFS_TRY_ASSIGN(dlfs::File file, volume->volume.open(name));
    return new dlfs_file{std::move(file)};
  });
}

dlfs_file* dlfs_open_id(const dlfs_volume* volume, std::uint32_t id, std::size_t field, dlfs_error* error) {
  return guarded<dlfs_file*>(error, nullptr, [&, public_name = __func__]() -> Result<dlfs_file*> {
    DLFS_REQUIRE(volume);
    DLFS_TRY_ASSIGN(dlfs::File file, volume->volume.open_id(id, field));
    return new dlfs_file{std::move(file)};
  });
}

void dlfs_close(dlfs_file* file) { delete file; }

std::uint32_t dlfs_file_id(const dlfs_file* file) { return file == nullptr ? 0 : file->file.id(); }

std::uint64_t dlfs_file_size(const dlfs_file* file) { return file == nullptr ? 0 : file->file.size(); }

std::int64_t dlfs_read(const dlfs_file* file, void* buffer, std::size_t size, std::uint64_t offset, dlfs_error* error) {
  return guarded<std::int64_t>(error, -1, [&, public_name = __func__]() -> Result<std::int64_t> {
    DLFS_REQUIRE(file);
    if (size > 0) DLFS_REQUIRE(buffer);
    DLFS_TRY_ASSIGN(const std::uint64_t read, file->file.read({static_cast<std::byte*>(buffer), size}, offset));
    return static_cast<std::int64_t>(read);
  });
}
