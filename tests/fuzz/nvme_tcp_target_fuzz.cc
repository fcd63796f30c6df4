// The target, from TCP up, against hostile hosts. The input is a list of steps: connections, the PDUs that bring a
// controller up, commands and data with chosen fields, any of them changed, raw bytes, ends, time. Whatever comes, the
// target comes to rest, what it says is well-formed, its memory stays within bounds, a good host is served beside the
// others, and connections and controllers are gone once their hosts are.
#include <array>

#include "block/nvme_tcp.h"
#include "nvme_source.h"
#include "nvme_world.h"

namespace {

using namespace dlfs;
using namespace std::chrono_literals;
using nvme::ConstBytes;

constexpr std::size_t kMaxHosts = 6;
constexpr std::uint32_t kMaxConnections = 16;
constexpr std::size_t kMemoryBytes = 48u << 20;
constexpr unsigned kMaxSteps = 300;
constexpr std::uint32_t kBlocks = fuzz::kDeviceBytes / 512;

struct Host {
  std::unique_ptr<net::Stream> stream;
  std::vector<std::byte> received;
  nvme::Framing to_target, to_host;  // as ICReq and ICResp agreed
  bool asked = false, agreed = false, strict = true, silent = false;
  std::uint16_t qid = 0, cid = 0;
  nvme::R2T r2t{};
  std::uint32_t next = 0;  // of the data that it asked for
};

class Run {
 public:
  Run(fuzz::Source& source, std::uint8_t choice, std::uint8_t seed)
      : source_(source),
        choice_(choice),
        world_(seed, "the fuzzer with this input"),
        network_(world_),
        server_(network_, kMaxConnections) {
    world_.ending = [] { std::abort(); };
  }

  void go() {
    for (unsigned i = 0; i < kMaxSteps && !source_.empty(); ++i) {
      step();
      world_.idle(kRest_ns);
      memory_.check(kMemoryBytes);
      DLFS_CHECK(server_->statistics().connections <= kMaxConnections);
    }
    const bool beside = (choice_ & 1u) != 0;
    if (beside) serve_good_host(false);
    for (Host& host : hosts_) host = {};
    const std::uint64_t gone_ns = world_.now_ns();
    world_.run(gone_ns + 5 * sim::kSecond, [&] { return server_->statistics().connections == 0; });
    DLFS_CHECK(server_->statistics().connections == 0 && server_->statistics().controllers == 0);
    if (!beside) serve_good_host(true);
  }

 private:
  static constexpr std::uint64_t kRest_ns = 100'000;

  void step() {
    Host& host = hosts_[at_];
    switch (source_.u8() % 16) {
      case 0:
        at_ = source_.u8() % kMaxHosts;
        return;
      case 1:
        return connect(host);
      case 2:
        return bring_up(host);
      case 3:
        return ic_req(host, source_.u8());
      case 4:
        return fabrics_connect(host);
      case 5:
        return enable(host, source_.u8() < 0xE0);
      case 6:
      case 7:
        return io(host);
      case 8:
        return admin(host);
      case 9:
        return fabrics(host);
      case 10:
        return data(host);
      case 11:
        return send(host, source_.take(source_.u8()), true);
      case 12:
        mutations_ = 1 + source_.u8() % 4;
        return;
      case 13:
        return listen(host);
      case 14:
        return world_.idle(source_.u8() * 20 * fuzz::kMs);
      default:
        return befall(host);
    }
  }

  void befall(Host& host) {
    constexpr nvme::AnaState kStates[] = {nvme::AnaState::kOptimized, nvme::AnaState::kInaccessible,
                                          nvme::AnaState::kNonOptimized};
    const std::uint8_t what = source_.u8();
    switch (what % 5) {
      case 0:
        host = {};
        return;
      case 1:
        return network_.reset_all();
      case 2:
        return server_->announce_change(1 + what / 5 % 2);
      case 3:
        return server_->set_ana_state(kStates[what / 5 % std::size(kStates)]);
      default:
        host.silent = !host.silent;  // hears nothing: the target's answers pile up
        return;
    }
  }

  void connect(Host& host) {
    host = {};
    host.stream = network_.connect(*net::Address::from_number(fuzz::kServerHost, fuzz::kServerPort)).value();
    world_.idle(kRest_ns);
    if (host.stream->finish_connect().state != net::Moved::State::kSome) host = {};
  }

