#include "nvme/receiver.h"

#include "base/check.h"
#include "base/crc32c.h"

namespace dlfs::nvme {

PduReceiver::PduReceiver(Receiver side, std::size_t stage_bytes)
    : side_(side),
      stage_(std::make_unique<std::byte[]>(std::max(stage_bytes, kMinStageBytes))),
      stage_bytes_(std::max(stage_bytes, kMinStageBytes)) {}

Want PduReceiver::want(bool burst) noexcept {
  if (stopped_) return {};
  // What is staged here is at most the part of one header or digest, so that moving it to the front costs nothing.
  if (begin_ > 0) {
    std::memmove(stage_.get(), stage_.get() + begin_, staged());
    end_ -= begin_;
    begin_ = 0;
  }
  Want want;
  if (phase_ == Phase::kData && into_ != nullptr) want.direct = {into_, data_left_bytes_};
  want.stage = {stage_.get() + end_, burst_end(burst) - end_};
  return want;
}

std::size_t PduReceiver::burst_end(bool burst) const noexcept {
  if (burst || (phase_ == Phase::kData && into_ == nullptr)) return stage_bytes_;
  std::size_t end = framing_.data_offset(kDataPduBytes);
  if (phase_ != Phase::kHeader) return end + (shape_.data_digest ? kDigestBytes : 0);
  if (shape_known_) end = shape_.before_data_bytes;
  return std::max(end, end_ + 1);
}

std::optional<Fault> PduReceiver::received(std::size_t bytes, PduHandler& handler) {
  if (stopped_) return std::nullopt;
  if (phase_ == Phase::kData && into_ != nullptr) {
    const std::size_t direct = std::min(bytes, data_left_bytes_);
    took(direct, into_);
    into_ += direct;
    bytes -= direct;
  }
  DLFS_CHECK(bytes <= stage_bytes_ - end_);
  end_ += bytes;
  Step step = Step::kGoOn;
  while (step == Step::kGoOn && !stopped_) {
    if (phase_ == Phase::kData) {
      step = parse_data(handler);
    } else if (phase_ == Phase::kDigest) {
      step = parse_digest(handler);
    } else {
      const auto parsed = parse_header(handler);
      if (!parsed) return parsed.error();
      step = *parsed;
    }
  }
  return std::nullopt;
}

std::expected<PduReceiver::Step, Fault> PduReceiver::parse_header(PduHandler& handler) {
  const std::byte* header = stage_.get() + begin_;
  if (!shape_known_) {
    if (staged() < kCommonHeaderBytes) return Step::kNeedMore;
    const auto shape = check_header(decode_common_header(header), side_, framing_);
    if (!shape) return std::unexpected(shape.error());
    shape_ = *shape;
    shape_known_ = true;
  }
  if (staged() < shape_.before_data_bytes) return Step::kNeedMore;
  if (shape_.header_digest) {
    const auto digest = base::load_le<std::uint32_t>(header + shape_.header_bytes);
    if (digest != base::crc32c({header, shape_.header_bytes}))
      return std::unexpected(Fault{FatalError::kHeaderDigestError, digest});
  }
  const auto into = handler.on_header(shape_, header);
  if (!into) return std::unexpected(into.error());
  DLFS_CHECK(into->empty() || into->size() == shape_.data_bytes);
  begin_ += shape_.before_data_bytes;
  shape_known_ = false;
  if (shape_.data_bytes == 0) return Step::kGoOn;
  phase_ = Phase::kData;
  into_ = into->empty() ? nullptr : into->data();
  data_left_bytes_ = shape_.data_bytes;
  crc_ = 0;
  return Step::kGoOn;
}

// Sums while the bytes are warm.
void PduReceiver::took(std::size_t bytes, const std::byte* at) noexcept {
  if (shape_.data_digest) crc_ = base::crc32c({at, bytes}, crc_);
  data_left_bytes_ -= bytes;
}

PduReceiver::Step PduReceiver::parse_data(PduHandler& handler) {
  const std::size_t copied = std::min(staged(), data_left_bytes_);
  const std::byte* from = stage_.get() + begin_;
  if (copied > 0 && into_ != nullptr) {
    std::memcpy(into_, from, copied);
    into_ += copied;
  }
  took(copied, from);
  begin_ += copied;
  if (data_left_bytes_ > 0) return Step::kNeedMore;
  if (!shape_.data_digest) return finish_data(handler);
  phase_ = Phase::kDigest;
  return Step::kGoOn;
}

PduReceiver::Step PduReceiver::parse_digest(PduHandler& handler) {
  if (staged() < kDigestBytes) return Step::kNeedMore;
  const auto digest = base::load_le<std::uint32_t>(stage_.get() + begin_);
  begin_ += kDigestBytes;
  const bool intact = digest == crc_;
  phase_ = Phase::kHeader;
  into_ = nullptr;
  handler.on_data(intact);
  return Step::kGoOn;
}

PduReceiver::Step PduReceiver::finish_data(PduHandler& handler) {
  phase_ = Phase::kHeader;
  into_ = nullptr;
  handler.on_data(true);
  return Step::kGoOn;
}

ConstBytes PduReceiver::header() const noexcept {
  const std::size_t length = shape_known_ ? shape_.header_bytes : kCommonHeaderBytes;
  return {stage_.get() + begin_, std::min(length, staged())};
}

}  // namespace dlfs::nvme
