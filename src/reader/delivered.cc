#include "reader/delivered.h"

namespace dlfs::reader {

void BodyBatch::locate() const {
  if (!body_->located) locate_fields(volume_->record_layout(), *body_);
}

layout::FieldValue BodyBatch::field(std::size_t i, std::size_t field) const noexcept {
  locate();
  return body_->fields[i * volume_->record_layout().field_count() + field];
}

std::uint64_t BodyBatch::gather(std::size_t field, std::span<std::byte> into,
                                std::span<std::uint64_t> offsets) const noexcept {
  locate();
  return gather_field(*body_, volume_->record_layout().field_count(), field, into, offsets);
}

ReaderBatch::~ReaderBatch() {
  if (!channel_->forked()) channel_->give_back(body_);  // in a child there is nobody to give it to
}

std::uint64_t ReaderBatch::gather(std::size_t field, std::span<std::byte> into,
                                  std::span<std::uint64_t> offsets) const noexcept {
  const Clock::time_point begin = Clock::now();
  const std::uint64_t bytes = BodyBatch::gather(field, into, offsets);
  channel_->counters().copy.add(Clock::now() - begin);
  return bytes;
}

}  // namespace dlfs::reader
