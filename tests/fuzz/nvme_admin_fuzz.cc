// The bring-up of a controller against a hostile one. The input answers the host's commands, one after the other:
// status and result, and what it reads. Whatever comes, the driver ends ready or failed with a sentence, what it tells
// of the controller makes sense, and it asks for a bounded number of things.
#include "nvme/admin_driver.h"
#include "nvme_source.h"

namespace {

using namespace dlfs;
using State = nvme::AdminDriver::State;

class Run {
 public:
  Run(fuzz::Source& source, std::uint8_t choice)
      : source_(source),
        wire_(nvme::Receiver::kController, {}),
        discovery_((choice & 1u) != 0),
        driver_({.session = {.subnqn = "nqn.2026-01.io.example:s",
                             .hostnqn = "nqn.2026-01.io.example:h",
                             .stage_bytes = 1024},
                 .discovery = discovery_,
                 .nsid = discovery_ ? 0u : (choice >> 1 & 3u),
                 .io_queues = discovery_ ? 0u : (choice >> 3 & 7u)}) {}

  void go() {
    driver_.start(now_ns_);
    drain();
    feed(fuzz::pdu_of([](nvme::HeaderBuffer to) { return nvme::encode(nvme::IcResp{}, to); }));
    for (int step = 0; step < 4000 && !source_.empty() && driver_.state() != State::kFailed; ++step) {
      drain();
      if (commands_.empty()) {
        now_ns_ += 6'000'000;
        driver_.session().tick(now_ns_);
        driver_.advance(now_ns_);
        drain();
        if (commands_.empty() && driver_.state() == State::kReady) {
          if ((source_.u8() & 1u) != 0) driver_.refresh(now_ns_);
          (void)driver_.take_changes();
        }
        continue;
      }
      answer();
      check();
    }
    if (driver_.state() != State::kFailed) {
      driver_.session().disconnected("the input is over");
      driver_.advance(now_ns_);
    }
    DLFS_CHECK(driver_.state() == State::kFailed && !driver_.error().message.empty());
  }

 private:
  void drain() {
    wire_.drain(driver_.session(), ~std::size_t{0}, [&](const nvme::PduShape& shape, const std::byte* header) {
      if (shape.type == nvme::PduType::kCapsuleCmd) commands_.push_back(nvme::decode_capsule(header));
    });
  }
  void feed(const std::vector<std::byte>& pdu) {
    fuzz::feed(driver_.session(), pdu, now_ns_);
    driver_.advance(now_ns_);
  }

  // The oldest command gets what the input says: data of the length asked for, mostly zero, and a status.
  void answer() {
    const std::size_t at = source_.u8() < 0xF0 ? 0 : commands_.size() - 1;
    const nvme::Sqe sqe = commands_[at];
    commands_.erase(commands_.begin() + static_cast<std::ptrdiff_t>(at));
    const std::uint8_t kind = source_.u8();
    const bool reads = sqe.transfer() == nvme::Transfer::kToHost && sqe.sgl.length_bytes > 0;
    if (reads && kind < 0xE0) {
      std::vector<std::byte> data(std::min(sqe.sgl.length_bytes, 1u << 20));
      for (std::uint8_t i = source_.u8() % 32; i > 0; --i) {
        const std::size_t place = source_.u16() % data.size();
        const auto bytes = source_.take(1 + source_.u8() % 16);
        for (std::size_t k = 0; k < bytes.size() && place + k < data.size(); ++k) data[place + k] = bytes[k];
      }
      const nvme::C2HData pdu{.cid = sqe.cid, .length_bytes = static_cast<std::uint32_t>(data.size()), .last = true};
      feed(fuzz::pdu_of([&](nvme::HeaderBuffer to) { return nvme::encode(pdu, {}, to); }, data, {}));
    }
    const std::uint64_t result = (std::uint64_t{source_.u32()} << 32) | source_.u32();
    const nvme::Status status = kind < 0xC0 ? nvme::Status{} : nvme::decode_status(source_.u16());
    feed(fuzz::pdu_of([&](nvme::HeaderBuffer to) {
      return nvme::encode_response({.result = kind % 2 == 0 ? result >> 32 : result, .cid = sqe.cid, .status = status},
                                   {}, to);
    }));
  }

  void check() const {
    if (driver_.state() != State::kReady) return;
    DLFS_CHECK(driver_.queue_entries_limit() >= 2 && driver_.max_transfer_bytes() > 0);
    DLFS_CHECK(driver_.discovery().size() <= 10'000 && driver_.namespaces().size() <= 70'000);
    if (discovery_) return;
    DLFS_CHECK(driver_.controller().io_command_capsule_bytes >= 64);
    if (const auto& space = driver_.namespace_info(); space) {
      DLFS_CHECK(space->identity.block_bytes_log2 >= 9 && space->identity.block_bytes_log2 <= 16);
      DLFS_CHECK(space->identity.blocks > 0 && space->identity.metadata_bytes == 0);
      DLFS_CHECK(space->capacity_bytes() >> space->identity.block_bytes_log2 == space->identity.blocks);
    }
  }

  fuzz::Source& source_;
  fuzz::Wire wire_;
  bool discovery_;
  nvme::AdminDriver driver_;
  std::vector<nvme::Sqe> commands_;
  std::uint64_t now_ns_ = 1'000'000'000;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  fuzz::Source source(fuzz::bytes_of(data + 1, size - 1));
  Run(source, data[0]).go();
  return 0;
}
