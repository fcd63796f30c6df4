#include "nvme/pdu.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "golden.h"

namespace dlfs::nvme {
namespace {

using test::Octets;

const test::Golden& golden() {
  static const test::Golden pdus = test::read_golden("nvme_pdus.hex");
  return pdus;
}

constexpr Framing kPlain, kHeaderOnly{.header_digest = true}, kBoth{.header_digest = true, .data_digest = true};

// Header as encoded, then data and their digest as a sender adds them.
Octets whole(std::span<const std::byte> before, std::span<const std::byte> data, const Framing& framing) {
  Octets out = test::octets(before);
  out.insert(out.end(), data.begin(), data.end());
  if (framing.data_digest && !data.empty()) {
    out.resize(out.size() + 4);
    base::store_le(out.data() + out.size() - 4, base::crc32c(data));
  }
  return out;
}

template <class Encode>
Octets encoded(Encode&& encode, std::span<const std::byte> data = {}, const Framing& framing = kPlain) {
  std::byte buffer[kMaxBeforeData];
  std::ranges::fill(buffer, std::byte{0xEE});  // encoders set every byte themselves
  const std::size_t size = encode(HeaderBuffer(buffer));
  return whole({buffer, size}, data, framing);
}

PduShape shape_of(const Octets& pdu, Receiver receiver, const Framing& framing = kPlain) {
  const auto shape = check_header(decode_common_header(pdu.data()), receiver, framing);
  EXPECT_TRUE(shape.has_value()) << "FES " << static_cast<int>(shape.error().error) << " at "
                                 << shape.error().information;
  return shape.value_or(PduShape{});
}

Octets filled(std::size_t size, unsigned value) { return Octets(size, static_cast<std::byte>(value)); }

Sqe read_sqe() {
  Sqe sqe = ReadWrite{.opcode = Opcode::kRead, .nsid = 1, .lba = 0x1234'5678'9ABC, .blocks = 8}.to_sqe();
  sqe.cid = 0x1234;
  sqe.sgl.length_bytes = 4096;
  return sqe;
}

Sqe write_sqe() {
  Sqe sqe = ReadWrite{.opcode = Opcode::kWrite, .nsid = 1, .lba = 64, .blocks = 1, .force_unit_access = true}.to_sqe();
  sqe.cid = 2;
  sqe.sgl = {0, 512, Sgl::kInCapsule};
  return sqe;
}

TEST(nvme_pdu, ic_req_is_as_specified) {
  const IcReq pdu{.alignment_bytes = 8, .header_digest = true, .data_digest = true, .max_r2t = 4};
  EXPECT_EQ(encoded([&](HeaderBuffer to) { return encode(pdu, to); }), golden().at("icreq"));
  EXPECT_EQ(shape_of(golden().at("icreq"), Receiver::kController).data_bytes, 0u);
  EXPECT_EQ(decode_ic_req(golden().at("icreq").data()), pdu);
}

TEST(nvme_pdu, ic_resp_is_as_specified) {
  const IcResp pdu{.alignment_bytes = 4, .header_digest = true, .data_digest = false, .max_h2c_data_bytes = 131'072};
  EXPECT_EQ(encoded([&](HeaderBuffer to) { return encode(pdu, to); }), golden().at("icresp"));
  EXPECT_EQ(shape_of(golden().at("icresp"), Receiver::kHost).data_bytes, 0u);
  EXPECT_EQ(decode_ic_resp(golden().at("icresp").data()), pdu);
}

TEST(nvme_pdu, term_reqs_are_as_specified) {
  const Octets r2t =
      encoded([&](HeaderBuffer to) { return encode(R2T{.cid = 0x1234, .length_bytes = 4096}, kPlain, to); });
  const struct {
    const char* name;
    PduType type;
    TermReq pdu;
    Receiver receiver;
  } cases[] = {
      {"h2c_term_req", PduType::kH2CTermReq, {{FatalError::kInvalidHeaderField, 8}, r2t}, Receiver::kController},
      {"c2h_term_req", PduType::kC2HTermReq, {{FatalError::kHeaderDigestError, 0xDEAD'BEEF}, {}}, Receiver::kHost}};
  for (const auto& c : cases) {
    std::byte buffer[kTermBytes + kMaxTermDataBytes];
    EXPECT_EQ(test::octets({buffer, encode(c.type, c.pdu, buffer)}), golden().at(c.name));
    EXPECT_EQ(shape_of(golden().at(c.name), c.receiver, kBoth).data_bytes, c.pdu.header.size());  // never with digests
    EXPECT_EQ(decode_term_req(golden().at(c.name).data()), c.pdu.fault);
  }
}

TEST(nvme_pdu, command_capsules_are_as_specified) {
  EXPECT_EQ(encoded([&](HeaderBuffer to) { return encode_capsule(read_sqe(), 0, kPlain, to); }),
            golden().at("capsule_cmd_read"));
  EXPECT_EQ(shape_of(golden().at("capsule_cmd_read"), Receiver::kController).data_bytes, 0u);
  EXPECT_EQ(decode_capsule(golden().at("capsule_cmd_read").data()), read_sqe());

  const Framing framing{.header_digest = true, .data_digest = true, .alignment_bytes = 32};
  const Octets data = filled(512, 0x5A);
  EXPECT_EQ(encoded([&](HeaderBuffer to) { return encode_capsule(write_sqe(), 512, framing, to); }, data, framing),
            golden().at("capsule_cmd_write"));
  const PduShape shape = shape_of(golden().at("capsule_cmd_write"), Receiver::kController, framing);
  EXPECT_EQ(shape.before_data_bytes, 96u);
  EXPECT_EQ(shape.data_bytes, 512u);
  EXPECT_TRUE(shape.header_digest && shape.data_digest);
  EXPECT_EQ(decode_capsule(golden().at("capsule_cmd_write").data()), write_sqe());
}

TEST(nvme_pdu, response_capsule_is_as_specified) {
  Cqe cqe{.result = 0x1234'5678, .sqhd = 5, .cid = 0x1234, .status = {StatusCode::kNamespaceNotReady, true}};
  cqe.status.retry_delay = 1;
  cqe.status.more = true;
  EXPECT_EQ(encoded([&](HeaderBuffer to) { return encode_response(cqe, kHeaderOnly, to); }),
            golden().at("capsule_resp"));
  EXPECT_EQ(shape_of(golden().at("capsule_resp"), Receiver::kHost, kHeaderOnly).before_data_bytes, 28u);
  EXPECT_EQ(decode_response(golden().at("capsule_resp").data()), cqe);
}

TEST(nvme_pdu, data_pdus_are_as_specified) {
  const H2CData last{.cid = 0x1234, .ttag = 7, .offset_bytes = 8192, .length_bytes = 16, .last = true};
  const Octets a5 = filled(16, 0xA5);
  EXPECT_EQ(encoded([&](HeaderBuffer to) { return encode(last, kPlain, to); }, a5), golden().at("h2c_data"));
  EXPECT_EQ(shape_of(golden().at("h2c_data"), Receiver::kController).data_bytes, 16u);
  EXPECT_EQ(decode_h2c_data(golden().at("h2c_data").data()), last);
  H2CData more = last;
  more.last = false;
  EXPECT_EQ(encoded([&](HeaderBuffer to) { return encode(more, kBoth, to); }, a5, kBoth),
            golden().at("h2c_data_digests"));
  EXPECT_EQ(decode_h2c_data(golden().at("h2c_data_digests").data()), more);

  const Framing framing{.header_digest = true, .data_digest = true, .alignment_bytes = 8};
  const C2HData c2h{.cid = 0x1234, .offset_bytes = 4096, .length_bytes = 8, .last = true, .success = true};
  Octets count;
  for (int i = 1; i <= 8; ++i) count.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(encoded([&](HeaderBuffer to) { return encode(c2h, framing, to); }, count, framing),
            golden().at("c2h_data"));
  EXPECT_EQ(shape_of(golden().at("c2h_data"), Receiver::kHost, framing).data_bytes, 8u);
  EXPECT_EQ(decode_c2h_data(golden().at("c2h_data").data()), c2h);
}

TEST(nvme_pdu, r2t_is_as_specified) {
  const R2T pdu{.cid = 0x1234, .ttag = 7, .offset_bytes = 65'536, .length_bytes = 32'768};
  EXPECT_EQ(encoded([&](HeaderBuffer to) { return encode(pdu, kHeaderOnly, to); }), golden().at("r2t"));
  EXPECT_EQ(shape_of(golden().at("r2t"), Receiver::kHost, kHeaderOnly).data_bytes, 0u);
  EXPECT_EQ(decode_r2t(golden().at("r2t").data()), pdu);
}

struct Refusal {
  const char* what;
  CommonHeader header;
  Receiver receiver;
  Framing framing;
  std::uint32_t field;  // FEI
};

TEST(nvme_pdu, wrong_common_headers_are_refused_with_the_field) {
  constexpr auto kHost = Receiver::kHost, kController = Receiver::kController;
  const Refusal cases[] = {
      {"an unknown type", {8, 0, 24, 0, 24}, kHost, kPlain, kPduTypeAt},
      {"a type beyond all", {0xFF, 0, 24, 0, 24}, kHost, kPlain, kPduTypeAt},
      {"a host's PDU sent to a host", {4, 0, 72, 0, 72}, kHost, kPlain, kPduTypeAt},
      {"a controller's PDU sent to a controller", {9, 0, 24, 0, 24}, kController, kPlain, kPduTypeAt},
      {"a wrong header length", {9, 0, 23, 0, 24}, kHost, kPlain, kHlenAt},
      {"a header digest that was not agreed on", {9, 1, 24, 0, 28}, kHost, kPlain, kFlagsAt},
      {"no header digest where it was", {9, 0, 24, 0, 24}, kHost, kHeaderOnly, kFlagsAt},
      {"a header digest in an ICReq", {0, 1, 128, 0, 132}, kController, kBoth, kFlagsAt},
      {"no data digest where it was agreed on", {7, 1, 24, 28, 40}, kHost, kBoth, kFlagsAt},
      {"a data digest that was not", {7, 2, 24, 24, 40}, kHost, kPlain, kFlagsAt},
      {"less than the header", {9, 0, 24, 0, 23}, kHost, kPlain, kPlenAt},
      {"length zero", {9, 0, 24, 0, 0}, kHost, kPlain, kPlenAt},
      {"data behind an R2T", {9, 0, 24, 24, 28}, kHost, kPlain, kPlenAt},
      {"data behind a response", {5, 0, 24, 0, 0xFFFF'FFFF}, kHost, kPlain, kPlenAt},
      {"a data PDU without data", {7, 0, 24, 24, 24}, kHost, kPlain, kPlenAt},
      {"a data PDU with nothing but a digest", {7, 3, 24, 28, 32}, kHost, kBoth, kPlenAt},
      {"data inside the header", {7, 0, 24, 20, 40}, kHost, kPlain, kPdoAt},
      {"data off the alignment", {7, 0, 24, 28, 40}, kHost, {.alignment_bytes = 8}, kPdoAt},
      {"data behind the PDU's end", {7, 0, 24, 252, 40}, kHost, kPlain, kPlenAt},
      {"a TermReq with too much of a header", {3, 0, 24, 0, 24 + 129}, kHost, kPlain, kPlenAt},
  };
  for (const Refusal& c : cases) {
    const auto shape = check_header(c.header, c.receiver, c.framing);
    ASSERT_FALSE(shape.has_value()) << c.what;
    EXPECT_EQ(shape.error(), (Fault{FatalError::kInvalidHeaderField, c.field})) << c.what;
  }
}

TEST(nvme_pdu, wrong_connection_parameters_are_refused_with_the_field) {
  const auto with = [](const char* name, std::size_t at, std::uint8_t value) {
    Octets pdu = golden().at(name);
    pdu[at] = std::byte{value};
    return pdu;
  };
  EXPECT_EQ(decode_ic_req(with("icreq", 8, 1).data()).error(), (Fault{FatalError::kUnsupportedParameter, 8}));
  EXPECT_EQ(decode_ic_req(with("icreq", 10, 32).data()).error(), (Fault{FatalError::kInvalidHeaderField, 10}));
  EXPECT_EQ(decode_ic_req(with("icreq", 15, 0xFF).data())->max_r2t, 0xFF00'0004u);
  EXPECT_EQ(decode_ic_resp(with("icresp", 9, 1).data()).error(), (Fault{FatalError::kUnsupportedParameter, 8}));
  EXPECT_EQ(decode_ic_resp(with("icresp", 10, 255).data()).error(), (Fault{FatalError::kInvalidHeaderField, 10}));
  EXPECT_EQ(decode_ic_resp(with("icresp", 14, 0).data()).error(), (Fault{FatalError::kInvalidHeaderField, 12}));
  EXPECT_EQ(decode_ic_resp(with("icresp", 12, 2).data()).error(), (Fault{FatalError::kInvalidHeaderField, 12}));
}

TEST(nvme_pdu, every_alignment_keeps_data_behind_header_and_digest) {
  for (std::uint32_t alignment = 4; alignment <= kMaxAlignmentBytes; alignment += 4) {
    for (const bool digest : {false, true}) {
      const Framing framing{.header_digest = digest, .alignment_bytes = alignment};
      for (const std::size_t header : {kCapsuleCmdBytes, kDataPduBytes}) {
        const std::size_t offset = framing.data_offset(header);
        EXPECT_EQ(offset % alignment, 0u);
        EXPECT_GE(offset, header + (digest ? 4 : 0));
        EXPECT_LT(offset, header + (digest ? 4 : 0) + alignment);
        EXPECT_LE(offset, kMaxBeforeData);
      }
    }
  }
}

}  // namespace
}  // namespace dlfs::nvme
