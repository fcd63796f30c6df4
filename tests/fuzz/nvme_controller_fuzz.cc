// The controller session against a hostile host. The input is a list of steps: raw bytes, PDUs with chosen fields, I/O
// that is done, time. Whatever comes, no request leads out of the namespace or its buffer, each is completed once, and
// what the session sends is well-formed.
#include "../unit/nvme/session_pair.h"
#include "nvme_source.h"

namespace {

using namespace dlfs;
using nvme::ConstBytes;

constexpr std::size_t kBlocks = 64;

class Run {
 public:
  Run(fuzz::Source& source, std::uint8_t choice)
      : source_(source),
        framing_{(choice & 1u) != 0, (choice & 2u) != 0, 4},
        wire_(nvme::Receiver::kHost, framing_),
        subsystem_(kBlocks),
        controller_({.max_queue_entries = 8,
                     .in_capsule_bytes = 1024,
                     .max_h2c_data_bytes = 4096,
                     .max_transfer_log2 = 3,
                     .async_events = 2,
                     .stage_bytes = 1024},
                    subsystem_, 0),
        executor_(controller_, subsystem_, choice),
        qid_(choice >> 2 & 1) {}

  void go() {
    if (source_.u8() != 0xFF) handshake();
    while (!source_.empty()) step();
    controller_.disconnected("the input is over");
    executor_.step();
    DLFS_CHECK(controller_.in_flight() == 0 && controller_.want().size() == 0);
  }

 private:
  void handshake() {
    feed(fuzz::pdu_of([&](nvme::HeaderBuffer to) {
      return nvme::encode(nvme::IcReq{.header_digest = framing_.header_digest, .data_digest = framing_.data_digest},
                          to);
    }));
    drain(~std::size_t{0});
    std::vector<std::byte> data(nvme::kConnectDataBytes);
    nvme::encode(nvme::ConnectData{.cntlid = 7, .subnqn = nvme::test::kSubnqn, .hostnqn = nvme::test::kHostnqn},
                 std::span<std::byte, nvme::kConnectDataBytes>(data));
    capsule(
        nvme::Connect{
            .qid = qid_, .queue_entries = 8, .disable_sq_flow_control = source_.u8() < 0x80, .keep_alive_ms = 100}
            .to_sqe(),
        nvme::Sgl::kInCapsule, data);
    if (qid_ == 0)
      capsule(nvme::PropertySet{.offset = nvme::kConfigurationOffset,
                                .value = nvme::encode(nvme::Configuration{.enable = true})}
                  .to_sqe());
    drain(~std::size_t{0});
  }

  void step() {
    switch (source_.u8() % 10) {
      case 0:
        return fuzz::feed(controller_, source_.take(source_.u8()), now_ns_);
      case 1:
        return io();
      case 2:
        return admin();
      case 3:
        return fabrics();
      case 4:
      case 5:
        return data();
      case 6:
        return drain(source_.u8() < 0x80 ? ~std::size_t{0} : source_.u8() * 8u);
      case 7:
        executor_.step();
        return;
      case 8:
        return controller_.notify(
            {.type = nvme::AsyncEvent::kNotice, .info = static_cast<std::uint8_t>(source_.u8() % 5), .log_page = 4});
      default:
        now_ns_ += std::uint64_t{source_.u8()} * 10'000'000;
        return controller_.tick(now_ns_);
    }
  }