  // All that a host does before its first command: an Admin Queue, or an I/O queue of the controller made last.
  void bring_up(Host& host) {
    const std::uint8_t how = source_.u8();
    connect(host);
    ic_req(host, how & 3u);
    answer(host);
    host.qid = (how & 4u) != 0 ? 1 : 0;
    say_connect(host,
                {.qid = host.qid,
                 .queue_entries = 32,
                 .disable_sq_flow_control = (how & 8u) == 0,
                 .keep_alive_ms = host.qid == 0 ? (how >> 4) * 100u : 0u},
                host.qid == 0 ? nvme::kAnyController : cntlid_, (how & 0x80u) != 0 && host.qid == 0);
    answer(host);
    if (host.qid == 0) enable(host, true);
    answer(host);
  }
  void answer(Host& host) {
    world_.idle(kRest_ns);
    listen(host);
  }

  void ic_req(Host& host, std::uint8_t how) {
    const nvme::IcReq pdu{.alignment_bytes = 4u * (1 + (how >> 2 & 7u)),
                          .header_digest = (how & 1u) != 0,
                          .data_digest = (how & 2u) != 0,
                          .max_r2t = 1u + (how >> 5)};
    // The first one counts; a second is an error.
    if (!host.asked) host.to_host = {pdu.header_digest, pdu.data_digest, pdu.alignment_bytes};
    host.asked = true;
    say(host, fuzz::pdu_of([&](nvme::HeaderBuffer to) { return nvme::encode(pdu, to); }));
  }

  void fabrics_connect(Host& host) {
    host.qid = source_.u8() % 6;
    const std::uint8_t how = source_.u8();
    const nvme::Connect command{.qid = host.qid,
                                .queue_entries = how < 0xE0 ? 2u + how % 31 : 1u + source_.u16(),
                                .disable_sq_flow_control = how % 2 == 0,
                                .keep_alive_ms = source_.u8() * 50u};
    const std::uint8_t which = source_.u8();
    const std::uint16_t cntlid = which < 0xC0 ? (host.qid == 0 ? nvme::kAnyController : cntlid_) : source_.u16();
    say_connect(host, command, cntlid, which % 8 == 7);
  }
  void say_connect(Host& host, const nvme::Connect& command, std::uint16_t cntlid, bool discovery) {
    std::vector<std::byte> bytes(nvme::kConnectDataBytes);
    nvme::encode(nvme::ConnectData{.hostid = {std::byte{1}},
                                   .cntlid = cntlid,
                                   .subnqn = std::string(discovery ? nvme::kDiscoveryNqn : fuzz::kSubnqn),
                                   .hostnqn = "nqn.2026-01.io.example:hostile"},
                 std::span<std::byte, nvme::kConnectDataBytes>(bytes));
    capsule(host, command.to_sqe(), nvme::Sgl::kInCapsule, bytes);
  }

  void enable(Host& host, bool on) {
    nvme::Configuration configuration{.enable = on};
    if (!on && source_.u8() < 0x80) configuration = {.enable = true, .shutdown = nvme::Shutdown::kNormal};
    capsule(host,
            nvme::PropertySet{.offset = nvme::kConfigurationOffset, .value = nvme::encode(configuration)}.to_sqe());
  }

  void io(Host& host) {
    constexpr nvme::Opcode kOpcodes[] = {nvme::Opcode::kFlush, nvme::Opcode::kWrite, nvme::Opcode::kRead,
                                         nvme::Opcode::kWriteZeroes, nvme::Opcode::kDatasetManagement};
    const std::uint8_t what = source_.u8();
    const auto opcode = kOpcodes[what % std::size(kOpcodes)];
    nvme::Sqe sqe = nvme::ReadWrite{.opcode = opcode,
                                    .nsid = what < 0xE0 ? 1 + what / 8 % 2u : source_.u32(),
                                    .lba = source_.u8(),
                                    .blocks = 1u + source_.u8() % kBlocks,
                                    .force_unit_access = what >= 0x80}
                        .to_sqe();
    const std::uint8_t how = source_.u8();
    const std::uint32_t right = nvme::decode_read_write(sqe).blocks * 512;
    sqe.sgl.length_bytes = how < 0xF0 ? right : source_.length();
    if (sqe.transfer() == nvme::Transfer::kNone) sqe.sgl.length_bytes = 0;
    const bool in_capsule =
        sqe.transfer() == nvme::Transfer::kToController && sqe.sgl.length_bytes <= 4096 && how % 2 == 0;
    const unsigned times = 1 + (how >> 1 & 7u);  // a queue full of them
    for (unsigned i = 0; i < times; ++i) {
      capsule(host, sqe, in_capsule ? nvme::Sgl::kInCapsule : nvme::Sgl::kTransport,
              std::vector<std::byte>(in_capsule ? sqe.sgl.length_bytes : 0, std::byte{0x5A}));
    }
  }

