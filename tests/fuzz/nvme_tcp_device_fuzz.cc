// The initiator's device, from TCP up, against a hostile target. The input says what is done with the PDUs that go
// between the device and a real target (see meddler.h), or is itself the target's bytes, and what is asked of the
// device. Whatever comes, every request is completed once and in time, a read that succeeds holds bytes that the target
// sent, nothing is written to a buffer after its completion, and memory stays within bounds.
#include <map>

#include "block/nvme_tcp.h"
#include "meddler.h"

namespace {

using namespace dlfs;
using namespace std::chrono_literals;

constexpr std::uint16_t kPorts[] = {1, 2};
constexpr std::size_t kMemoryBytes = 64u << 20;
constexpr unsigned kMaxSteps = 120, kMaxRepeatedSteps = 12;
constexpr std::uint32_t kMaxRequestBytes = 128u << 10;
constexpr auto kSlack = 1s;  // for the work itself, and for whoever is woken late

class Run {
 public:
  Run(std::span<const std::byte> meddling, std::span<const std::byte> asking, std::uint8_t choice, std::uint8_t seed)
      : asking_(asking),
        repeats_((seed & 0x80u) != 0),
        world_(seed, "the fuzzer with this input"),
        network_(world_),
        digests_((choice & 3u) == 3),
        paths_((choice & 4u) != 0 ? 2 : 1),
        server_(network_, 64),
        meddler_(network_, meddling, std::span(kPorts).first(paths_), digests_, repeats_) {
    world_.ending = [] { std::abort(); };
    url_.subnqn = fuzz::kSubnqn;
    for (std::size_t i = 0; i < paths_; ++i) url_.paths.push_back({fuzz::kServerHost, kPorts[i]});
    url_.hostnqn = "nqn.2026-01.io.example:host";
    url_.hostid[3] = std::byte{7};
    url_.nsid = (choice & 0x80u) != 0 ? 2 : 1;
    url_.header_digest = (choice & 1u) != 0;
    url_.data_digest = (choice & 2u) != 0;
    url_.queues = 1 + (choice >> 3 & 1u);
    url_.queue_depth = (choice & 0x10u) != 0 ? 2 : 0;
    url_.connect_timeout = 1s;
    url_.keep_alive = (choice & 0x20u) != 0 ? 0ms : 500ms;
    url_.io_timeout = 1s;
    url_.ctrl_loss_timeout = 2s;
    url_.reconnect_delay = 20ms;
    leaves_early_ = (choice & 0x40u) != 0;
  }

  void go() {
    const std::uint64_t before_ns = world_.now_ns();
    auto opened = block::open_nvme_tcp_device(url_, {.write = true, .queue_depth = 8}, network_);
    DLFS_CHECK(passed(before_ns) <= url_.connect_timeout + kSlack);
    memory_.check(kMemoryBytes);
    if (!opened.ok()) {
      DLFS_CHECK(!opened.error().message.empty() && opened.error().message.size() < 8192);
      return;
    }
    device_ = std::move(opened).value();
    limit_ = device_->geometry().patience + kSlack;
    const unsigned most = repeats_ ? kMaxRepeatedSteps : kMaxSteps;
    for (unsigned i = 0; i < most && !asking_.empty(); ++i) step();
    if (!leaves_early_) {
      while (!asked_.empty()) turn(20ms);
    }
    const std::uint64_t leaving_ns = world_.now_ns();
    device_.reset();
    DLFS_CHECK(passed(leaving_ns) <= 2s + kSlack);
    world_.idle(sim::kSecond);  // what comes now comes too late
    for (const Finished& one : finished_) DLFS_CHECK(fuzz::same(one.buffer, one.then));
  }

 private:
  struct Asked {
    block::Request request;
    std::vector<std::byte> buffer;
    std::uint64_t since_ns = 0;
  };
  struct Finished {
    std::vector<std::byte> buffer, then;
  };

  std::chrono::nanoseconds passed(std::uint64_t since_ns) const {
    return std::chrono::nanoseconds(world_.now_ns() - since_ns);
  }

  void step() {
    const std::uint8_t what = asking_.u8();
    switch (what % 8) {
      case 0:
      case 1:
      case 2:
        return ask(block::Op::kRead);
      case 3:
        return ask(block::Op::kWrite);
      case 4:
        return what < 0x80 ? ask(block::Op::kFlush) : change_target();
      case 5:
        return turn(std::chrono::milliseconds(asking_.u8()));
      case 6:
        return turn(0ms);
      default:  // nobody looks after the device
        world_.idle(asking_.u8() * 10 * fuzz::kMs);
        for (auto& [tag, asked] : asked_) asked.since_ns = world_.now_ns();
        return turn(1ms);
    }
  }

