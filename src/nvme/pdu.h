// The PDUs of NVMe/TCP. NVMe/TCP Transport 1.0, 3.6.2.
//
// A PDU: [header, HLEN bytes][header digest][padding up to PDO][data][data digest]. encode() writes all that lies
// before the data; the data and their digest are the sender's to add. Decoders are given a whole header that
// check_header() passed.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <span>

#include "nvme/command.h"
#include "nvme/wire.h"

namespace dlfs::nvme {

enum class PduType : std::uint8_t {  // 3.6.2.1
  kIcReq = 0x00,
  kIcResp = 0x01,
  kH2CTermReq = 0x02,
  kC2HTermReq = 0x03,
  kCapsuleCmd = 0x04,
  kCapsuleResp = 0x05,
  kH2CData = 0x06,
  kC2HData = 0x07,
  kR2T = 0x09,
};

// FLAGS of the common header, 3.6.2.1 and, for the last two, 3.6.2.8 and 3.6.2.9.
inline constexpr std::uint8_t kHeaderDigestFlag = 0x01, kDataDigestFlag = 0x02, kLastFlag = 0x04, kSuccessFlag = 0x08;

inline constexpr std::size_t kCommonHeaderBytes = 8, kDigestBytes = 4;
inline constexpr std::size_t kIcBytes = 128, kTermBytes = 24, kCapsuleCmdBytes = kCommonHeaderBytes + kSqeBytes;
inline constexpr std::size_t kCapsuleRespBytes = kCommonHeaderBytes + kCqeBytes, kDataPduBytes = 24, kR2TBytes = 24;
inline constexpr std::size_t kMaxTermDataBytes = 128;  // of the offending PDU's header, 3.6.2.4
inline constexpr std::size_t kMaxBeforeData =
    144;  // a command, its digest and the worst padding: the data aligned to 72
inline constexpr std::uint32_t kMaxAlignmentBytes = 128;     // HPDA and CPDA are at most 31, in dwords and zero-based
inline constexpr std::uint32_t kMinMaxH2CDataBytes = 4096;   // 3.6.2.3
inline constexpr std::uint32_t kAdminInCapsuleBytes = 8192;  // 3.3.2.1: every Admin Queue takes this much in a capsule
static_assert(kCapsuleCmdBytes == 72 && kCapsuleRespBytes == 24);

enum class FatalError : std::uint16_t {  // FES, 3.6.2.4 and 3.6.2.5
  kInvalidHeaderField = 0x01,            // FEI: the field's offset
  kSequenceError = 0x02,
  kHeaderDigestError = 0x03,  // FEI: the digest that came
  kDataOutOfRange = 0x04,
  kLimitExceeded = 0x05,         // R2Ts outstanding (told by a host), or data in a PDU (told by a controller)
  kUnsupportedParameter = 0x06,  // FEI: the field's offset
};
const char* fatal_error_name(FatalError error) noexcept;

// Why a connection must end, as the TermReq PDU will say it.
struct Fault {
  FatalError error = FatalError::kInvalidHeaderField;
  std::uint32_t information = 0;  // FEI
  bool operator==(const Fault&) const = default;
};

// How PDUs of one direction are laid out, agreed on by ICReq and ICResp.
struct Framing {
  bool header_digest = false, data_digest = false;
  std::uint32_t alignment_bytes =
      4;  // of the data, from the PDU's first byte; a multiple of 4, at most kMaxAlignmentBytes
  // Where data begin behind a header of this length.
  std::size_t data_offset(std::size_t header_bytes) const noexcept {
    const std::size_t end = header_bytes + (header_digest ? kDigestBytes : 0);
    return (end + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  }
};

struct CommonHeader {
  std::uint8_t type = 0, flags = 0, hlen = 0, pdo = 0;
  std::uint32_t plen = 0;
};
CommonHeader decode_common_header(const std::byte* from) noexcept;

enum class Receiver : std::uint8_t { kHost, kController };

// What the common header says about the rest of its PDU.
struct PduShape {
  PduType type = PduType::kIcReq;
  std::uint32_t header_bytes = 0;  // HLEN
  bool header_digest = false, data_digest = false;
  std::uint32_t before_data_bytes = 0;  // all before the data (or the end): header, digest, padding; at most 255
  std::uint32_t data_bytes = 0;
};
// Types, lengths, flags and offsets against the specification. What the data length may be is the session's to judge.
std::expected<PduShape, Fault> check_header(const CommonHeader& header, Receiver receiver,
                                            const Framing& framing) noexcept;

struct IcReq {                        // 3.6.2.2
  std::uint16_t version = 0;          // PFV
  std::uint32_t alignment_bytes = 4;  // HPDA, of data that go to the host
  bool header_digest = false, data_digest = false;
  std::uint64_t max_r2t = 1;  // MAXR2T + 1: outstanding R2Ts a command
  bool operator==(const IcReq&) const = default;
};
struct IcResp {  // 3.6.2.3
  std::uint16_t version = 0;
  std::uint32_t alignment_bytes = 4;  // CPDA, of data that go to the controller
  bool header_digest = false, data_digest = false;
  std::uint32_t max_h2c_data_bytes = kMinMaxH2CDataBytes;  // MAXH2CDATA, of one H2CData PDU
  bool operator==(const IcResp&) const = default;
};
struct TermReq {  // 3.6.2.4, 3.6.2.5
  Fault fault;
  ConstBytes header;  // of the PDU that caused it: as much of it as is there, at most kMaxTermDataBytes
};
struct H2CData {  // 3.6.2.8
  std::uint16_t cid = 0, ttag = 0;
  std::uint32_t offset_bytes = 0, length_bytes = 0;
  bool last = false;
  bool operator==(const H2CData&) const = default;
};
struct C2HData {  // 3.6.2.9
  std::uint16_t cid = 0;
  std::uint32_t offset_bytes = 0, length_bytes = 0;
  bool last = false, success = false;
  bool operator==(const C2HData&) const = default;
};
struct R2T {  // 3.6.2.10
  std::uint16_t cid = 0, ttag = 0;
  std::uint32_t offset_bytes = 0, length_bytes = 0;
  bool operator==(const R2T&) const = default;
};

// Offsets that faults name (FEI).
inline constexpr std::uint32_t kPduTypeAt = 0, kFlagsAt = 1, kHlenAt = 2, kPdoAt = 3, kPlenAt = 4;
inline constexpr std::uint32_t kVersionAt = 8, kAlignmentAt = 10, kDigestsAt = 11, kLimitAt = 12;     // ICReq, ICResp
inline constexpr std::uint32_t kDataCidAt = 8, kTtagAt = 10, kDataOffsetAt = 12, kDataLengthAt = 16;  // data PDUs, R2T
inline constexpr std::uint32_t kSqeAt = 8, kResponseCidAt = 8 + 12;                                   // capsules

// Each writes all that lies before the data and returns how many bytes that is.
using HeaderBuffer = std::span<std::byte, kMaxBeforeData>;
std::size_t encode(const IcReq& pdu, HeaderBuffer to) noexcept;
std::size_t encode(const IcResp& pdu, HeaderBuffer to) noexcept;
std::size_t encode(PduType host_or_controller_term, const TermReq& pdu,
                   std::span<std::byte, kTermBytes + kMaxTermDataBytes> to) noexcept;
std::size_t encode_capsule(const Sqe& sqe, std::uint32_t data_bytes, const Framing& framing, HeaderBuffer to) noexcept;
std::size_t encode_response(const Cqe& cqe, const Framing& framing, HeaderBuffer to) noexcept;
std::size_t encode(const H2CData& pdu, const Framing& framing, HeaderBuffer to) noexcept;
std::size_t encode(const C2HData& pdu, const Framing& framing, HeaderBuffer to) noexcept;
std::size_t encode(const R2T& pdu, const Framing& framing, HeaderBuffer to) noexcept;

std::expected<IcReq, Fault> decode_ic_req(const std::byte* header) noexcept;
std::expected<IcResp, Fault> decode_ic_resp(const std::byte* header) noexcept;
Fault decode_term_req(const std::byte* header) noexcept;
inline Sqe decode_capsule(const std::byte* header) noexcept { return decode_sqe(header + kCommonHeaderBytes); }
inline Cqe decode_response(const std::byte* header) noexcept { return decode_cqe(header + kCommonHeaderBytes); }
H2CData decode_h2c_data(const std::byte* header) noexcept;
C2HData decode_c2h_data(const std::byte* header) noexcept;
R2T decode_r2t(const std::byte* header) noexcept;

}  // namespace dlfs::nvme