  void admin(Host& host) {
    constexpr std::uint8_t kOpcodes[] = {0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18, 0x80};
    constexpr std::uint8_t kPages[] = {0x01, 0x02, 0x04, 0x0C, 0x70, 0xFF};
    nvme::Sqe sqe;
    sqe.opcode = kOpcodes[source_.u8() % std::size(kOpcodes)];
    const std::uint8_t choice = source_.u8();
    sqe.nsid = choice % 4;
    sqe.sgl.length_bytes = choice < 0xC0 ? 4096 : source_.length();
    sqe.cdw[0] = source_.u8();
    if (sqe.opcode == 0x02) sqe.cdw[0] = kPages[sqe.cdw[0] % std::size(kPages)] | (sqe.sgl.length_bytes / 4 - 1) << 16;
    if (choice % 8 == 7) sqe.cdw[0] ^= source_.u32();
    sqe.cdw[1] = source_.u16();
    sqe.cdw[2] = choice >= 0x80 ? source_.length() : 0;
    if (sqe.transfer() == nvme::Transfer::kNone) sqe.sgl.length_bytes = 0;
    capsule(host, sqe);
  }

  void fabrics(Host& host) {
    nvme::Sqe sqe = nvme::PropertyGet{}.to_sqe();
    const std::uint8_t kind = source_.u8();
    if (kind < 0x40) sqe = nvme::Disconnect{}.to_sqe();
    if (kind >= 0xC0) sqe.nsid = source_.u8();
    sqe.cdw[0] = source_.u8();
    sqe.cdw[1] = source_.u8();
    sqe.cdw[2] = source_.u32();
    capsule(host, sqe);
  }

  void capsule(Host& host, nvme::Sqe sqe, std::uint8_t sgl_type = nvme::Sgl::kTransport,
               const std::vector<std::byte>& bytes = {}) {
    sqe.cid = ++host.cid;
    sqe.sgl.type = sgl_type;
    if (!bytes.empty()) sqe.sgl.length_bytes = static_cast<std::uint32_t>(bytes.size());
    const nvme::Framing& framing = host.to_target;
    say(host, fuzz::pdu_of(
                  [&](nvme::HeaderBuffer to) {
                    return nvme::encode_capsule(sqe, static_cast<std::uint32_t>(bytes.size()), framing, to);
                  },
                  bytes, framing));
  }

