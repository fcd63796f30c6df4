// What the NVMe fuzzers share: numbers drawn from the input, a peer made of bytes, and a check of what a session sends.
#pragma once

#include <algorithm>
#include <vector>

#include "fuzz_input.h"
#include "nvme/pdu.h"
#include "nvme/receiver.h"

namespace dlfs::fuzz {

// Draws from the input; zero when it is used up.
class Source {
 public:
  explicit Source(std::span<const std::byte> input) : rest_(input) {}
  bool empty() const { return rest_.empty(); }
  std::span<const std::byte> take(std::size_t count) {
    const auto taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  // Mostly small and a multiple of four, now and then anything.
  std::uint32_t length() {
    const std::uint8_t kind = u8();
    return kind < 0xF0 ? kind * 64u : u32();
  }

 private:
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    for (const std::byte b : take(bytes)) value = value << 8 | std::to_integer<std::uint8_t>(b);
    return value;
  }
  std::span<const std::byte> rest_;
};

template <class Session>
void feed(Session& session, nvme::ConstBytes bytes, std::uint64_t now_ns, std::size_t piece = ~std::size_t{0}) {
  while (!bytes.empty()) {
    const nvme::Want want = session.want();
    const std::size_t count = std::min({bytes.size(), want.size(), piece});
    if (count == 0) return;
    const std::size_t direct = std::min(count, want.direct.size());
    std::copy_n(bytes.begin(), direct, want.direct.begin());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(direct), count - direct, want.stage.begin());
    session.received(count, now_ns);
    bytes = bytes.subspan(count);
  }
}

// Sends at most `limit` bytes of what a session has, and checks that the stream consists of whole PDUs that the other
// side takes.
class Wire {
 public:
  Wire(nvme::Receiver receiver, const nvme::Framing& framing) : receiver_(receiver), framing_(framing) {}

  // on_pdu is given every PDU as soon as its header is through.
  template <class Session, class OnPdu>
  void drain(Session& session, std::size_t limit, OnPdu&& on_pdu) {
    nvme::ConstBytes pieces[4];
    for (std::size_t count = session.gather(pieces); count > 0 && limit > 0; count = session.gather(pieces)) {
      std::size_t bytes = 0;
      for (std::size_t i = 0; i < count && limit > 0; ++i) {
        const auto piece = pieces[i].first(std::min(limit, pieces[i].size()));
        stream_.insert(stream_.end(), piece.begin(), piece.end());
        bytes += piece.size();
        limit -= piece.size();
      }
      session.sent(bytes);
      while (take_pdu(on_pdu)) {
      }
    }
  }

 private:
  template <class OnPdu>
  bool take_pdu(OnPdu&& on_pdu) {
    if (stream_.size() < nvme::kCommonHeaderBytes) return false;
    const nvme::CommonHeader header = nvme::decode_common_header(stream_.data());
    const auto shape = nvme::check_header(header, receiver_, header.type <= 1 ? nvme::Framing{} : framing_);
    DLFS_CHECK(shape.has_value());
    if (stream_.size() < shape->before_data_bytes) return false;
    if (!announced_) on_pdu(*shape, stream_.data());
    announced_ = stream_.size() < header.plen;
    if (announced_) return false;
    stream_.erase(stream_.begin(), stream_.begin() + header.plen);
    return true;
  }

  nvme::Receiver receiver_;
  nvme::Framing framing_;
  std::vector<std::byte> stream_;
  bool announced_ = false;  // the PDU that stream_ begins with, of which more is to come
};

// A PDU whose header `encode` writes, with its data and their digest.
template <class Encode>
std::vector<std::byte> pdu_of(Encode&& encode, nvme::ConstBytes data = {}, const nvme::Framing& framing = {}) {
  std::vector<std::byte> pdu(nvme::kMaxBeforeData);
  pdu.resize(encode(nvme::HeaderBuffer(pdu)));
  pdu.insert(pdu.end(), data.begin(), data.end());
  if (framing.data_digest && !data.empty()) {
    pdu.resize(pdu.size() + nvme::kDigestBytes);
    base::store_le(pdu.data() + pdu.size() - nvme::kDigestBytes, base::crc32c(data));
  }
  return pdu;
}

}  // namespace dlfs::fuzz
