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
  return impl_->batch->gather(field, into, offsets);
}

}  // namespace dlfs