  // What the last R2T asked for, or something else.
  void data(Host& host) {
    const std::uint8_t choice = source_.u8();
    const std::uint32_t left = host.r2t.length_bytes - std::min(host.next, host.r2t.length_bytes);
    nvme::H2CData pdu{.cid = host.r2t.cid,
                      .ttag = host.r2t.ttag,
                      .offset_bytes = host.r2t.offset_bytes + host.next,
                      .length_bytes = std::clamp(left, 4u, 32'768u)};
    if (choice >= 0xF0) pdu.offset_bytes = source_.length();
    if (choice == 0xFF) pdu.ttag = source_.u8();
    if (choice % 8 == 7) pdu.length_bytes = std::clamp(source_.length(), 1u, 40'000u);
    host.next += pdu.length_bytes;
    pdu.last = choice != 0xFE && host.next >= host.r2t.length_bytes;
    const std::vector<std::byte> bytes(pdu.length_bytes, std::byte{0x5A});
    const nvme::Framing& framing = host.to_target;
    say(host, fuzz::pdu_of([&](nvme::HeaderBuffer to) { return nvme::encode(pdu, framing, to); }, bytes, framing));
  }

  // A PDU, changed in places when that was asked for.
  void say(Host& host, std::vector<std::byte> pdu) {
    const bool changed = mutations_ > 0;
    bool mend = false;
    for (; mutations_ > 0; --mutations_) {
      const std::uint8_t how = source_.u8();
      const std::size_t at = (how < 0xC0 ? how % 40u : source_.u16()) % pdu.size();
      pdu[at] = static_cast<std::byte>(source_.u8());
      mend |= how % 2 == 0;
    }
    if (mend) fuzz::mend_digests(pdu);
    send(host, pdu, changed);
  }

  void send(Host& host, ConstBytes bytes, bool wild) {
    if (host.stream == nullptr) return;
    if (wild && !host.agreed) host.strict = false;  // what was agreed on is unknown
    for (unsigned tries = 0; tries < 50 && !bytes.empty(); ++tries) {
      const net::Moved gone = host.stream->send({&bytes, 1});
      if (gone.state == net::Moved::State::kFailed) {
        host = {};
        return;
      }
      bytes = bytes.subspan(gone.bytes);
      if (gone.state == net::Moved::State::kWouldBlock) world_.idle(kRest_ns);
    }
  }

  void listen(Host& host) {
    std::array<std::byte, 8192> bytes;
    while (host.stream != nullptr && !host.silent && static_cast<sim::SimStream&>(*host.stream).readable()) {
      const net::Moved got = host.stream->receive(bytes, {});
      if (got.state == net::Moved::State::kWouldBlock) return;
      if (got.state != net::Moved::State::kSome) {
        host = {};
        return;
      }
      host.received.insert(host.received.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(got.bytes));
      while (take_pdu(host)) {
      }
    }
  }

  bool take_pdu(Host& host) {
    if (host.received.size() < nvme::kCommonHeaderBytes) return false;
    const std::byte* const pdu = host.received.data();
    const nvme::CommonHeader header = nvme::decode_common_header(pdu);
    DLFS_CHECK(header.plen >= header.hlen && header.hlen >= nvme::kCommonHeaderBytes && header.plen <= (2u << 20));
    if (host.received.size() < header.plen) return false;
    if (host.strict) check_pdu(host, header, pdu);
    host.received.erase(host.received.begin(), host.received.begin() + header.plen);
    return true;
  }

  void check_pdu(Host& host, const nvme::CommonHeader& header, const std::byte* pdu) {
    const bool plain = header.type <= static_cast<std::uint8_t>(nvme::PduType::kC2HTermReq);
    const auto shape = nvme::check_header(header, nvme::Receiver::kHost, plain ? nvme::Framing{} : host.to_host);
    DLFS_CHECK(shape.has_value());
    if (shape->type == nvme::PduType::kIcResp) {
      const auto answer = nvme::decode_ic_resp(pdu);
      DLFS_CHECK(answer.has_value());
      host.to_target = {answer->header_digest, answer->data_digest, answer->alignment_bytes};
      host.to_host.header_digest = answer->header_digest;
      host.to_host.data_digest = answer->data_digest;
      host.agreed = true;
    } else if (shape->type == nvme::PduType::kCapsuleResp) {
      const nvme::Cqe cqe = nvme::decode_response(pdu);
      if (cqe.cid == 1 && cqe.status.ok() && host.qid == 0) cntlid_ = nvme::decode_connect_result(cqe.result).cntlid;
    } else if (shape->type == nvme::PduType::kR2T) {
      host.r2t = nvme::decode_r2t(pdu);
      host.next = 0;
      DLFS_CHECK(host.r2t.length_bytes > 0 && host.r2t.length_bytes <= fuzz::kDeviceBytes);
    }
  }

  // One that keeps to the rules opens the namespace and reads all of it; alone, it also writes all of it before.
  // (Beside hosts that hold all buffers and never send their data, a write has to wait for them.)
  void serve_good_host(bool writes) {
    if (server_->statistics().connections + 2 > kMaxConnections) return;
    server_->set_ana_state(nvme::AnaState::kOptimized);
    block::NvmeTcpUrl url;
    url.paths = {{fuzz::kServerHost, fuzz::kServerPort}};
    url.subnqn = fuzz::kSubnqn;
    url.hostnqn = "nqn.2026-01.io.example:good";
    url.hostid[5] = std::byte{9};
    url.header_digest = url.data_digest = (choice_ & 2u) != 0;
    url.io_timeout = url.connect_timeout = 2s;
    url.ctrl_loss_timeout = 2s;
    auto device = block::open_nvme_tcp_device(url, {.write = true, .queue_depth = 4}, network_);
    DLFS_CHECK(device.ok());
    if (writes) DLFS_CHECK(block::write_all(**device, 0, fuzz::device_bytes()).ok() && block::flush(**device).ok());
    std::vector<std::byte> buffer(fuzz::kDeviceBytes);
    DLFS_CHECK(block::read_all(**device, 0, buffer).ok());
    if (writes) DLFS_CHECK(fuzz::same(buffer, fuzz::device_bytes()));
    DLFS_CHECK((*device)->interruptions() == 0);
  }

  fuzz::Source& source_;
  std::uint8_t choice_;
  fuzz::MemoryBound memory_;
  sim::World world_;
  sim::SimNetwork network_;
  fuzz::ServerInWorld server_;
  std::array<Host, kMaxHosts> hosts_;
  std::size_t at_ = 0;
  unsigned mutations_ = 0;
  std::uint16_t cntlid_ = 1;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  dlfs::fuzz::fill_device();
  fuzz::Source source(fuzz::bytes_of(data + 2, size - 2));
  Run(source, data[0], data[1]).go();
  return 0;
}
