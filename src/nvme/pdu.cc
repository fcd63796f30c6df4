#include "nvme/pdu.h"

#include "base/check.h"
#include "base/crc32c.h"

namespace dlfs::nvme {
namespace {

constexpr At<std::uint8_t> kType{kPduTypeAt}, kFlags{kFlagsAt}, kHlen{kHlenAt}, kPdo{kPdoAt};
constexpr At<std::uint32_t> kPlen{kPlenAt};
static_assert(kPlen.end() == kCommonHeaderBytes);

namespace ic_at {
constexpr At<std::uint16_t> kVersion{kVersionAt};
constexpr At<std::uint8_t> kAlignment{kAlignmentAt}, kDigests{kDigestsAt};
constexpr At<std::uint32_t> kLimit{kLimitAt};
constexpr Run kReserved{16, 112};
static_assert(kReserved.end() == kIcBytes);
constexpr std::uint8_t kHeaderDigest = 0x01, kDataDigest = 0x02;
}  // namespace ic_at

namespace term_at {
constexpr At<std::uint16_t> kFes{8};
constexpr At<std::uint32_t> kFei{10};
constexpr Run kReserved{14, 10};
static_assert(kReserved.end() == kTermBytes);
}  // namespace term_at

namespace data_at {  // H2CData, C2HData (whose ttag is reserved) and R2T
constexpr At<std::uint16_t> kCid{kDataCidAt}, kTtag{kTtagAt};
constexpr At<std::uint32_t> kOffset{kDataOffsetAt}, kLength{kDataLengthAt};
constexpr Run kReserved{20, 4};
static_assert(kReserved.end() == kDataPduBytes && kDataPduBytes == kR2TBytes);
}  // namespace data_at

enum class Data : std::uint8_t { kNever, kOptional, kAlways };
struct Rule {
  std::uint8_t header_bytes = 0;  // 0: no such type
  Receiver receiver = Receiver::kHost;
  bool digests = false;
  Data data = Data::kNever;
};

constexpr Rule kRules[] = {
    {kIcBytes, Receiver::kController, false, Data::kNever},
    {kIcBytes, Receiver::kHost, false, Data::kNever},
    {kTermBytes, Receiver::kController, false, Data::kOptional},
    {kTermBytes, Receiver::kHost, false, Data::kOptional},
    {kCapsuleCmdBytes, Receiver::kController, true, Data::kOptional},
    {kCapsuleRespBytes, Receiver::kHost, true, Data::kNever},
    {kDataPduBytes, Receiver::kController, true, Data::kAlways},
    {kDataPduBytes, Receiver::kHost, true, Data::kAlways},
    {},
    {kR2TBytes, Receiver::kHost, true, Data::kNever},
};

std::unexpected<Fault> invalid(std::uint32_t offset) {
  return std::unexpected(Fault{FatalError::kInvalidHeaderField, offset});
}
std::unexpected<Fault> unsupported(std::uint32_t offset) {
  return std::unexpected(Fault{FatalError::kUnsupportedParameter, offset});
}

void put_common(std::byte* to, PduType type, unsigned flags, std::size_t header_bytes, std::size_t pdo,
                std::size_t plen) {
  DLFS_CHECK(plen <= 0xFFFFFFFFu);
  kType.put(to, static_cast<std::uint8_t>(type));
  kFlags.put(to, static_cast<std::uint8_t>(flags));
  kHlen.put(to, static_cast<std::uint8_t>(header_bytes));
  kPdo.put(to, static_cast<std::uint8_t>(pdo));
  kPlen.put(to, static_cast<std::uint32_t>(plen));
}

// Writes the common header, then the digest and the padding behind a header whose other fields are already there.
std::size_t finish(std::byte* to, PduType type, unsigned flags, std::size_t header_bytes, std::size_t data_bytes,
                   const Framing& framing) {
  const std::size_t digest_end = header_bytes + (framing.header_digest ? kDigestBytes : 0);
  const std::size_t before = data_bytes == 0 ? digest_end : framing.data_offset(header_bytes);
  DLFS_CHECK(before <= kMaxBeforeData);
  const bool data_digest = framing.data_digest && data_bytes > 0;
  flags |= (framing.header_digest ? kHeaderDigestFlag : 0u) | (data_digest ? kDataDigestFlag : 0u);
  put_common(to, type, flags, header_bytes, data_bytes == 0 ? 0 : before,
             before + data_bytes + (data_digest ? kDigestBytes : 0));
  std::memset(to + header_bytes, 0, before - header_bytes);
  if (framing.header_digest) base::store_le(to + header_bytes, base::crc32c({to, header_bytes}));
  return before;
}

void put_ic(std::byte* to, PduType type, std::uint16_t version, std::uint32_t alignment_bytes, bool header_digest,
            bool data_digest, std::uint32_t limit) {
  DLFS_CHECK(alignment_bytes % 4 == 0 && alignment_bytes >= 4 && alignment_bytes <= kMaxAlignmentBytes);
  std::memset(to, 0, kIcBytes);
  put_common(to, type, 0, kIcBytes, 0, kIcBytes);
  ic_at::kVersion.put(to, version);
  ic_at::kAlignment.put(to, static_cast<std::uint8_t>(alignment_bytes / 4 - 1));
  ic_at::kDigests.put(to, static_cast<std::uint8_t>((header_digest ? ic_at::kHeaderDigest : 0) |
                                                    (data_digest ? ic_at::kDataDigest : 0)));
  ic_at::kLimit.put(to, limit);
}

void put_data(std::byte* to, std::uint16_t cid, std::uint16_t ttag, std::uint32_t offset, std::uint32_t length) {
  std::memset(to, 0, kDataPduBytes);
  data_at::kCid.put(to, cid);
  data_at::kTtag.put(to, ttag);
  data_at::kOffset.put(to, offset);
  data_at::kLength.put(to, length);
}

std::uint32_t alignment_of(const std::byte* header) { return (std::uint32_t{ic_at::kAlignment.get(header)} + 1) * 4; }

std::expected<PduShape, Fault> check_data(const CommonHeader& header, const Rule& rule, const Framing& framing,
                                          PduShape shape) {
  const std::uint32_t end = shape.before_data_bytes;
  const bool term = !rule.digests;  // the only PDUs with data and without digests; PDO is reserved there
  const std::uint32_t offset = term ? end : header.pdo;
  if (offset < end || (!term && offset % framing.alignment_bytes != 0)) return invalid(kPdoAt);
  shape.before_data_bytes = offset;
  shape.data_digest = !term && framing.data_digest;
  if (!term && ((header.flags & kDataDigestFlag) != 0) != framing.data_digest) return invalid(kFlagsAt);
  const std::uint64_t around = std::uint64_t{offset} + (shape.data_digest ? kDigestBytes : 0);
  if (header.plen <= around) return invalid(kPlenAt);
  shape.data_bytes = static_cast<std::uint32_t>(header.plen - around);
  if (term && shape.data_bytes > kMaxTermDataBytes) return invalid(kPlenAt);
  return shape;
}

}  // namespace

const char* fatal_error_name(FatalError error) noexcept {
  switch (error) {
    case FatalError::kInvalidHeaderField:
      return "invalid PDU header field";
    case FatalError::kSequenceError:
      return "PDU sequence error";
    case FatalError::kHeaderDigestError:
      return "header digest error";
    case FatalError::kDataOutOfRange:
      return "data transfer out of range";
    case FatalError::kLimitExceeded:
      return "limit exceeded";
    case FatalError::kUnsupportedParameter:
      return "unsupported parameter";
  }
  return "unknown fatal error";
}

CommonHeader decode_common_header(const std::byte* from) noexcept {
  return {kType.get(from), kFlags.get(from), kHlen.get(from), kPdo.get(from), kPlen.get(from)};
}

std::expected<PduShape, Fault> check_header(const CommonHeader& header, Receiver receiver,
                                            const Framing& framing) noexcept {
  if (header.type >= std::size(kRules)) return invalid(kPduTypeAt);
  const Rule& rule = kRules[header.type];
  if (rule.header_bytes == 0 || rule.receiver != receiver) return invalid(kPduTypeAt);
  if (header.hlen != rule.header_bytes) return invalid(kHlenAt);
  PduShape shape{.type = static_cast<PduType>(header.type), .header_bytes = header.hlen};
  shape.header_digest = rule.digests && framing.header_digest;
  if (((header.flags & kHeaderDigestFlag) != 0) != shape.header_digest) return invalid(kFlagsAt);
  shape.before_data_bytes = shape.header_bytes + (shape.header_digest ? std::uint32_t{kDigestBytes} : 0);
  if (header.plen < shape.before_data_bytes) return invalid(kPlenAt);
  if (header.plen > shape.before_data_bytes && rule.data != Data::kNever)
    return check_data(header, rule, framing, shape);
  if (header.plen != shape.before_data_bytes || rule.data == Data::kAlways) return invalid(kPlenAt);
  return shape;
}

std::size_t encode(const IcReq& pdu, HeaderBuffer to) noexcept {
  DLFS_CHECK(pdu.max_r2t >= 1 && pdu.max_r2t <= std::uint64_t{1} << 32);
  put_ic(to.data(), PduType::kIcReq, pdu.version, pdu.alignment_bytes, pdu.header_digest, pdu.data_digest,
         static_cast<std::uint32_t>(pdu.max_r2t - 1));
  return kIcBytes;
}

std::size_t encode(const IcResp& pdu, HeaderBuffer to) noexcept {
  put_ic(to.data(), PduType::kIcResp, pdu.version, pdu.alignment_bytes, pdu.header_digest, pdu.data_digest,
         pdu.max_h2c_data_bytes);
  return kIcBytes;
}

std::size_t encode(PduType type, const TermReq& pdu, std::span<std::byte, kTermBytes + kMaxTermDataBytes> to) noexcept {
  DLFS_CHECK(type == PduType::kH2CTermReq || type == PduType::kC2HTermReq);
  const std::size_t data_bytes = std::min(pdu.header.size(), kMaxTermDataBytes);
  std::memset(to.data(), 0, kTermBytes);
  put_common(to.data(), type, 0, kTermBytes, 0, kTermBytes + data_bytes);
  term_at::kFes.put(to.data(), static_cast<std::uint16_t>(pdu.fault.error));
  term_at::kFei.put(to.data(), pdu.fault.information);
  if (data_bytes > 0) std::memcpy(to.data() + kTermBytes, pdu.header.data(), data_bytes);
  return kTermBytes + data_bytes;
}

std::size_t encode_capsule(const Sqe& sqe, std::uint32_t data_bytes, const Framing& framing, HeaderBuffer to) noexcept {
  encode(sqe, to.data() + kCommonHeaderBytes);
  return finish(to.data(), PduType::kCapsuleCmd, 0, kCapsuleCmdBytes, data_bytes, framing);
}

std::size_t encode_response(const Cqe& cqe, const Framing& framing, HeaderBuffer to) noexcept {
  encode(cqe, to.data() + kCommonHeaderBytes);
  return finish(to.data(), PduType::kCapsuleResp, 0, kCapsuleRespBytes, 0, framing);
}

std::size_t encode(const H2CData& pdu, const Framing& framing, HeaderBuffer to) noexcept {
  DLFS_CHECK(pdu.length_bytes > 0);
  put_data(to.data(), pdu.cid, pdu.ttag, pdu.offset_bytes, pdu.length_bytes);
  return finish(to.data(), PduType::kH2CData, pdu.last ? kLastFlag : 0u, kDataPduBytes, pdu.length_bytes, framing);
}

std::size_t encode(const C2HData& pdu, const Framing& framing, HeaderBuffer to) noexcept {
  DLFS_CHECK(pdu.length_bytes > 0);
  put_data(to.data(), pdu.cid, 0, pdu.offset_bytes, pdu.length_bytes);
  const unsigned flags = (pdu.last ? kLastFlag : 0u) | (pdu.success ? kSuccessFlag : 0u);
  return finish(to.data(), PduType::kC2HData, flags, kDataPduBytes, pdu.length_bytes, framing);
}

std::size_t encode(const R2T& pdu, const Framing& framing, HeaderBuffer to) noexcept {
  put_data(to.data(), pdu.cid, pdu.ttag, pdu.offset_bytes, pdu.length_bytes);
  return finish(to.data(), PduType::kR2T, 0, kR2TBytes, 0, framing);
}

std::expected<IcReq, Fault> decode_ic_req(const std::byte* header) noexcept {
  IcReq pdu{.version = ic_at::kVersion.get(header), .alignment_bytes = alignment_of(header)};
  if (pdu.version != 0) return unsupported(kVersionAt);
  if (pdu.alignment_bytes > kMaxAlignmentBytes) return invalid(kAlignmentAt);
  pdu.header_digest = (ic_at::kDigests.get(header) & ic_at::kHeaderDigest) != 0;
  pdu.data_digest = (ic_at::kDigests.get(header) & ic_at::kDataDigest) != 0;
  pdu.max_r2t = std::uint64_t{ic_at::kLimit.get(header)} + 1;
  return pdu;
}

std::expected<IcResp, Fault> decode_ic_resp(const std::byte* header) noexcept {
  IcResp pdu{.version = ic_at::kVersion.get(header), .alignment_bytes = alignment_of(header)};
  if (pdu.version != 0) return unsupported(kVersionAt);
  if (pdu.alignment_bytes > kMaxAlignmentBytes) return invalid(kAlignmentAt);
  pdu.header_digest = (ic_at::kDigests.get(header) & ic_at::kHeaderDigest) != 0;
  pdu.data_digest = (ic_at::kDigests.get(header) & ic_at::kDataDigest) != 0;
  pdu.max_h2c_data_bytes = ic_at::kLimit.get(header);
  if (pdu.max_h2c_data_bytes < kMinMaxH2CDataBytes || pdu.max_h2c_data_bytes % 4 != 0) return invalid(kLimitAt);
  return pdu;
}

Fault decode_term_req(const std::byte* header) noexcept {
  return {static_cast<FatalError>(term_at::kFes.get(header)), term_at::kFei.get(header)};
}

H2CData decode_h2c_data(const std::byte* header) noexcept {
  return {data_at::kCid.get(header), data_at::kTtag.get(header), data_at::kOffset.get(header),
          data_at::kLength.get(header), (kFlags.get(header) & kLastFlag) != 0};
}

C2HData decode_c2h_data(const std::byte* header) noexcept {
  const std::uint8_t flags = kFlags.get(header);
  return {data_at::kCid.get(header), data_at::kOffset.get(header), data_at::kLength.get(header),
          (flags & kLastFlag) != 0, (flags & kSuccessFlag) != 0};
}

R2T decode_r2t(const std::byte* header) noexcept {
  return {data_at::kCid.get(header), data_at::kTtag.get(header), data_at::kOffset.get(header),
          data_at::kLength.get(header)};
}

}  // namespace dlfs::nvme
