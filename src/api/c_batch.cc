#include "api/c_handles.h"

using dlfs::Code;
using dlfs::Result;
using dlfs::api::guarded;

dlfs_batch* dlfs_read_ids(const dlfs_volume* volume, const std::uint32_t* ids, std::size_t count, std::int32_t on_error,
                          dlfs_error* error) {
  return guarded<dlfs_batch*>(error, nullptr, [&, public_name = __func__]() -> Result<dlfs_batch*> {
    DLFS_REQUIRE(volume);
    if (count > 0) DLFS_REQUIRE(ids);
    DLFS_TRY_ASSIGN(const dlfs::OnError policy, dlfs::api::on_error_of(on_error));
    DLFS_TRY_ASSIGN(dlfs::Batch batch, volume->volume.read({ids, count}, policy));
    return new dlfs_batch{std::move(batch), volume->volume.schema().fields.size()};
  });
}

void dlfs_batch_release(dlfs_batch* batch) { delete batch; }

std::size_t dlfs_batch_size(const dlfs_batch* batch) { return batch == nullptr ? 0 : batch->batch.size(); }

std::uint64_t dlfs_batch_epoch(const dlfs_batch* batch) { return batch == nullptr ? 0 : batch->batch.epoch(); }

std::uint64_t dlfs_batch_number(const dlfs_batch* batch) { return batch == nullptr ? 0 : batch->batch.number(); }

std::uint32_t dlfs_batch_padding(const dlfs_batch* batch) { return batch == nullptr ? 0 : batch->batch.padding(); }

const std::uint32_t* dlfs_batch_ids(const dlfs_batch* batch) {
  return batch == nullptr ? nullptr : batch->batch.ids().data();
}

const void* dlfs_batch_field(const dlfs_batch* batch, std::size_t i, std::size_t field, std::size_t* size) {
  alignas(8) static constexpr std::byte kEmpty[8] = {};
  if (size != nullptr) *size = 0;
  if (batch == nullptr || i >= batch->batch.size() || field >= batch->fields) return nullptr;
  const dlfs::Bytes bytes = batch->batch.field(i, field);
  if (size != nullptr) *size = bytes.size();
  return bytes.empty() ? kEmpty : bytes.data();
}

std::int64_t dlfs_batch_gather(const dlfs_batch* batch, std::size_t field, void* into, std::size_t size,
                               std::uint64_t* offsets, dlfs_error* error) {
  return guarded<std::int64_t>(error, -1, [&, public_name = __func__]() -> Result<std::int64_t> {
    DLFS_REQUIRE(batch);
    if (size > 0) DLFS_REQUIRE(into);
    if (field >= batch->fields) {
      return dlfs::base::make_error(Code::kInvalidArgument, "there is no field {}: the samples have {}", field,
                                    batch->fields);
    }
    const std::size_t offset_count = offsets == nullptr ? 0 : batch->batch.size() + 1;
    return static_cast<std::int64_t>(
        batch->batch.gather(field, {static_cast<std::byte*>(into), size}, {offsets, offset_count}));
  });
}
