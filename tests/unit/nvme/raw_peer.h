// A peer made of bytes: feeds a session what a test wrote, and reads what the session answers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/crc32c.h"
#include "nvme/pdu.h"
#include "session_pair.h"

namespace dlfs::nvme::test {

using Pdu = std::vector<std::byte>;

// Gives the session all bytes, in pieces of at most `piece` bytes. False when it took no more (it has failed).
template <class Session>
bool feed(Session& session, ConstBytes bytes, std::uint64_t now_ns = 0, std::size_t piece = ~std::size_t{0}) {
  while (!bytes.empty()) {
    const Want want = session.want();
    const std::size_t count = std::min({bytes.size(), want.size(), piece});
    if (count == 0) return false;
    const std::size_t direct = std::min(count, want.direct.size());
    std::copy_n(bytes.begin(), direct, want.direct.begin());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(direct), count - direct, want.stage.begin());
    session.received(count, now_ns);
    bytes = bytes.subspan(count);
  }
  return true;
}

// All that the session has to send.
template <class Session>
Pdu drain(Session& session) {
  Pdu out;
  ConstBytes pieces[16];
  while (const std::size_t count = session.gather(pieces)) {
    std::size_t bytes = 0;
    for (const ConstBytes piece : std::span(pieces).first(count)) {
      out.insert(out.end(), piece.begin(), piece.end());
      bytes += piece.size();
    }
    session.sent(bytes);
  }
  return out;
}

// Cuts a stream of whole PDUs.
inline std::vector<Pdu> split(ConstBytes stream) {
  std::vector<Pdu> pdus;
  while (!stream.empty()) {
    const std::size_t size = decode_common_header(stream.data()).plen;
    EXPECT_LE(size, stream.size());
    pdus.emplace_back(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(size));
    stream = stream.subspan(size);
  }
  return pdus;
}

// The fault of the TermReq that is the last of `stream`, if there is one.
inline std::optional<Fault> fault_in(ConstBytes stream) {
  const auto pdus = split(stream);
  if (pdus.empty()) return std::nullopt;
  const auto type = static_cast<PduType>(decode_common_header(pdus.back().data()).type);
  if (type != PduType::kH2CTermReq && type != PduType::kC2HTermReq) return std::nullopt;
  return decode_term_req(pdus.back().data());
}

// A PDU with its data, and their digest when the framing has one.
template <class Encode>
Pdu encoded_pdu(Encode&& encode, ConstBytes data = {}, const Framing& framing = {}) {
  Pdu pdu(kMaxBeforeData);
  pdu.resize(encode(HeaderBuffer(pdu)));
  pdu.insert(pdu.end(), data.begin(), data.end());
  if (framing.data_digest && !data.empty()) {
    pdu.resize(pdu.size() + kDigestBytes);
    base::store_le(pdu.data() + pdu.size() - kDigestBytes, base::crc32c(data));
  }
  return pdu;
}
inline Pdu pdu_of(const IcReq& ic) {
  return encoded_pdu([&](HeaderBuffer to) { return encode(ic, to); });
}
inline Pdu pdu_of(const IcResp& ic) {
  return encoded_pdu([&](HeaderBuffer to) { return encode(ic, to); });
}
inline Pdu pdu_of(const R2T& r2t, const Framing& f = {}) {
  return encoded_pdu([&](HeaderBuffer to) { return encode(r2t, f, to); });
}
inline Pdu pdu_of(const Cqe& cqe, const Framing& f = {}) {
  return encoded_pdu([&](HeaderBuffer to) { return encode_response(cqe, f, to); });
}
inline Pdu pdu_of(const C2HData& pdu, ConstBytes data, const Framing& f = {}) {
  return encoded_pdu([&](HeaderBuffer to) { return encode(pdu, f, to); }, data, f);
}
inline Pdu pdu_of(const H2CData& pdu, ConstBytes data, const Framing& f = {}) {
  return encoded_pdu([&](HeaderBuffer to) { return encode(pdu, f, to); }, data, f);
}
inline Pdu pdu_of(const Sqe& sqe, ConstBytes data = {}, const Framing& f = {}) {
  return encoded_pdu(
      [&](HeaderBuffer to) { return encode_capsule(sqe, static_cast<std::uint32_t>(data.size()), f, to); }, data, f);
}

}  // namespace dlfs::nvme::test
