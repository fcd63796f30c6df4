#include <cstring>

#include "api/impl.h"

namespace dlfs {

Batch::Batch(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

std::uint64_t Batch::epoch() const noexcept { return impl_->batch->epoch(); }
std::uint64_t Batch::number() const noexcept { return impl_->batch->number(); }
std::size_t Batch::size() const noexcept { return impl_->batch->size(); }
std::uint32_t Batch::padding() const noexcept { return impl_->batch->padding(); }
std::span<const std::uint32_t> Batch::ids() const noexcept { return impl_->batch->ids(); }
Bytes Batch::field(std::size_t i, std::size_t field) const noexcept { return impl_->batch->field(i, field); }

std::uint64_t Batch::gather(std::size_t field, std::span<std::byte> into,
                            std::span<std::uint64_t> offsets) const noexcept {
  const reader::Batch& batch = *impl_->batch;
  const std::size_t samples = batch.size();
  std::uint64_t needed = 0;
  for (std::size_t i = 0; i < samples; ++i) {
    if (i < offsets.size()) offsets[i] = needed;
    needed += batch.field(i, field).size();
  }
  if (samples < offsets.size()) offsets[samples] = needed;
  if (into.size() < needed) return needed;
  std::byte* to = into.data();
  for (std::size_t i = 0; i < samples; ++i) {
    const layout::FieldValue value = batch.field(i, field);
    if (value.empty()) continue;  // its data() may be null
    std::memcpy(to, value.data(), value.size());
    to += value.size();
  }
  return needed;
}

}  // namespace dlfs
