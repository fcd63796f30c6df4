// The host session against controllers that break the protocol, one fault at a time.
#include <gtest/gtest.h>

#include "raw_peer.h"

namespace dlfs::nvme {
namespace {

using test::drain;
using test::fault_in;
using test::feed;
using test::Pdu;
using test::pdu_of;

constexpr std::uint32_t kReadBytes = 4096, kWriteBytes = 32'768;

// A connected host (no digests unless asked) with a Read (tag 1) and a Write behind R2Ts (tag 2) under way.
class Victim {
 public:
  explicit Victim(HostOptions options = {.qid = 1, .cntlid = 7})
      : framing{options.header_digest, options.data_digest, 4}, host(test::Pair::named(options)) {
    host.start(0);
    drain(host);
    EXPECT_TRUE(feed(host, pdu_of(IcResp{.header_digest = options.header_digest, .data_digest = options.data_digest})));
    const std::uint16_t cid = decode_capsule(drain(host).data()).cid;
    EXPECT_TRUE(feed(host, pdu_of(Cqe{.result = encode(ConnectResult{.cntlid = 7}), .cid = cid}, framing)));
    EXPECT_EQ(host.state(), SessionState::kReady);
    read_cid = submit(
        {.sqe = ReadWrite{.opcode = Opcode::kRead, .nsid = 1, .blocks = 8}.to_sqe(), .read_into = read, .tag = 1});
    write_cid = submit(
        {.sqe = ReadWrite{.opcode = Opcode::kWrite, .nsid = 1, .blocks = 64}.to_sqe(), .write_from = write, .tag = 2});
  }

  std::uint16_t submit(const HostCommand& command) {
    EXPECT_TRUE(host.submit(command, 0));
    return decode_capsule(drain(host).data()).cid;
  }
  std::vector<Completion> take() {
    std::vector<Completion> completions(8);
    completions.resize(host.take(completions));
    return completions;
  }
  C2HData data_pdu(std::uint32_t offset, std::uint32_t length, bool last = false) const {
    return {.cid = read_cid, .offset_bytes = offset, .length_bytes = length, .last = last};
  }
  // `pdus` must end the session with this fault, told in a TermReq with the header at fault; both commands fail.
  void expect_fault(const Fault& expected, const std::vector<Pdu>& pdus, const char* what) {
    for (const Pdu& pdu : pdus) feed(host, pdu);
    ASSERT_EQ(host.state(), SessionState::kFailed) << what;
    const Pdu answer = drain(host);
    EXPECT_EQ(fault_in(answer), expected) << what << ": " << host.error().message;
    EXPECT_GT(answer.size(), kTermBytes) << what;
    EXPECT_TRUE(std::equal(answer.begin() + kTermBytes, answer.end(), pdus.back().begin())) << what;
    EXPECT_EQ(host.in_flight(), 0u) << what;
    EXPECT_EQ(host.want().size(), 0u) << what;
  }