  void io() {
    constexpr nvme::Opcode kOpcodes[] = {nvme::Opcode::kFlush, nvme::Opcode::kWrite, nvme::Opcode::kRead,
                                         nvme::Opcode::kWriteZeroes, nvme::Opcode::kDatasetManagement};
    const auto opcode = kOpcodes[source_.u8() % std::size(kOpcodes)];
    nvme::Sqe sqe =
        nvme::ReadWrite{
            .opcode = opcode, .nsid = source_.u8() % 4u, .lba = source_.u8(), .blocks = 1u + source_.u8() % 70u}
            .to_sqe();
    if (source_.u8() == 0xFF) sqe.cdw[1] = source_.u32();  // a far LBA
    const std::uint32_t blocks = nvme::decode_read_write(sqe).blocks;
    const bool right = source_.u8() < 0xE0;
    sqe.sgl.length_bytes = right ? blocks * nvme::test::MemorySubsystem::kBlockBytes : source_.length();
    if (opcode == nvme::Opcode::kDatasetManagement) sqe.cdw[0] = blocks - 1, sqe.sgl.length_bytes = blocks * 16;
    const bool in_capsule =
        sqe.transfer() == nvme::Transfer::kToController && sqe.sgl.length_bytes <= 1024 && source_.u8() < 0x80;
    capsule(sqe, in_capsule ? nvme::Sgl::kInCapsule : nvme::Sgl::kTransport,
            std::vector<std::byte>(in_capsule ? sqe.sgl.length_bytes : 0));
  }
  void admin() {
    constexpr std::uint8_t kOpcodes[] = {0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18, 0x80};
    nvme::Sqe sqe;
    sqe.opcode = kOpcodes[source_.u8() % std::size(kOpcodes)];
    sqe.nsid = source_.u8();
    sqe.sgl.length_bytes = source_.u8() < 0x80 ? 4096 : source_.length();
    sqe.cdw[0] = source_.u32();
    sqe.cdw[1] = source_.u16();
    sqe.cdw[2] = source_.length();
    if (sqe.transfer() == nvme::Transfer::kNone) sqe.sgl.length_bytes = 0;
    capsule(sqe);
  }
  void fabrics() {
    nvme::Sqe sqe = nvme::PropertyGet{}.to_sqe();
    sqe.nsid = source_.u8();
    sqe.cdw[0] = source_.u8();
    sqe.cdw[1] = source_.u8();
    sqe.cdw[2] = source_.u32();
    capsule(sqe);
  }
  void capsule(nvme::Sqe sqe, std::uint8_t sgl_type = nvme::Sgl::kTransport, const std::vector<std::byte>& bytes = {}) {
    sqe.cid = source_.u8() < 0xF0 ? ++cid_ : cid_;
    sqe.sgl.type = sgl_type;
    if (!bytes.empty()) sqe.sgl.length_bytes = static_cast<std::uint32_t>(bytes.size());
    feed(fuzz::pdu_of(
        [&](nvme::HeaderBuffer to) {
          return nvme::encode_capsule(sqe, static_cast<std::uint32_t>(bytes.size()), framing_, to);
        },
        bytes, framing_));
  }
  // The data that the last R2T asked for, or others.
  void data() {
    const std::uint8_t choice = source_.u8();
    nvme::H2CData pdu{
        .cid = r2t_.cid,
        .ttag = r2t_.ttag,
        .offset_bytes = next_,
        .length_bytes = std::min(4096u, std::max(4u, r2t_.length_bytes - std::min(next_, r2t_.length_bytes)))};
    if (choice >= 0xF0) pdu.offset_bytes = source_.length();
    if (choice == 0xFF) pdu.ttag = source_.u8();
    if (choice % 8 == 7) pdu.length_bytes = std::clamp(source_.length(), 1u, 5000u);
    pdu.last = choice != 0xFE && pdu.offset_bytes + pdu.length_bytes == r2t_.length_bytes;
    next_ = pdu.offset_bytes + pdu.length_bytes;
    const std::vector<std::byte> bytes(pdu.length_bytes, std::byte{0x5A});
    auto whole = fuzz::pdu_of([&](nvme::HeaderBuffer to) { return nvme::encode(pdu, framing_, to); }, bytes, framing_);
    if (framing_.data_digest && choice == 0xE0) whole.back() ^= std::byte{1};
    fuzz::feed(controller_, whole, now_ns_, 1 + choice * 8);
  }
  void drain(std::size_t limit) {
    wire_.drain(controller_, limit, [&](const nvme::PduShape& shape, const std::byte* header) {
      if (shape.type != nvme::PduType::kR2T) return;
      r2t_ = nvme::decode_r2t(header);
      next_ = r2t_.offset_bytes;
    });
  }
  void feed(const std::vector<std::byte>& pdu) { fuzz::feed(controller_, pdu, now_ns_); }

  fuzz::Source& source_;
  nvme::Framing framing_;
  fuzz::Wire wire_;
  nvme::test::MemorySubsystem subsystem_;
  nvme::ControllerSession controller_;
  nvme::test::Executor executor_;
  std::uint16_t qid_, cid_ = 0;
  nvme::R2T r2t_{};
  std::uint32_t next_ = 0;
  std::uint64_t now_ns_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  fuzz::Source source(fuzz::bytes_of(data + 1, size - 1));
  Run(source, data[0]).go();
  return 0;
}
