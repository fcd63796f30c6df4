// What a session has yet to send: headers in a scratch ring of its own, data where their owner keeps them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nvme/pdu.h"
#include "nvme/wire.h"

namespace dlfs::nvme {

// A queue of whole PDUs. Neighbouring headers merge into one piece, so that a burst of capsules is one piece for
// send().
// **Lifetime**: data must stay where they are until sent() has passed them or abandon() was called.
class SendQueue {
 public:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  SendQueue();

  // Whether a PDU with data and one without fit. Otherwise send first.
  bool room() const noexcept;
  bool empty() const noexcept { return segment_count_ == 0; }

  // Precondition: room(). `encode` writes a header into a HeaderBuffer and returns its length; `data` belong to
  // `owner`, who is told by sent() when they are no longer needed. A digest follows the data when `digest`.
  template <class Encode>
  void push(Encode&& encode, ConstBytes data = {}, std::uint32_t owner = kNobody, bool digest = false) {
    std::byte* at = reserve(kMaxBeforeData);
    commit(at, encode(HeaderBuffer(at, kMaxBeforeData)));
    if (!data.empty()) push_data(data, owner, digest);
  }

  // The last PDU of a connection. Precondition: nothing is queued.
  void push_term(PduType type, const TermReq& pdu);

  // The next pieces to send, in order; returns how many. The same pieces come again until sent() says that they are
  // gone.
  std::size_t gather(std::span<ConstBytes> into) const noexcept;

  // The first `bytes` of what gather() gave were sent. Calls released(owner) for each run of data that is through.
  template <class Released>
  void sent(std::size_t bytes, Released&& released) {
    while (bytes > 0 && segment_count_ > 0) {  // released() may abandon() the rest
      const std::uint32_t owner = advance(bytes);
      if (owner != kNobody) released(owner);
    }
  }

  // Forgets all that was not sent. True when the last PDU that was begun is whole, so that another may follow.
  bool abandon() noexcept;

 private:
  struct Segment {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    std::uint32_t owner = kNobody;
    std::uint32_t scratch_bytes = 0;  // to give back to the ring
  };
  static constexpr std::size_t kScratchBytes = 32'768, kSegments = 512;

  std::byte* reserve(std::size_t bytes) noexcept;
  void commit(std::byte* at, std::size_t bytes) noexcept;
  void push_data(ConstBytes data, std::uint32_t owner, bool digest) noexcept;
  void append(const Segment& segment) noexcept;
  std::uint32_t advance(std::size_t& bytes) noexcept;  // through one piece at most; the owner whose data end here
  Segment& segment(std::size_t i) noexcept { return segments_[(segment_begin_ + i) % kSegments]; }
  const Segment& segment(std::size_t i) const noexcept { return segments_[(segment_begin_ + i) % kSegments]; }

  std::unique_ptr<std::byte[]> scratch_;
  std::vector<Segment> segments_;
  std::size_t segment_begin_ = 0, segment_count_ = 0;
  std::uint64_t scratch_begin_ = 0, scratch_end_ = 0;  // positions that only grow; modulo kScratchBytes in the ring
  std::uint32_t wasted_bytes_ = 0;                     // at the ring's end, skipped by the last reserve()
  std::size_t pdu_left_bytes_ = 0;                     // of the PDU that is partly sent
};

}  // namespace dlfs::nvme
