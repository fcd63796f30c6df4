// The NVMe/TCP device against a real target in this process, and what both do when things go wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/mix.h"
#include "block/nvme_tcp.h"
#include "support/served_device.h"

namespace dlfs::block {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing_support::ServedDevice;

constexpr std::uint32_t kBlock = 4096;
constexpr std::uint64_t kBlocks = 2048;  // 8 MiB
constexpr const char* kQuick = "&keep_alive=1s&connect_timeout=2s&reconnect_delay=20ms&io_timeout=10s";

std::unique_ptr<BlockDevice> open(const std::string& url, bool write = true) {
  auto device = open_device(url, {.write = write, .queue_depth = 32});
  EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().message);
  return device.ok() ? std::move(device).value() : nullptr;
}

std::byte content(std::uint64_t block, std::uint32_t version) {
  return static_cast<std::byte>(base::mix64(block * 131 + version));
}

// Random reads and writes of whole blocks, each block's content known; `meanwhile` is called between rounds.
class Worker {
 public:
  explicit Worker(BlockDevice& device)
      : device_(device), versions_(kBlocks, 0), busy_(kBlocks, false), memory_(kDepth * kBlock), slots_(kDepth) {
    for (std::size_t i = 0; i < kDepth; ++i) free_.push_back(i);
  }

  void run(int requests, const std::function<void(int)>& meanwhile = {}) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    int sent = 0, done = 0;
    while (done < requests) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << done << " of " << requests << " are done";
      while (sent < requests && !free_.empty() && send()) ++sent;
      const int now = collect();
      done += now;
      if (now > 0 && meanwhile) meanwhile(done);
      if (now == 0) device_.wait(50ms);
    }
  }

 private:
  static constexpr std::size_t kDepth = 32;
  struct Slot {
    std::uint64_t block = 0;
    bool write = false;
  };

  bool send() {
    std::uint64_t block = prng_.below(kBlocks);
    if (busy_[block]) return false;
    const std::size_t slot = free_.back();
    slots_[slot] = {block, prng_.below(2) == 0};
    std::byte* data = memory_.data() + slot * kBlock;
    if (slots_[slot].write) std::fill_n(data, kBlock, content(block, versions_[block] + 1));
    const Request request{slots_[slot].write ? Op::kWrite : Op::kRead, data, kBlock, block * kBlock, slot};
    if (device_.submit(std::span(&request, 1)) == 0) return false;
    free_.pop_back();
    busy_[block] = true;
    return true;
  }

  int collect() {
    Completion completions[16];
    const std::size_t count = device_.poll(completions);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t slot = completions[i].user_data;
      const auto [block, write] = slots_[slot];
      EXPECT_EQ(completions[i].errno_value, 0) << device_.explain(completions[i]);
      if (write) {
        ++versions_[block];
      } else {
        const std::byte expected = versions_[block] == 0 ? std::byte{0} : content(block, versions_[block]);
        const std::byte* data = memory_.data() + slot * kBlock;
        EXPECT_TRUE(std::all_of(data, data + kBlock, [&](std::byte b) { return b == expected; })) << "block " << block;
      }
      busy_[block] = false;
      free_.push_back(slot);
    }
    return static_cast<int>(count);
  }

  BlockDevice& device_;
  base::Prng prng_{5};
  std::vector<std::uint32_t> versions_;
  std::vector<bool> busy_;
  std::vector<std::byte> memory_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;
};

// ---- a device behind the target that fails on purpose ----

class FailingDevice final : public BlockDevice {
 public:
  struct Plan {
    std::atomic<int> errno_value{0}, times{0};
  };
  FailingDevice(std::unique_ptr<BlockDevice> inner, std::shared_ptr<Plan> plan)
      : inner_(std::move(inner)), plan_(std::move(plan)) {}
  const Geometry& geometry() const noexcept override { return inner_->geometry(); }
  const std::string& url() const noexcept override { return inner_->url(); }
  const std::string& notes() const noexcept override { return inner_->notes(); }
  const char* engine() const noexcept override { return inner_->engine(); }
  std::size_t submit(std::span<const Request> requests) noexcept override { return inner_->submit(requests); }
  std::size_t poll(std::span<Completion> completions) noexcept override {
    const std::size_t count = inner_->poll(completions);
    for (std::size_t i = 0; i < count && plan_->times > 0; ++i) {
      --plan_->times;
      completions[i].errno_value = plan_->errno_value;
    }
    return count;
  }
  int wait_descriptor() const noexcept override { return inner_->wait_descriptor(); }
  std::size_t in_flight() const noexcept override { return inner_->in_flight(); }
  void register_memory(std::span<std::byte>) noexcept override {}

