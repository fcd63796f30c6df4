// The host session against a hostile controller. The input is a list of steps: raw bytes, PDUs with chosen fields,
// commands, time. Whatever comes, every command finishes once, nothing is written outside its buffer or after its
// completion was taken, a successful read holds what was sent for it, and what the session sends is well-formed.
#include <map>
#include <memory>

#include "nvme/host_session.h"
#include "nvme_source.h"

namespace {

using namespace dlfs;
using nvme::ConstBytes;

std::byte data_byte(std::uint32_t offset) { return static_cast<std::byte>(offset * 31 + 7); }

class Run {
 public:
  Run(fuzz::Source& source, std::uint8_t choice)
      : source_(source),
        framing_{(choice & 1u) != 0, (choice & 2u) != 0, 4},
        wire_(nvme::Receiver::kController, framing_),
        host_({.subnqn = "nqn.2026-01.io.example:s",
               .hostnqn = "nqn.2026-01.io.example:h",
               .qid = static_cast<std::uint16_t>(choice >> 2 & 1),
               .depth = 1u + (choice >> 3 & 7),
               .header_digest = framing_.header_digest,
               .data_digest = framing_.data_digest,
               .max_r2t = 1u + (choice >> 6),
               .in_capsule_bytes = 1024,
               .keep_alive_ms = 100,
               .stage_bytes = 1024,
               .large_read_bytes = 2048}) {
    host_.start(0);
  }

  void go() {
    if (source_.u8() != 0xFF) handshake();
    while (!source_.empty()) step();
    host_.disconnected("the input is over");
    take();
    DLFS_CHECK(commands_.empty() && host_.in_flight() == 0 && host_.want().size() == 0);
  }

 private:
  struct Command {
    std::vector<std::byte> buffer;
    bool read = false;
  };

  void handshake() {
    drain(~std::size_t{0});
    feed(fuzz::pdu_of([&](nvme::HeaderBuffer to) {
      return nvme::encode(nvme::IcResp{.header_digest = framing_.header_digest, .data_digest = framing_.data_digest},
                          to);
    }));
    drain(~std::size_t{0});
    if (!cids_.empty()) respond({.result = 1, .cid = cids_.back()});
  }

  void step() {
    switch (source_.u8() % 10) {
      case 0:
        return feed(source_.take(source_.u8()));
      case 1:
        return respond({.result = source_.u32(),
                        .cid = cid(),
                        .status = nvme::decode_status(source_.u8() < 0xC0 ? 0 : source_.u16())});
      case 2:
      case 3:
        return data();
      case 4:
        return r2t();
      case 5:
      case 6:
        return submit();
      case 7:
        return drain(source_.u8() < 0x80 ? ~std::size_t{0} : source_.u8() * 8u);
      case 8:
        return take();
      default:
        now_ns_ += std::uint64_t{source_.u8()} * 1'000'000;
        return host_.tick(now_ns_);
    }
  }

  std::uint16_t cid() {
    const std::uint8_t choice = source_.u8();
    if (choice == 0xFF || cids_.empty()) return source_.u16();
    return cids_[cids_.size() - 1 - choice % std::min<std::size_t>(cids_.size(), 8)];
  }
  void respond(const nvme::Cqe& cqe) {
    feed(fuzz::pdu_of([&](nvme::HeaderBuffer to) { return nvme::encode_response(cqe, framing_, to); }));
  }
  void data() {
    nvme::C2HData pdu{
        .cid = cid(), .offset_bytes = source_.length(), .length_bytes = std::clamp(source_.length(), 1u, 16'384u)};
    const std::uint8_t flags = source_.u8();
    pdu.last = (flags & 1u) != 0;
    pdu.success = (flags & 2u) != 0;
    std::vector<std::byte> bytes(pdu.length_bytes);
    for (std::uint32_t i = 0; i < pdu.length_bytes; ++i) bytes[i] = data_byte(pdu.offset_bytes + i);
    auto whole = fuzz::pdu_of([&](nvme::HeaderBuffer to) { return nvme::encode(pdu, framing_, to); }, bytes, framing_);
    if (framing_.data_digest && (flags & 4u) != 0) whole[whole.size() - 6] ^= std::byte{1};
    feed(whole, 1 + flags * 8);
  }
  void r2t() {
    const nvme::R2T pdu{
        .cid = cid(), .ttag = source_.u16(), .offset_bytes = source_.length(), .length_bytes = source_.length()};
    feed(fuzz::pdu_of([&](nvme::HeaderBuffer to) { return nvme::encode(pdu, framing_, to); }));
  }
  void submit() {
    const std::uint8_t kind = source_.u8();
    auto command = std::make_unique<Command>();
    command->buffer.resize(64u * source_.u8());
    command->read = (kind & 1u) != 0;
    const auto blocks = static_cast<std::uint32_t>(std::max<std::size_t>(1, command->buffer.size() / 512));
    nvme::HostCommand request{
        .sqe =
            nvme::ReadWrite{
                .opcode = command->read ? nvme::Opcode::kRead : nvme::Opcode::kWrite, .nsid = 1, .blocks = blocks}
                .to_sqe(),
        .tag = ++tag_,
        .timeout_ns = (kind & 2u) != 0 ? 50'000'000u : 0u};
    if (command->read) request.read_into = command->buffer;
    if (!command->read) request.write_from = command->buffer;
    if (host_.submit(request, now_ns_)) commands_.emplace(tag_, std::move(command));
  }
  void take() {
    nvme::Completion completions[4];
    while (const std::size_t count = host_.take(completions)) {
      for (const nvme::Completion& completion : std::span(completions).first(count)) finish(completion);
    }
  }
  void finish(const nvme::Completion& completion) {
    const auto found = commands_.find(completion.tag);
    DLFS_CHECK(found != commands_.end());  // once
    const Command& command = *found->second;
    if (command.read && completion.status.ok() && !raw_) {
      for (std::uint32_t i = 0; i < command.buffer.size(); ++i) DLFS_CHECK(command.buffer[i] == data_byte(i));
    }
    commands_.erase(found);
  }
  void drain(std::size_t limit) {
    wire_.drain(host_, limit, [&](const nvme::PduShape& shape, const std::byte* header) {
      if (shape.type == nvme::PduType::kCapsuleCmd) cids_.push_back(nvme::decode_capsule(header).cid);
    });
  }
  void feed(const std::vector<std::byte>& pdu, std::size_t piece = ~std::size_t{0}) {
    fuzz::feed(host_, pdu, now_ns_, piece);
  }
  void feed(ConstBytes raw) {
    raw_ = true;  // from here on data may be anything
    fuzz::feed(host_, raw, now_ns_);
  }

  fuzz::Source& source_;
  nvme::Framing framing_;
  fuzz::Wire wire_;
  std::map<std::uint64_t, std::unique_ptr<Command>> commands_;  // outlives the session's use of the buffers
  nvme::HostSession host_;
  std::vector<std::uint16_t> cids_;
  std::uint64_t tag_ = 0, now_ns_ = 0;
  bool raw_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  fuzz::Source source(fuzz::bytes_of(data + 1, size - 1));
  Run(source, data[0]).go();
  return 0;
}
