// The controller session against hosts that break the protocol, one fault at a time.
#include <gtest/gtest.h>

#include "raw_peer.h"

namespace dlfs::nvme {
namespace {

using test::drain;
using test::fault_in;
using test::feed;
using test::Pdu;
using test::pdu_of;

constexpr std::uint32_t kWriteBytes = 32'768;
constexpr Fault kInvalid(std::uint32_t at) { return {FatalError::kInvalidHeaderField, at}; }
constexpr Fault kSequence{FatalError::kSequenceError, 0}, kRange{FatalError::kDataOutOfRange, 0},
    kLimit{FatalError::kLimitExceeded, 0};

Sqe sqe_of(Sqe sqe, std::uint16_t cid, std::uint32_t length = 0, std::uint8_t type = Sgl::kTransport) {
  sqe.cid = cid;
  sqe.sgl = {0, length, type};
  return sqe;
}
Sqe read_of(std::uint16_t cid, std::uint32_t blocks = 8) {
  return sqe_of(ReadWrite{.nsid = 1, .blocks = blocks}.to_sqe(), cid, blocks * 512);
}
Sqe write_of(std::uint16_t cid) {
  return sqe_of(ReadWrite{.opcode = Opcode::kWrite, .nsid = 1, .blocks = kWriteBytes / 512}.to_sqe(), cid, kWriteBytes);
}

Pdu connect_data(const char* subnqn = test::kSubnqn, std::uint16_t cntlid = 7) {
  Pdu data(kConnectDataBytes);
  encode(ConnectData{.cntlid = cntlid, .subnqn = subnqn, .hostnqn = test::kHostnqn},
         std::span<std::byte, kConnectDataBytes>(data));
  return data;
}

// A controller that has accepted a connection, and an I/O queue when `connected`.
class Victim {
 public:
  explicit Victim(bool connected = true, ControllerOptions options = {}, const IcReq& ic = {})
      : framing{ic.header_digest, ic.data_digest, 4}, controller(options, subsystem, 0) {
    feed(controller, pdu_of(ic));
    EXPECT_EQ(drain(controller).size(), kIcBytes);
    if (connected) {
      EXPECT_TRUE(connect({.qid = 1, .queue_entries = 16}).status.ok());
    }
  }

  Cqe connect(const Connect& command, const Pdu& data = connect_data()) {
    return answer(
        pdu_of(sqe_of(command.to_sqe(), 0, static_cast<std::uint32_t>(data.size()), Sgl::kInCapsule), data, framing));
  }
  // Feeds one capsule and gives the response that follows, which must be the only PDU.
  Cqe answer(const Pdu& capsule) {
    EXPECT_TRUE(feed(controller, capsule)) << controller.error().message;
    const auto pdus = test::split(drain(controller));
    EXPECT_EQ(pdus.size(), 1u);
    return pdus.empty() ? Cqe{} : decode_response(pdus[0].data());
  }
  void expect_fault(const Fault& expected, const std::vector<Pdu>& pdus, const char* what) {
    for (const Pdu& pdu : pdus) feed(controller, pdu);
    ASSERT_EQ(controller.state(), ControllerSession::State::kFailed) << what;
    EXPECT_EQ(fault_in(drain(controller)), expected) << what << ": " << controller.error().message;
    EXPECT_EQ(controller.want().size(), 0u) << what;
  }
  // Starts a write of kWriteBytes; the R2T for it is out.
  R2T start_write(std::uint16_t cid) {
    feed(controller, pdu_of(write_of(cid)));
    IoRequest request[2];
    EXPECT_EQ(controller.take(request), 1u);
    EXPECT_TRUE(request[0].needs_buffer);
    id = request[0].id;
    controller.provide(id, buffer);
    return decode_r2t(drain(controller).data());
  }

