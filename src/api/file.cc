#include <algorithm>
#include <cstring>

#include "api/impl.h"

namespace dlfs {

File::File(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

// An ordinary sample comes in one read of the device, which is kept; of a large one only the lengths are read here.
Result<File> Volume::open_id(std::uint32_t id, std::size_t field) const {
  const volume::Volume& volume = *impl_->volume;
  DLFS_TRY(api::check_id(volume, id));
  DLFS_TRY(api::check_field(volume, field));
  File::Impl file{impl_->volume, SampleId{id}, field, 0, std::nullopt, nullptr};
  if (volume.directory().location(file.id).large) {
    DLFS_TRY_ASSIGN(const auto lengths, volume.field_lengths(file.id));
    file.size = lengths[field];
    file.kept = std::make_unique<volume::KeptPiece>();
  } else {
    DLFS_TRY_ASSIGN(file.record, volume.read(file.id));
    file.size = file.record->fields[field].size();
  }
  return File(std::make_shared<const File::Impl>(std::move(file)));
}

Result<File> Volume::open(std::string_view name, std::size_t field) const {
  DLFS_TRY(api::check_field(*impl_->volume, field));
  DLFS_TRY_ASSIGN(const std::uint32_t id, find(name));
  return open_id(id, field);
}

// The directory holds the exact length of an ordinary record; what stands before its only variable field has the same
// length in all.
Result<std::uint64_t> Volume::field_size(std::uint32_t id, std::size_t field) const {
  const volume::Volume& volume = *impl_->volume;
  DLFS_TRY(api::check_id(volume, id));
  DLFS_TRY(api::check_field(volume, field));
  const layout::RecordLayout& layout = volume.record_layout();
  std::vector<std::uint64_t> lengths(layout.fixed_lengths().begin(), layout.fixed_lengths().end());
  if (lengths[field] != layout::kVariable) return lengths[field];
  const layout::Location location = volume.directory().location(SampleId{id});
  if (location.large || std::count(lengths.begin(), lengths.end(), layout::kVariable) != 1) {
    DLFS_TRY_ASSIGN(const std::vector<std::uint64_t> exact, volume.field_lengths(SampleId{id}));
    return exact[field];
  }
  lengths[field] = 1;
  const std::uint64_t before = layout.record_bytes(lengths) - 1;
  return location.length_bytes > before ? location.length_bytes - before : 0;
}

std::uint32_t File::id() const noexcept { return impl_->id.value; }

std::uint64_t File::size() const noexcept { return impl_->size; }

Result<std::uint64_t> File::read(std::span<std::byte> into, std::uint64_t offset) const {
  if (offset >= impl_->size || into.empty()) return std::uint64_t{0};
  const std::uint64_t length = std::min<std::uint64_t>(into.size(), impl_->size - offset);
  if (!impl_->record)
    return impl_->volume->read_field(impl_->id, impl_->field, offset, into.first(length), impl_->kept.get());
  std::memcpy(into.data(), impl_->record->fields[impl_->field].data() + offset, length);
  return length;
}

}  // namespace dlfs
