// Streams cut at every byte: the golden PDUs through the parser, and a whole conversation through the sessions of both
// sides.
#include <gtest/gtest.h>

#include "golden.h"
#include "raw_peer.h"

namespace dlfs::nvme {
namespace {

using test::Pdu;

// Writes down what the parser says.
class Recorder final : public PduHandler {
 public:
  std::expected<Bytes, Fault> on_header(const PduShape& shape, const std::byte* header) override {
    headers.emplace_back(header, header + shape.header_bytes);
    data.emplace_back(shape.data_bytes);
    return Bytes(data.back());
  }
  void on_data(bool ok) override {
    intact = intact && ok;
    ++wholes;
  }
  bool same(const Recorder& other) const {
    return headers == other.headers && data == other.data && intact == other.intact && wholes == other.wholes;
  }

  std::vector<Pdu> headers, data;
  bool intact = true;
  int wholes = 0;
};

// The receiver with the interface of a session.
struct Parser {
  Parser(Receiver side, const Framing& framing, bool burst_) : receiver(side, 1), burst(burst_) {
    receiver.set_framing(framing);
  }
  Want want() { return receiver.want(burst); }
  void received(std::size_t bytes, std::uint64_t) { EXPECT_FALSE(receiver.received(bytes, recorder).has_value()); }
  PduReceiver receiver;
  Recorder recorder;
  bool burst;
};

TEST(nvme_cut, golden_pdus_are_parsed_alike_wherever_they_are_cut) {
  constexpr Framing kPlain, kHeader{.header_digest = true}, kBoth{true, true, 4}, kBoth8{true, true, 8},
      kBoth32{true, true, 32};
  const struct {
    const char* name;
    Receiver side;
    Framing framing;
  } pdus[] = {{"icreq", Receiver::kController, kPlain},
              {"icresp", Receiver::kHost, kPlain},
              {"h2c_term_req", Receiver::kController, kBoth},
              {"c2h_term_req", Receiver::kHost, kBoth},
              {"capsule_cmd_read", Receiver::kController, kPlain},
              {"capsule_cmd_write", Receiver::kController, kBoth32},
              {"capsule_resp", Receiver::kHost, kHeader},
              {"h2c_data", Receiver::kController, kPlain},
              {"h2c_data_digests", Receiver::kController, kBoth},
              {"c2h_data", Receiver::kHost, kBoth8},
              {"r2t", Receiver::kHost, kHeader}};
  const test::Golden golden = test::read_golden("nvme_pdus.hex");
  EXPECT_EQ(golden.size(), std::size(pdus));
  for (const auto& pdu : pdus) {
    Pdu stream = golden.at(pdu.name);  // three in a row, so that the end of one and the beginning of the next meet
    for (int i = 0; i < 2; ++i) stream.insert(stream.end(), golden.at(pdu.name).begin(), golden.at(pdu.name).end());
    Parser whole(pdu.side, pdu.framing, true);
    test::feed(whole, stream);
    ASSERT_EQ(whole.recorder.headers.size(), 3u) << pdu.name;
    EXPECT_TRUE(whole.recorder.intact) << pdu.name;
    for (const bool burst : {false, true}) {
      for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        Parser parser(pdu.side, pdu.framing, burst);
        test::feed(parser, ConstBytes(stream).first(cut));
        test::feed(parser, ConstBytes(stream).subspan(cut));
        ASSERT_TRUE(parser.recorder.same(whole.recorder)) << pdu.name << " cut at " << cut;
        ASSERT_FALSE(parser.receiver.inside_pdu());
      }
      Parser dribble(pdu.side, pdu.framing, burst);
      test::feed(dribble, stream, 0, 1);
      EXPECT_TRUE(dribble.recorder.same(whole.recorder)) << pdu.name << " byte by byte";
    }
  }
}

// A conversation of an I/O queue with all kinds of PDUs: reads, a write in the capsule, one behind an R2T in two PDUs.
class Conversation {
 public:
  Conversation() {
    for (std::size_t i = 0; i < write.size(); ++i) write[i] = static_cast<std::byte>(base::mix64(i));
  }
  static HostOptions host_options() {
    return test::Pair::named({.qid = 1,
                              .cntlid = 7,
                              .depth = 4,
                              .header_digest = true,
                              .data_digest = true,
                              .alignment_bytes = 16,
                              .in_capsule_bytes = 512,
                              .stage_bytes = 1024,
                              .large_read_bytes = 512});
  }
  static ControllerOptions controller_options() {
    return {.alignment_bytes = 8,
            .max_queue_entries = 8,
            .in_capsule_bytes = 512,
            .max_h2c_data_bytes = 4096,
            .stage_bytes = 1024};
  }
  static std::vector<std::byte> media() {
    std::vector<std::byte> bytes(64 * 512);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(base::mix64(~i));
    return bytes;
  }
  void submit(HostSession& host) {
    const auto io = [](Opcode opcode, std::uint64_t lba, std::uint32_t blocks) {
      return ReadWrite{.opcode = opcode, .nsid = 1, .lba = lba, .blocks = blocks}.to_sqe();
    };
    EXPECT_TRUE(host.submit({.sqe = io(Opcode::kRead, 3, 2), .read_into = read, .tag = 1}, 0));
    EXPECT_TRUE(
        host.submit({.sqe = io(Opcode::kWrite, 40, 1), .write_from = ConstBytes(write).first(512), .tag = 2}, 0));
    EXPECT_TRUE(host.submit({.sqe = io(Opcode::kWrite, 50, 9), .write_from = write, .tag = 3}, 0));
    EXPECT_TRUE(host.submit({.sqe = flush(1), .tag = 4}, 0));
  }
  std::vector<std::byte> write = std::vector<std::byte>(9 * 512), read = std::vector<std::byte>(1024);
};

struct Recording {
  std::vector<Pdu> from_host, from_controller;
  std::size_t handshake_pdus = 0;  // of the controller
  std::vector<std::byte> media;
};

// What the controller answers to one PDU, its I/O done.
Pdu answers(ControllerSession& controller, test::Executor& executor) {
  Pdu out;
  do {
    const Pdu more = test::drain(controller);
    out.insert(out.end(), more.begin(), more.end());
  } while (executor.step());
  return out;
}

Recording record() {
  Conversation conversation;
  test::MemorySubsystem subsystem(64);
  subsystem.bytes = Conversation::media();
  ControllerSession controller(Conversation::controller_options(), subsystem, 0);
  test::Executor executor(controller, subsystem, 1);
  HostSession host(Conversation::host_options());
  host.start(0);
  Recording recording;
  for (auto pdus = test::split(test::drain(host)); !pdus.empty(); pdus = test::split(test::drain(host))) {
    for (const Pdu& pdu : pdus) {
      recording.from_host.push_back(pdu);
      test::feed(controller, pdu);
      const Pdu answer = answers(controller, executor);
      for (const Pdu& one : test::split(answer)) recording.from_controller.push_back(one);
      test::feed(host, answer);
    }
    if (host.state() == SessionState::kReady && recording.handshake_pdus == 0) {
      recording.handshake_pdus = recording.from_controller.size();
      conversation.submit(host);
    }
  }
  recording.media = subsystem.bytes;
  return recording;
}

// Feeds the PDUs one by one, number `index` in two pieces; `between` runs after each.
template <class Session, class Between>
void replay(Session& session, const std::vector<Pdu>& pdus, std::size_t index, std::size_t cut, Between&& between) {
  for (std::size_t i = 0; i < pdus.size(); ++i) {
    const std::size_t first = i == index ? cut : pdus[i].size();
    test::feed(session, ConstBytes(pdus[i]).first(first));
    test::feed(session, ConstBytes(pdus[i]).subspan(first));
    between(i);
  }
}

TEST(nvme_cut, host_finishes_a_conversation_wherever_it_is_cut) {
  const Recording recording = record();
  ASSERT_GE(recording.from_controller.size(), recording.handshake_pdus + 5);
  for (std::size_t index = 0; index < recording.from_controller.size(); ++index) {
    for (std::size_t cut = 0; cut < recording.from_controller[index].size(); ++cut) {
      Conversation conversation;
      HostSession host(Conversation::host_options());
      host.start(0);
      test::drain(host);
      replay(host, recording.from_controller, index, cut, [&](std::size_t i) {
        if (i + 1 == recording.handshake_pdus) conversation.submit(host);
        test::drain(host);
      });
      std::array<Completion, 5> completions;
      ASSERT_EQ(host.take(completions), 4u) << "PDU " << index << " cut at " << cut;
      for (const Completion& completion : std::span(completions).first(4)) ASSERT_TRUE(completion.status.ok());
      ASSERT_TRUE(std::ranges::equal(conversation.read, ConstBytes(recording.media).subspan(3 * 512, 1024)));
      ASSERT_EQ(host.state(), SessionState::kReady);
    }
  }
}

TEST(nvme_cut, controller_finishes_a_conversation_wherever_it_is_cut) {
  const Recording recording = record();
  ASSERT_GE(recording.from_host.size(), 8u);
  for (std::size_t index = 0; index < recording.from_host.size(); ++index) {
    for (std::size_t cut = 0; cut < recording.from_host[index].size(); ++cut) {
      test::MemorySubsystem subsystem(64);
      subsystem.bytes = Conversation::media();
      ControllerSession controller(Conversation::controller_options(), subsystem, 0);
      test::Executor executor(controller, subsystem, 1);
      Pdu said;
      replay(controller, recording.from_host, index, cut, [&](std::size_t) {
        const Pdu answer = answers(controller, executor);
        said.insert(said.end(), answer.begin(), answer.end());
      });
      ASSERT_EQ(controller.state(), ControllerSession::State::kReady)
          << "PDU " << index << " cut at " << cut << ": " << controller.error().message;
      ASSERT_EQ(controller.in_flight(), 0u);
      ASSERT_EQ(test::split(said), recording.from_controller);
      ASSERT_EQ(subsystem.bytes, recording.media) << "PDU " << index << " cut at " << cut;
    }
  }
}

}  // namespace
}  // namespace dlfs::nvme