  void change_target() {
    constexpr nvme::AnaState kStates[] = {nvme::AnaState::kOptimized, nvme::AnaState::kNonOptimized,
                                          nvme::AnaState::kInaccessible};
    const std::uint8_t how = asking_.u8();
    if (how >= 0x80) return server_->announce_change(1 + how % 2);
    server_->set_ana_state(kStates[how % std::size(kStates)]);
  }

  void ask(block::Op op) {
    const block::Geometry& geometry = device_->geometry();
    const std::uint64_t blocks = geometry.capacity_bytes / geometry.block_bytes;
    const std::uint8_t how_many = asking_.u8(), where = asking_.u8();
    const auto most =
        std::max<std::uint64_t>(1, std::min<std::uint64_t>(blocks, kMaxRequestBytes / geometry.block_bytes));
    const std::uint64_t count = how_many < 0xE0 ? 1 + how_many % std::min<std::uint64_t>(most, 16) : most;
    const std::uint64_t first = blocks - count == 0 ? 0 : where * 13u % (blocks - count + 1);
    Asked asked;
    asked.since_ns = world_.now_ns();
    asked.request = {.op = op, .user_data = ++tag_};
    if (op != block::Op::kFlush) {
      asked.buffer.assign(count * geometry.block_bytes, fuzz::kUnwritten);
      asked.request.data = asked.buffer.data();
      asked.request.length_bytes = static_cast<std::uint32_t>(asked.buffer.size());
      asked.request.offset_bytes = first * geometry.block_bytes;
      const auto bytes = fuzz::device_bytes();
      if (op == block::Op::kWrite && asked.request.offset_bytes < bytes.size()) {
        const auto from = bytes.subspan(asked.request.offset_bytes);
        std::memcpy(asked.buffer.data(), from.data(), std::min(from.size(), asked.buffer.size()));
      }
    }
    const block::Request request = asked.request;
    if (device_->submit({&request, 1}) == 1) asked_.emplace(tag_, std::move(asked));
  }

  void turn(std::chrono::nanoseconds longest) {
    if (longest > 0ns) device_->wait(longest, -1);
    block::Completion completions[4];
    while (const std::size_t count = device_->poll(completions)) {
      for (const block::Completion& completion : std::span(completions).first(count)) finish(completion);
    }
    for (const auto& [tag, asked] : asked_) DLFS_CHECK(passed(asked.since_ns) <= limit_);
    DLFS_CHECK(device_->in_flight() == asked_.size());
    memory_.check(kMemoryBytes);
  }

  void finish(const block::Completion& completion) {
    const auto found = asked_.find(completion.user_data);
    DLFS_CHECK(found != asked_.end());  // once
    Asked asked = std::move(found->second);
    asked_.erase(found);
    const block::Request& request = asked.request;
    DLFS_CHECK(completion.length_bytes <= request.length_bytes);
    if (completion.errno_value != 0) {
      const Error error = block::completion_error(*device_, request, completion);
      DLFS_CHECK(!error.message.empty() && error.message.size() < 8192);
    } else {
      DLFS_CHECK(completion.length_bytes == request.length_bytes);
      if (request.op == block::Op::kRead) check_read(asked);
    }
    std::vector<std::byte> then = asked.buffer;
    finished_.push_back({std::move(asked.buffer), std::move(then)});
  }

  void check_read(const Asked& asked) const {
    const std::vector<std::byte>& buffer = asked.buffer;
    DLFS_CHECK(std::memchr(buffer.data(), static_cast<int>(fuzz::kUnwritten), buffer.size()) == nullptr);
    if (meddler_.lied()) return;
    DLFS_CHECK(fuzz::same(buffer, fuzz::device_bytes().subspan(asked.request.offset_bytes, buffer.size())));
  }

  fuzz::Source asking_;
  bool repeats_;
  fuzz::MemoryBound memory_;
  sim::World world_;
  sim::SimNetwork network_;
  bool digests_, leaves_early_ = false;
  std::size_t paths_;
  block::NvmeTcpUrl url_;
  fuzz::ServerInWorld server_;
  fuzz::Meddler meddler_;
  std::map<std::uint64_t, Asked> asked_;  // outlives the device's use of the buffers
  std::vector<Finished> finished_;
  std::unique_ptr<block::BlockDevice> device_;
  std::chrono::nanoseconds limit_{};
  std::uint64_t tag_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  dlfs::fuzz::fill_device();
  const auto input = dlfs::fuzz::bytes_of(data + 3, size - 3);
  const std::size_t middle = input.size() * data[2] / 255;
  Run(input.first(middle), input.subspan(middle), data[0], data[1]).go();
  return 0;
}