  std::vector<std::byte> read = std::vector<std::byte>(kReadBytes),
                         write = std::vector<std::byte>(kWriteBytes, std::byte{0x11});
  Framing framing;
  HostSession host;
  std::uint16_t read_cid = 0, write_cid = 0;
};

const Pdu& bytes(std::size_t count) {
  static const Pdu zeros(65'536);
  static Pdu out;
  out.assign(zeros.begin(), zeros.begin() + static_cast<std::ptrdiff_t>(count));
  return out;
}

constexpr Fault kInvalid(std::uint32_t at) { return {FatalError::kInvalidHeaderField, at}; }
constexpr Fault kSequence{FatalError::kSequenceError, 0}, kRange{FatalError::kDataOutOfRange, 0};

TEST(nvme_hostile_controller, response_to_a_command_never_sent_ends_the_session) {
  Victim victim;
  victim.expect_fault(kInvalid(20), {pdu_of(Cqe{.cid = static_cast<std::uint16_t>(victim.read_cid ^ 0x0010)})},
                      "unknown slot");
  for (unsigned bit = 0; bit < 16; ++bit) {
    Victim other;
    const auto cid = static_cast<std::uint16_t>(other.read_cid ^ (1u << bit));
    if (cid == other.write_cid) continue;
    other.expect_fault(kInvalid(20), {pdu_of(Cqe{.cid = cid})}, "one bit wrong");
  }
}

TEST(nvme_hostile_controller, second_response_ends_the_session) {
  Victim victim;
  const Cqe failed{.cid = victim.read_cid, .status = StatusCode::kInternalError};
  feed(victim.host, pdu_of(failed));
  EXPECT_EQ(victim.take().size(), 1u);
  victim.expect_fault(kInvalid(20), {pdu_of(failed)}, "repeated");
}

TEST(nvme_hostile_controller, response_to_an_earlier_use_of_the_slot_ends_the_session) {
  Victim victim;
  const Cqe failed{.cid = victim.read_cid, .status = StatusCode::kInternalError};
  feed(victim.host, pdu_of(failed));
  EXPECT_EQ(victim.take().size(), 1u);
  const std::uint16_t reused =
      victim.submit({.sqe = ReadWrite{.nsid = 1, .blocks = 8}.to_sqe(), .read_into = victim.read});
  EXPECT_NE(reused, victim.read_cid);
  EXPECT_EQ(reused & 0x3F, victim.read_cid & 0x3F);  // the slot of 33 is the same
  victim.expect_fault(kInvalid(20), {pdu_of(failed)}, "stale generation");
}

TEST(nvme_hostile_controller, data_that_do_not_fit_the_command_end_the_session) {
  Victim v;
  C2HData unknown = v.data_pdu(0, 512);
  unknown.cid = 0xABCD;
  C2HData of_write = v.data_pdu(0, 512);
  of_write.cid = v.write_cid;
  C2HData early_success = v.data_pdu(0, 512);
  early_success.success = true;
  Pdu wrong_length = pdu_of(v.data_pdu(0, 512), bytes(512));
  wrong_length[16] = std::byte{4};
  const struct {
    const char* what;
    Fault fault;
    std::vector<Pdu> pdus;
  } cases[] = {
      {"unknown cid", kInvalid(8), {pdu_of(unknown, bytes(512))}},
      {"data for a write", kRange, {pdu_of(of_write, bytes(512))}},
      {"longer than the buffer", kRange, {pdu_of(v.data_pdu(0, 4100), bytes(4100))}},
      {"behind the buffer", kRange, {pdu_of(v.data_pdu(4096, 4), bytes(4))}},
      {"an offset that wraps", kRange, {pdu_of(v.data_pdu(0xFFFF'FFFC, 8), bytes(8))}},
      {"a gap", kInvalid(12), {pdu_of(v.data_pdu(512, 512), bytes(512))}},
      {"overlapping",
       kInvalid(12),
       {pdu_of(v.data_pdu(0, 1024), bytes(1024)), pdu_of(v.data_pdu(512, 1024), bytes(1024))}},
      {"repeated", kInvalid(12), {pdu_of(v.data_pdu(0, 512), bytes(512)), pdu_of(v.data_pdu(0, 512), bytes(512))}},
      {"a length that is not the PDU's", kInvalid(16), {wrong_length}},
      {"success before the last", kInvalid(1), {pdu_of(early_success, bytes(512))}},
      {"more behind the last",
       kSequence,
       {pdu_of(v.data_pdu(0, 512, true), bytes(512)), pdu_of(v.data_pdu(512, 512, true), bytes(512))}},
  };
  for (const auto& c : cases) {
    Victim victim;
    ASSERT_EQ(victim.read_cid, v.read_cid);
    victim.expect_fault(c.fault, c.pdus, c.what);
  }
}

TEST(nvme_hostile_controller, r2t_that_does_not_fit_the_command_ends_the_session) {
  Victim v;
  const auto r2t = [&](std::uint32_t offset, std::uint32_t length) {
    return R2T{.cid = v.write_cid, .ttag = 1, .offset_bytes = offset, .length_bytes = length};
  };
  R2T unknown = r2t(0, 4096), of_read = r2t(0, 4096);
  unknown.cid = 0xABCD;
  of_read.cid = v.read_cid;
  const struct {
    const char* what;
    Fault fault;
    std::vector<Pdu> pdus;
  } cases[] = {
      {"unknown cid", kInvalid(8), {pdu_of(unknown)}},
      {"for a read", kSequence, {pdu_of(of_read)}},
      {"of nothing", kInvalid(16), {pdu_of(r2t(0, 0))}},
      {"longer than the data", kRange, {pdu_of(r2t(0, kWriteBytes + 4))}},
      {"an offset that wraps", kRange, {pdu_of(r2t(0xFFFF'FFFC, 8))}},
      {"a gap", kInvalid(12), {pdu_of(r2t(4096, 4096))}},
      {"more at once than was offered",
       {FatalError::kLimitExceeded, 0},
       {pdu_of(r2t(0, 4096)), pdu_of(r2t(4096, 4096))}},
  };
  for (const auto& c : cases) {
    Victim victim;
    victim.expect_fault(c.fault, c.pdus, c.what);
  }
  feed(v.host, pdu_of(r2t(0, 4096)));
  drain(v.host);
  v.expect_fault(kInvalid(12), {pdu_of(r2t(0, 4096))}, "the same data again");
}

TEST(nvme_hostile_controller, several_r2ts_are_served_in_turn_when_offered) {
  Victim victim({.qid = 1, .cntlid = 7, .max_r2t = 2});
  for (std::uint32_t i = 0; i < 2; ++i) {
    feed(victim.host, pdu_of(R2T{.cid = victim.write_cid,
                                 .ttag = static_cast<std::uint16_t>(40 + i),
                                 .offset_bytes = i * 8192,
                                 .length_bytes = 8192}));
  }
  std::uint32_t offset = 0;
  for (const Pdu& pdu : test::split(drain(victim.host))) {  // MAXH2CDATA is 4096: two PDUs for each
    const H2CData data = decode_h2c_data(pdu.data());
    EXPECT_EQ(data.offset_bytes, offset);
    EXPECT_EQ(data.ttag, offset < 8192 ? 40 : 41);
    EXPECT_EQ(data.last, offset % 8192 == 4096);
    offset += data.length_bytes;
  }
  EXPECT_EQ(offset, 16'384u);
}

TEST(nvme_hostile_controller, pdus_out_of_state_end_the_session) {
  Victim victim;
  victim.expect_fault(kSequence, {pdu_of(IcResp{})}, "ICResp again");
  for (const Pdu& early : {pdu_of(Cqe{.cid = 0}), pdu_of(R2T{.length_bytes = 4})}) {
    HostSession host(test::Pair::named({}));
    host.start(0);
    drain(host);
    feed(host, early);
    EXPECT_EQ(fault_in(drain(host)), kSequence);
  }
}

TEST(nvme_hostile_controller, damaged_header_ends_the_session_with_the_digest_that_came) {
  Victim victim({.qid = 1, .cntlid = 7, .header_digest = true});
  Pdu pdu = pdu_of(Cqe{.cid = victim.read_cid}, victim.framing);
  const auto digest = base::load_le<std::uint32_t>(pdu.data() + 24);
  pdu[9] ^= std::byte{1};
  victim.expect_fault({FatalError::kHeaderDigestError, digest}, {pdu}, "a flipped bit");
}

TEST(nvme_hostile_controller, connection_parameters_that_are_none_end_the_handshake) {
  const auto answered = [](Pdu response) {
    HostSession host(test::Pair::named({}));
    host.start(0);
    drain(host);
    feed(host, response);
    EXPECT_EQ(host.state(), SessionState::kFailed);
    return fault_in(drain(host));
  };
  Pdu response = pdu_of(IcResp{});
  response[8] = std::byte{1};
  EXPECT_EQ(answered(response), (Fault{FatalError::kUnsupportedParameter, 8}));
  response = pdu_of(IcResp{});
  response[13] = std::byte{1};  // MAXH2CDATA 256
  EXPECT_EQ(answered(response), kInvalid(12));
  EXPECT_EQ(answered(pdu_of(IcResp{.header_digest = true})), (Fault{FatalError::kUnsupportedParameter, 11}));
}

TEST(nvme_hostile_controller, term_req_is_not_answered_and_its_reason_told) {
  Victim victim;
  Pdu term(kTermBytes + kMaxTermDataBytes);
  term.resize(
      encode(PduType::kC2HTermReq, {{FatalError::kDataOutOfRange, 0}, bytes(24)}, std::span<std::byte, 152>(term)));
  feed(victim.host, term);
  EXPECT_EQ(victim.host.state(), SessionState::kFailed);
  EXPECT_NE(victim.host.error().message.find("data transfer out of range"), std::string::npos);
  EXPECT_TRUE(drain(victim.host).empty());
  EXPECT_EQ(victim.take().size(), 2u);
}

TEST(nvme_hostile_controller, success_without_all_data_is_a_failed_command) {
  Victim victim;
  C2HData half = victim.data_pdu(0, 2048, true);
  half.success = true;
  feed(victim.host, pdu_of(half, bytes(2048)));
  feed(victim.host, pdu_of(Cqe{.cid = victim.write_cid}));  // never asked for its data
  const auto completions = victim.take();
  ASSERT_EQ(completions.size(), 2u);
  for (const Completion& completion : completions) {
    EXPECT_EQ(completion.status.code, StatusCode::kDataTransferError);
    EXPECT_FALSE(completion.from_controller);
  }
  EXPECT_EQ(victim.host.state(), SessionState::kReady);
}

TEST(nvme_hostile_controller, answer_while_the_buffer_is_being_sent_waits_for_the_buffer) {
  Victim victim;
  feed(victim.host, pdu_of(R2T{.cid = victim.write_cid, .ttag = 1, .offset_bytes = 0, .length_bytes = 8192}));
  ConstBytes pieces[8];
  ASSERT_GT(victim.host.gather(pieces), 1u);
  victim.host.sent(kDataPduBytes + 100);  // in the middle of the first PDU's data
  feed(victim.host, pdu_of(Cqe{.cid = victim.write_cid, .status = StatusCode::kWriteFault}));
  EXPECT_TRUE(victim.take().empty());
  drain(victim.host);
  const auto completions = victim.take();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status.code, StatusCode::kWriteFault);
}

TEST(nvme_hostile_controller, early_answers_and_reused_slots_do_not_confuse_what_is_to_be_sent) {
  Victim victim({.qid = 1, .cntlid = 7, .depth = 8});
  std::vector<std::uint16_t> cids{victim.write_cid};
  const HostCommand write{.sqe = ReadWrite{.opcode = Opcode::kWrite, .nsid = 1, .blocks = 64}.to_sqe(),
                          .write_from = victim.write};
  while (cids.size() < 7) cids.push_back(victim.submit(write));
  for (int round = 0; round < 50; ++round) {
    for (const std::uint16_t cid : cids) {
      feed(victim.host, pdu_of(R2T{.cid = cid, .ttag = 1, .offset_bytes = 0, .length_bytes = 8192}));
      feed(victim.host, pdu_of(Cqe{.cid = cid, .status = StatusCode::kWriteFault}));  // before any of it was sent
    }
    ASSERT_EQ(victim.take().size(), cids.size());
    for (std::size_t i = 0; i < cids.size(); ++i) ASSERT_TRUE(victim.host.submit(write, 0));
    cids.clear();
    for (const Pdu& pdu : test::split(drain(victim.host))) cids.push_back(decode_capsule(pdu.data()).cid);
    ASSERT_EQ(cids.size(), 7u);
  }
}

TEST(nvme_hostile_controller, fault_in_the_middle_of_a_sent_pdu_says_nothing_more) {
  Victim victim;
  feed(victim.host, pdu_of(R2T{.cid = victim.write_cid, .ttag = 1, .offset_bytes = 0, .length_bytes = 4096}));
  ConstBytes pieces[8];
  victim.host.gather(pieces);
  victim.host.sent(100);
  feed(victim.host, pdu_of(IcResp{}));
  EXPECT_EQ(victim.host.state(), SessionState::kFailed);
  EXPECT_FALSE(victim.host.anything_to_send());
}

}  // namespace
}  // namespace dlfs::nvme