 private:
  std::unique_ptr<BlockDevice> inner_;
  std::shared_ptr<Plan> plan_;
};

// How the server opens its devices. The wrapper lends no view of the memory: two servers that share it order their
// accesses by its lock, which the thread sanitizer sees; that a host's commands order them, it does not.
auto failing(std::shared_ptr<FailingDevice::Plan> plan) {
  return [plan](const std::string& url, const OpenOptions& options) -> Result<std::unique_ptr<BlockDevice>> {
    auto inner = open_device(url, options);
    if (!inner.ok()) return inner;
    return std::unique_ptr<BlockDevice>(std::make_unique<FailingDevice>(std::move(inner).value(), plan));
  };
}

TEST(NvmeTcpDevice, ReadsAndWritesThroughATarget) {
  ServedDevice served;
  served.start();
  for (const char* options : {"", "&header_digest=on&data_digest=on", "&queues=4&queue_depth=3"}) {
    const auto device = open(served.url(options));
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device->geometry().capacity_bytes, 8u << 20);
    EXPECT_EQ(device->geometry().block_bytes, 512u);
    EXPECT_STREQ(device->engine(), "nvme-tcp");
    std::vector<std::byte> zero(8u << 20);
    ASSERT_TRUE(write_all(*device, 0, zero).ok());
    Worker(*device).run(3000);
    EXPECT_TRUE(flush(*device).ok());
  }
}

TEST(NvmeTcpDevice, GetsOverARestartOfTheTarget) {
  ServedDevice served;
  served.start();
  const auto device = open(served.url(kQuick));
  ASSERT_NE(device, nullptr);
  int restarts = 0;
  Worker(*device).run(6000, [&](int done) {
    if (done / 1500 <= restarts) return;
    ++restarts;
    served.stop();
    served.start();
  });
  EXPECT_GE(restarts, 3);
}

TEST(NvmeTcpDevice, AFrozenTargetIsLostWithinTheKeepAliveTimeAndTakenBack) {
  ServedDevice served;
  served.start_by_hand();
  const auto device = open(served.url("&keep_alive=1s&connect_timeout=500ms&reconnect_delay=20ms&io_timeout=30s"));
  ASSERT_NE(device, nullptr);
  std::vector<std::byte> memory(kBlock);
  const Request read{Op::kRead, memory.data(), kBlock, 0, 1};
  served.freeze(true);
  ASSERT_EQ(device->submit(std::span(&read, 1)), 1u);
  std::thread thaw([&] {
    std::this_thread::sleep_for(2500ms);
    served.freeze(false);
  });
  Completion done;
  const auto begin = std::chrono::steady_clock::now();
  while (device->poll(std::span(&done, 1)) == 0 && std::chrono::steady_clock::now() - begin < 25s) device->wait(20ms);
  thaw.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s) << "io_timeout is 30 s: only keep-alive can have found it";
  EXPECT_EQ(done.errno_value, 0);
}

TEST(NvmeTcpDevice, WithoutAPathRequestsFailInTime) {
  ServedDevice served;
  served.start();
  const auto device = open(served.url("&ctrl_loss_timeout=300ms&reconnect_delay=20ms"));
  ASSERT_NE(device, nullptr);
  served.stop();
  std::vector<std::byte> memory(kBlock);
  const auto result = read_all(*device, 0, memory);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kDeviceLost);
  EXPECT_THAT(result.error().message, HasSubstr("no path to it for 300 ms (ctrl_loss_timeout)"));
  EXPECT_THAT(result.error().message, HasSubstr(served.endpoint()));
  served.start();
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (!read_all(*device, 0, memory).ok() && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_LT(std::chrono::steady_clock::now(), until) << "it comes back by itself";
}

