#include "nvme/send_queue.h"

#include "base/check.h"
#include "base/crc32c.h"

namespace dlfs::nvme {

SendQueue::SendQueue() : scratch_(std::make_unique<std::byte[]>(kScratchBytes)), segments_(kSegments) {}

bool SendQueue::room() const noexcept {
  // Two headers, a digest, and what one of them skips at the ring's end.
  constexpr std::size_t kWorst = 4 * (kMaxBeforeData + kDigestBytes);
  return kSegments - segment_count_ >= 6 && kScratchBytes - (scratch_end_ - scratch_begin_) >= kWorst;
}

std::byte* SendQueue::reserve(std::size_t bytes) noexcept {
  const std::size_t at = scratch_end_ % kScratchBytes;
  wasted_bytes_ = 0;
  if (kScratchBytes - at < bytes) wasted_bytes_ = static_cast<std::uint32_t>(kScratchBytes - at);
  scratch_end_ += wasted_bytes_;
  DLFS_CHECK(scratch_end_ + bytes - scratch_begin_ <= kScratchBytes);
  return scratch_.get() + scratch_end_ % kScratchBytes;
}

void SendQueue::commit(std::byte* at, std::size_t bytes) noexcept {
  const auto used = static_cast<std::uint32_t>(bytes);
  scratch_end_ += used;
  if (segment_count_ > 0) {
    Segment& last = segment(segment_count_ - 1);
    if (last.owner == kNobody && last.data + last.size == at) {
      last.size += used;
      last.scratch_bytes += used + wasted_bytes_;
      return;
    }
  }
  append({at, bytes, kNobody, used + wasted_bytes_});
}

void SendQueue::push_data(ConstBytes data, std::uint32_t owner, bool digest) noexcept {
  append({data.data(), data.size(), owner, 0});
  if (!digest) return;
  std::byte* at = reserve(kDigestBytes);
  base::store_le(at, base::crc32c(data));
  commit(at, kDigestBytes);
}

void SendQueue::append(const Segment& added) noexcept {
  DLFS_CHECK(segment_count_ < kSegments);
  ++segment_count_;
  segment(segment_count_ - 1) = added;
}

std::size_t SendQueue::gather(std::span<ConstBytes> into) const noexcept {
  const std::size_t count = std::min(into.size(), segment_count_);
  for (std::size_t i = 0; i < count; ++i) into[i] = {segment(i).data, segment(i).size};
  return count;
}

std::uint32_t SendQueue::advance(std::size_t& bytes) noexcept {
  DLFS_CHECK(segment_count_ > 0);
  Segment& first = segment(0);
  // A PDU begins in scratch and its header is whole there, so its length can be read where it begins.
  if (pdu_left_bytes_ == 0) pdu_left_bytes_ = decode_common_header(first.data).plen;
  const std::size_t step = std::min({bytes, first.size, pdu_left_bytes_});
  bytes -= step;
  pdu_left_bytes_ -= step;
  first.data += step;
  first.size -= step;
  if (first.size > 0) return kNobody;
  const std::uint32_t owner = first.owner;
  scratch_begin_ += first.scratch_bytes;
  segment_begin_ = (segment_begin_ + 1) % kSegments;
  --segment_count_;
  return owner;
}

void SendQueue::push_term(PduType type, const TermReq& pdu) {
  DLFS_CHECK(empty());
  std::byte* at = reserve(kTermBytes + kMaxTermDataBytes);
  commit(at,
         encode(type, pdu, std::span<std::byte, kTermBytes + kMaxTermDataBytes>(at, kTermBytes + kMaxTermDataBytes)));
}

bool SendQueue::abandon() noexcept {
  segment_count_ = 0;
  scratch_begin_ = scratch_end_;
  return pdu_left_bytes_ == 0;
}

}  // namespace dlfs::nvme
