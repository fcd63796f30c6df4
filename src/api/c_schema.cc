#include <algorithm>

#include "api/c_handles.h"

using dlfs::Code;
using dlfs::Result;
using dlfs::api::guarded;

std::size_t dlfs_schema_fields(const dlfs_volume* volume) {
  return volume == nullptr ? 0 : volume->volume.schema().fields.size();
}

int dlfs_schema_field(const dlfs_volume* volume, std::size_t field, dlfs_field_info* info, dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_REQUIRE(volume);
    DLFS_REQUIRE(info);
    const auto& fields = volume->volume.schema().fields;
    if (field >= fields.size()) {
      return dlfs::base::make_error(Code::kInvalidArgument, "there is no field {}: the volume has {}", field,
                                    fields.size());
    }
    const dlfs::Field& from = fields[field];
    *info = dlfs_field_info{};
    info->name = from.name.c_str();
    info->dtype = from.dtype.c_str();
    info->shape = from.shape.data();
    info->dimensions = static_cast<std::uint32_t>(from.shape.size());
    info->kind = static_cast<std::int32_t>(from.kind);
    return {};
  });
}

int dlfs_schema_find(const dlfs_volume* volume, const char* name) {
  if (volume == nullptr || name == nullptr) return -1;
  const auto& fields = volume->volume.schema().fields;
  const auto found = std::ranges::find(fields, std::string_view(name), &dlfs::Field::name);
  return found == fields.end() ? -1 : static_cast<int>(found - fields.begin());
}

const char* dlfs_schema_text(const dlfs_volume* volume) {
  return volume == nullptr ? nullptr : volume->schema_text.c_str();
}

const char* dlfs_schema_attribute(const dlfs_volume* volume, const char* key, std::size_t* size) {
  if (size != nullptr) *size = 0;
  if (volume == nullptr || key == nullptr) return nullptr;
  for (const auto& [name, value] : volume->volume.schema().attributes) {
    if (name != key) continue;
    if (size != nullptr) *size = value.size();
    return value.c_str();
  }
  return nullptr;
}