TEST(NvmeTcpDevice, TakesTheOtherPathAndReturnsToTheBetterOne) {
  ServedDevice one;
  one.options().open_device = failing(std::make_shared<FailingDevice::Plan>());
  one.start();
  ServedDevice other;  // only its server is used: a second path to the bytes of `one`
  other.options().nqn = one.options().nqn;
  other.options().namespaces = {{.url = "mem:" + one.name()}};
  other.options().open_device = one.options().open_device;
  other.options().ana = nvme::AnaState::kNonOptimized;
  other.start();
  std::string url = one.url(kQuick);
  url.replace(url.find(one.endpoint()), one.endpoint().size(), one.endpoint() + "," + other.endpoint());
  const auto device = open(url);
  ASSERT_NE(device, nullptr);
  // Which path stands first is chance: begin once the better one is used.
  std::vector<std::byte> memory(kBlock);
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (one.server().statistics().reads == 0 && std::chrono::steady_clock::now() < until) {
    ASSERT_TRUE(read_all(*device, 0, memory).ok());
  }
  int stage = 0;
  std::uint64_t before = other.server().statistics().reads;
  Worker(*device).run(9000, [&](int done) {
    if (stage == 0 && done > 1000) {
      EXPECT_LT(other.server().statistics().reads, before + 200) << "the better path is used alone";
      one.stop();
      stage = 1;
    } else if (stage == 1 && done > 3000) {
      EXPECT_GT(other.server().statistics().reads, before + 500);
      one.start();
      stage = 2;
    } else if (stage == 2 && done > 5000 && one.server().statistics().reads > 0) {
      before = other.server().statistics().reads;
      stage = 3;
    } else if (stage == 3 && done > 7000) {
      EXPECT_LT(other.server().statistics().reads, before + 200) << "and again alone, once it is back";
      one.server().set_ana_state(nvme::AnaState::kInaccessible);
      stage = 4;
    }
  });
  EXPECT_EQ(stage, 4);
  EXPECT_GT(other.server().statistics().reads, before + 300) << "an inaccessible path is left";
}

TEST(NvmeTcpDevice, AnotherNamespaceInItsPlaceIsAnErrorThatSaysSo) {
  ServedDevice served;
  served.start();
  const auto device = open(served.url(kQuick));
  ASSERT_NE(device, nullptr);
  served.stop();
  ServedDevice larger(16u << 20);
  served.options().namespaces = {{.url = "mem:" + larger.name()}};
  served.start();
  std::vector<std::byte> memory(kBlock);
  const auto result = read_all(*device, 0, memory);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kDeviceLost);
  EXPECT_THAT(result.error().message, HasSubstr("namespace 1 is now another one"));
}

TEST(NvmeTcpDevice, StatusDecidesWhetherACommandIsTriedAgain) {
  ServedDevice served;
  auto plan = std::make_shared<FailingDevice::Plan>();
  served.options().open_device = failing(plan);
  served.start();
  const auto device = open(served.url());
  ASSERT_NE(device, nullptr);
  std::vector<std::byte> memory(kBlock);
  plan->errno_value = EAGAIN;  // Command Interrupted, may be retried
  plan->times = 3;
  EXPECT_TRUE(read_all(*device, 0, memory).ok()) << "three refusals are got over";
  EXPECT_EQ(plan->times, 0);
  plan->times = 1000;
  EXPECT_FALSE(read_all(*device, 0, memory).ok()) << "not for ever";
  plan->errno_value = EIO;
  plan->times = 1;
  const auto failed = read_all(*device, 0, memory);
  ASSERT_FALSE(failed.ok()) << "DNR: at once";
  EXPECT_EQ(plan->times, 0);
  EXPECT_EQ(failed.error().code, Code::kIo);
  EXPECT_EQ(failed.error().nvme_status & 0x7FF, 0x281);
  EXPECT_THAT(failed.error().message, HasSubstr("Unrecovered Read Error"));
  plan->errno_value = ENOSPC;
  plan->times = 1;
  const auto full = write_all(*device, 0, memory);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, Code::kNoSpace);
  plan->times = 0;
  EXPECT_TRUE(read_all(*device, 0, memory).ok());
}