  test::MemorySubsystem subsystem{1024};
  Framing framing;
  ControllerSession controller;
  std::vector<std::byte> buffer = std::vector<std::byte>(kWriteBytes);
  std::uint32_t id = 0;
};

TEST(nvme_hostile_host, pdus_out_of_state_end_the_session) {
  test::MemorySubsystem subsystem(8);
  ControllerSession fresh({}, subsystem, 0);
  feed(fresh, pdu_of(read_of(1)));
  EXPECT_EQ(fault_in(drain(fresh)), kSequence);
  Victim victim;
  victim.expect_fault(kSequence, {pdu_of(IcReq{})}, "ICReq again");
}

TEST(nvme_hostile_host, connection_parameters_that_are_none_are_refused) {
  const auto answered = [](std::size_t at, unsigned value) {
    test::MemorySubsystem subsystem(8);
    ControllerSession controller({}, subsystem, 0);
    Pdu request = pdu_of(IcReq{});
    request[at] = static_cast<std::byte>(value);
    feed(controller, request);
    return fault_in(drain(controller));
  };
  EXPECT_EQ(answered(8, 1), (Fault{FatalError::kUnsupportedParameter, 8}));
  EXPECT_EQ(answered(10, 32), kInvalid(10));
  EXPECT_EQ(answered(2, 127), kInvalid(2));
  EXPECT_EQ(answered(4, 129), kInvalid(4));
  EXPECT_EQ(answered(0, 0x5A), kInvalid(0));
}

TEST(nvme_hostile_host, commands_before_connect_are_refused) {
  Victim victim(false);
  EXPECT_EQ(victim.answer(pdu_of(read_of(1))).status.code, StatusCode::kCommandSequenceError);
  EXPECT_EQ(victim.answer(pdu_of(sqe_of(PropertyGet{}.to_sqe(), 2))).status.code, StatusCode::kCommandSequenceError);
  EXPECT_EQ(victim.controller.state(), ControllerSession::State::kAwaitConnect);
}

TEST(nvme_hostile_host, connect_with_wrong_parameters_is_refused_with_their_place) {
  Victim victim(false);
  const auto parameter = [](const Cqe& cqe) {
    EXPECT_EQ(cqe.status.code, StatusCode::kConnectInvalidParameters);
    const InvalidParameter invalid = decode_invalid_parameter(cqe.result);
    return std::pair<unsigned, bool>(invalid.offset, invalid.in_data);
  };
  EXPECT_EQ(parameter(victim.connect({.qid = 1, .queue_entries = 1})), (std::pair<unsigned, bool>(44, false)));
  EXPECT_EQ(parameter(victim.connect({.qid = 1, .queue_entries = 129})), (std::pair<unsigned, bool>(44, false)));
  EXPECT_EQ(parameter(victim.connect({.qid = 1}, connect_data("nqn.2026-01.io.example:other"))),
            (std::pair<unsigned, bool>(256, true)));
  EXPECT_EQ(parameter(victim.connect({.qid = 1}, connect_data(test::kSubnqn, 8))),
            (std::pair<unsigned, bool>(16, true)));
  Pdu nameless = connect_data();
  std::fill_n(nameless.begin() + 512, 224, std::byte{'x'});  // longer than a name may be
  EXPECT_EQ(parameter(victim.connect({.qid = 1}, nameless)), (std::pair<unsigned, bool>(512, true)));
  EXPECT_EQ(victim.connect({.record_format = 1}).status.code, StatusCode::kConnectIncompatibleFormat);
  EXPECT_EQ(victim.connect({}, Pdu(1020)).status.code, StatusCode::kDataSglLengthInvalid);
  EXPECT_EQ(victim.connect({}, Pdu(8192)).status.code, StatusCode::kDataSglLengthInvalid);
  EXPECT_EQ(victim.answer(pdu_of(sqe_of(Connect{}.to_sqe(), 0, 1024))).status.code,
            StatusCode::kDataSglLengthInvalid);  // not in the capsule
  EXPECT_TRUE(victim.connect({.qid = 1, .queue_entries = 128}).status.ok());
  EXPECT_EQ(victim.connect({.qid = 1, .queue_entries = 128}).status.code, StatusCode::kCommandSequenceError);
}

TEST(nvme_hostile_host, descriptors_that_do_not_fit_fail_the_command_alone) {
  Victim victim;
  const Pdu block(512);
  const auto code = [&](Sqe sqe, const Pdu& data) { return victim.answer(pdu_of(sqe, data)).status.code; };
  const Sqe write = sqe_of(ReadWrite{.opcode = Opcode::kWrite, .nsid = 1}.to_sqe(), 5, 512, Sgl::kInCapsule);
  Sqe offset = write, unknown = write, fused = write, prp = write, long_one = write_of(5), read_type = read_of(5);
  offset.sgl.address = 4;
  unknown.sgl.type = 0x40;
  fused.flags |= 1;
  prp.flags = 0;
  long_one.sgl.length_bytes = 0xFFFF'FFFF;
  read_type.sgl.type = Sgl::kInCapsule;
  EXPECT_EQ(code(offset, block), StatusCode::kSglOffsetInvalid);
  EXPECT_EQ(code(unknown, block), StatusCode::kDataSglLengthInvalid);
  EXPECT_EQ(code(unknown, {}), StatusCode::kSglTypeInvalid);
  EXPECT_EQ(code(fused, block), StatusCode::kInvalidField);
  EXPECT_EQ(code(prp, block), StatusCode::kInvalidField);
  EXPECT_EQ(code(write, Pdu(508)), StatusCode::kDataSglLengthInvalid);
  EXPECT_EQ(code(write, Pdu(516)), StatusCode::kDataSglLengthInvalid);
  EXPECT_EQ(code(write, {}), StatusCode::kDataSglLengthInvalid);
  EXPECT_EQ(code(long_one, {}), StatusCode::kInvalidField);
  EXPECT_EQ(code(read_type, {}), StatusCode::kSglTypeInvalid);
  EXPECT_EQ(code(read_of(5), block), StatusCode::kDataSglLengthInvalid);  // data with a read
  EXPECT_EQ(victim.controller.in_flight(), 0u);
  IoRequest request[2];
  EXPECT_EQ(victim.controller.take(request), 0u);  // none was handed out
  EXPECT_EQ(std::ranges::count(victim.subsystem.bytes, std::byte{0}), 1024 * 512);
}

TEST(nvme_hostile_host, capsule_larger_than_agreed_ends_the_session) {
  Victim victim(true, {.in_capsule_bytes = 4096});
  const Sqe write = sqe_of(ReadWrite{.opcode = Opcode::kWrite, .nsid = 1}.to_sqe(), 5, 4100, Sgl::kInCapsule);
  victim.expect_fault(kLimit, {pdu_of(write, Pdu(4100))}, "4100 bytes");
  Victim early(false);
  early.expect_fault(kLimit, {pdu_of(write, Pdu(8196))}, "before Connect");
  Victim huge(false);
  Pdu endless = pdu_of(write, Pdu(8));
  base::store_le<std::uint32_t>(endless.data() + 4, 0xFFFF'FFFF);
  huge.expect_fault(kLimit, {endless}, "4 GiB");
}

TEST(nvme_hostile_host, identifier_in_use_ends_the_session) {
  Victim victim;
  feed(victim.controller, pdu_of(read_of(5)));
  victim.expect_fault(kInvalid(10), {pdu_of(read_of(5))}, "cid 5 twice");
}

TEST(nvme_hostile_host, more_commands_than_the_queue_holds_end_the_session) {
  Victim victim;
  for (std::uint16_t cid = 0; cid < 128; ++cid) ASSERT_TRUE(feed(victim.controller, pdu_of(read_of(cid))));
  victim.expect_fault(kSequence, {pdu_of(read_of(128))}, "one too many");
}

TEST(nvme_hostile_host, data_that_do_not_fit_the_r2t_end_the_session) {
  Victim v;
  const R2T r2t = v.start_write(9);
  EXPECT_EQ(r2t.cid, 9);
  EXPECT_EQ(r2t.length_bytes, kWriteBytes);
  const auto pdu = [&](std::uint32_t offset, std::uint32_t length, bool last = false) {
    return H2CData{.cid = 9, .ttag = r2t.ttag, .offset_bytes = offset, .length_bytes = length, .last = last};
  };
  H2CData other_tag = pdu(0, 512), far_tag = pdu(0, 512), other_cid = pdu(0, 512);
  other_tag.ttag ^= 1;
  far_tag.ttag = 0xFFFF;
  other_cid.cid = 8;
  Pdu wrong_length = pdu_of(pdu(0, 512), Pdu(512));
  wrong_length[16] = std::byte{4};
  const struct {
    const char* what;
    Fault fault;
    std::vector<Pdu> pdus;
  } cases[] = {
      {"a tag not given out", kInvalid(10), {pdu_of(other_tag, Pdu(512))}},
      {"a tag beyond all", kInvalid(10), {pdu_of(far_tag, Pdu(512))}},
      {"another command's cid", kInvalid(8), {pdu_of(other_cid, Pdu(512))}},
      {"a length that is not the PDU's", kInvalid(16), {wrong_length}},
      {"a gap", kInvalid(12), {pdu_of(pdu(512, 512), Pdu(512))}},
      {"repeated", kInvalid(12), {pdu_of(pdu(0, 512), Pdu(512)), pdu_of(pdu(0, 512), Pdu(512))}},
      {"behind the end",
       kRange,
       {pdu_of(pdu(0, 16'384), Pdu(16'384)), pdu_of(pdu(16'384, 12'288), Pdu(12'288)),
        pdu_of(pdu(28'672, 4100, true), Pdu(4100))}},
      {"an offset that wraps", kRange, {pdu_of(pdu(0xFFFF'FFFC, 8), Pdu(8))}},
      {"last too early", kInvalid(1), {pdu_of(pdu(0, 512, true), Pdu(512))}},
      {"no last", kInvalid(1), {pdu_of(pdu(0, 16'384), Pdu(16'384)), pdu_of(pdu(16'384, 16'384), Pdu(16'384))}},
      {"longer than MAXH2CDATA", kLimit, {pdu_of(pdu(0, 20'480), Pdu(20'480))}},
  };
  for (const auto& c : cases) {
    Victim victim(true, {.max_h2c_data_bytes = 16'384});
    ASSERT_EQ(victim.start_write(9).ttag, r2t.ttag);
    victim.expect_fault(c.fault, c.pdus, c.what);
    EXPECT_EQ(victim.controller.in_flight(), 1u) << c.what;
    victim.controller.complete(victim.id, {});  // the owner gives the request back
    EXPECT_EQ(victim.controller.in_flight(), 0u) << c.what;
  }
}

TEST(nvme_hostile_host, data_before_the_r2t_end_the_session) {
  Victim victim;
  feed(victim.controller, pdu_of(write_of(9)));
  victim.expect_fault(kInvalid(10), {pdu_of(H2CData{.cid = 9, .ttag = 0, .length_bytes = 512}, Pdu(512))},
                      "no R2T yet");
}

TEST(nvme_hostile_host, damaged_header_ends_the_session_with_the_digest_that_came) {
  Victim victim(true, {}, {.header_digest = true});
  Pdu pdu = pdu_of(read_of(5), {}, victim.framing);
  const auto digest = base::load_le<std::uint32_t>(pdu.data() + 72);
  pdu[50] ^= std::byte{1};
  victim.expect_fault({FatalError::kHeaderDigestError, digest}, {pdu}, "a flipped bit");
}

TEST(nvme_hostile_host, damaged_capsule_fails_the_command_alone) {
  Victim victim(true, {}, {.data_digest = true});
  Pdu pdu = pdu_of(sqe_of(ReadWrite{.opcode = Opcode::kWrite, .nsid = 1}.to_sqe(), 5, 512, Sgl::kInCapsule), Pdu(512),
                   victim.framing);
  pdu[100] ^= std::byte{1};
  EXPECT_EQ(victim.answer(pdu).status.code, StatusCode::kTransientTransportError);
}

TEST(nvme_hostile_host, term_req_is_not_answered_and_its_reason_told) {
  Victim victim;
  Pdu term(kTermBytes + kMaxTermDataBytes);
  term.resize(encode(PduType::kH2CTermReq, {{FatalError::kSequenceError, 0}, {}}, std::span<std::byte, 152>(term)));
  feed(victim.controller, term);
  EXPECT_EQ(victim.controller.state(), ControllerSession::State::kFailed);
  EXPECT_NE(victim.controller.error().message.find("PDU sequence error"), std::string::npos);
  EXPECT_TRUE(drain(victim.controller).empty());
}

TEST(nvme_hostile_host, log_pages_that_are_never_fetched_take_bounded_memory) {
  Victim victim(false);
  EXPECT_TRUE(victim.connect({.qid = 0, .queue_entries = 128}).status.ok());
  victim.answer(pdu_of(
      sqe_of(PropertySet{.offset = kConfigurationOffset, .value = encode(Configuration{.enable = true})}.to_sqe(), 1)));
  const Sqe get = GetLogPage{.page = LogPage::kSmart, .length_bytes = 1 << 20}.to_sqe();
  for (std::uint16_t cid = 0; cid < 8; ++cid) feed(victim.controller, pdu_of(sqe_of(get, cid, 1 << 20)));
  std::size_t refused = 0;
  for (const Pdu& pdu : test::split(drain(victim.controller))) {
    const bool response = decode_common_header(pdu.data()).type == static_cast<std::uint8_t>(PduType::kCapsuleResp);
    refused += response && decode_response(pdu.data()).status.code == StatusCode::kCommandInterrupted ? 1 : 0;
  }
  EXPECT_EQ(refused, 4u);
}

}  // namespace
}  // namespace dlfs::nvme