TEST(NvmeTcpDevice, AHandleThatLayIdleIsUsedAsIfNothingHadHappened) {
  ServedDevice served;
  served.start();
  const auto device = open(served.url(kQuick));
  ASSERT_NE(device, nullptr);
  std::vector<std::byte> memory(kBlock);
  ASSERT_TRUE(read_all(*device, 0, memory).ok());
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (served.server().statistics().controllers > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(50ms);
  EXPECT_EQ(served.server().statistics().controllers, 0u) << "the target has dropped a host that is silent";
  const auto result = read_all(*device, 0, memory);
  EXPECT_TRUE(result.ok()) << result.error().message;
}

TEST(NvmeTcpDevice, RefusalsNameWhatIsWrong) {
  ServedDevice served;
  served.options().hosts = {"nqn.allowed"};
  served.start();
  const auto refused = open_device(served.url(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("is not allowed to connect"));
  EXPECT_TRUE(open_device(served.url("&hostnqn=nqn.allowed"), {}).ok());

  std::string wrong = served.url("&hostnqn=nqn.allowed");
  wrong.replace(wrong.find("nqn.2026"), 8, "nqn.2027");
  const auto nobody = open_device(wrong, {});
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.error().code, Code::kNotFound);
  EXPECT_THAT(nobody.error().message, HasSubstr("there is no subsystem nqn.2027"));

  std::string second = served.url("&hostnqn=nqn.allowed");
  second.replace(second.find("nsid=1"), 6, "nsid=2");
  const auto missing = open_device(second, {});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("namespace 2 is not there; there are: 1"));

  const std::string url = served.url("&hostnqn=nqn.allowed&connect_timeout=1s");
  served.stop();
  const auto closed = open_device(url, {});
  ASSERT_FALSE(closed.ok());
  EXPECT_THAT(closed.error().message, HasSubstr("Connection refused"));
}

TEST(NvmeTcpDevice, AReadOnlyNamespaceTakesNoWrites) {
  ServedDevice served;
  served.options().namespaces[0].read_only = true;
  served.start();
  const auto device = open(served.url());
  ASSERT_NE(device, nullptr);
  EXPECT_TRUE(device->geometry().read_only);
  std::vector<std::byte> memory(kBlock);
  const auto result = write_all(*device, 0, memory);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kReadOnly);
}

TEST(NvmeTcpDevice, AForkedChildLeavesTheParentsConnectionsAlone) {
  ServedDevice served;
  served.start();
  auto device = open(served.url());
  ASSERT_NE(device, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    std::vector<std::byte> memory(kBlock);
    const Request read{Op::kRead, memory.data(), kBlock, 0, 1};
    const bool dead = device->submit(std::span(&read, 1)) == 0;
    device.reset();
    _exit(dead ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::vector<std::byte> zero(8u << 20);
  ASSERT_TRUE(write_all(*device, 0, zero).ok());
  Worker(*device).run(500);
}

TEST(NvmeTcpDevice, IsIdentifiedAndDiscovered) {
  ServedDevice served;
  served.start();
  auto url = parse_nvme_tcp_url(served.url()).value();
  fill_host_identity(url);
  const auto identity = identify_controller(url);
  ASSERT_TRUE(identity.ok()) << identity.error().message;
  EXPECT_EQ(identity->controller.model_number, "DLFS target");
  EXPECT_EQ(identity->controller.subnqn, served.options().nqn);
  EXPECT_EQ(identity->namespaces, std::vector<std::uint32_t>{1});
  EXPECT_EQ(identity->space->capacity_bytes(), 8u << 20);
  url.subnqn.clear();
  const auto found = discover(url);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->entries.size(), 1u);
  EXPECT_EQ(found->entries[0].subnqn, served.options().nqn);
  EXPECT_EQ(found->entries[0].address, "127.0.0.1");
  EXPECT_EQ(found->entries[0].service, std::to_string(served.options().listen[0].port));
}

}  // namespace
}  // namespace dlfs::block
