// The target under many hosts, hostile ones and ones that do not read.
#include "target/server.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/mix.h"
#include "block/nvme_tcp.h"
#include "support/served_device.h"

namespace dlfs::target {
namespace {

using namespace std::chrono_literals;
using block::BlockDevice;
using block::Op;
using testing_support::ServedDevice;

std::unique_ptr<BlockDevice> open(const std::string& url) {
  auto device = block::open_device(url, {.write = true, .queue_depth = 64});
  EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().message);
  return device.ok() ? std::move(device).value() : nullptr;
}

bool wait_until(const std::function<bool()>& done) {
  for (int i = 0; i < 2000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

// Sends bytes as they are; false when the other side has closed.
class RawHost {
 public:
  explicit RawHost(std::uint16_t port)
      : stream_(network_.connect(*net::Address::from_number("127.0.0.1", port)).value()) {
    (void)wait_until([&] { return stream_->finish_connect().state != net::Moved::State::kWouldBlock; });
  }
  void send(std::span<const std::byte> bytes) { (void)stream_->send(std::span(&bytes, 1)); }
  bool closed() {
    std::byte some[4096];
    const auto got = stream_->receive(some, {});
    return got.state == net::Moved::State::kClosed || got.state == net::Moved::State::kFailed;
  }

 private:
  net::Network& network_ = net::system_network();
  std::unique_ptr<net::Stream> stream_;
};

TEST(Server, ServesManyHostsOnSeveralPollers) {
  ServedDevice served(16u << 20);
  served.options().pollers = 3;
  served.start();
  std::vector<std::thread> hosts;
  for (std::uint64_t host = 0; host < 4; ++host) {
    hosts.emplace_back([&, host] {
      const auto device = open(served.url(host % 2 == 0 ? "&queues=2" : "&data_digest=on&header_digest=on"));
      ASSERT_NE(device, nullptr);
      std::vector<std::byte> mine(1u << 20), back(1u << 20);
      for (int round = 0; round < 20; ++round) {
        for (std::size_t i = 0; i < mine.size(); i += 64)
          mine[i] = static_cast<std::byte>(base::mix64(host * 1000 + static_cast<std::uint64_t>(round)) >> (i % 8));
        ASSERT_TRUE(block::write_all(*device, host << 20, mine).ok());
        ASSERT_TRUE(block::read_all(*device, host << 20, back).ok());
        ASSERT_EQ(mine, back);
      }
    });
  }
  for (auto& host : hosts) host.join();
  EXPECT_TRUE(wait_until([&] { return served.server().statistics().controllers == 0; }));
  EXPECT_EQ(served.server().statistics().errors, 0u);
}

TEST(Server, GarbageEndsAConnectionAndNothingElse) {
  ServedDevice served;
  served.start();
  const auto device = open(served.url());
  ASSERT_NE(device, nullptr);
  base::Prng prng(9);
  for (int i = 0; i < 50; ++i) {
    RawHost host(served.options().listen[0].port);
    std::vector<std::byte> garbage(1 + prng.below(3000));
    for (auto& byte : garbage) byte = static_cast<std::byte>(prng.next());
    if (i % 2 == 0 && garbage.size() >= 8) {  // a plausible beginning: an ICReq
      const std::uint8_t header[8] = {0, 0, 128, 0, 128, 0, 0, 0};
      std::memcpy(garbage.data(), header, 8);
    }
    host.send(garbage);
  }
  std::vector<std::byte> memory(4096);
  EXPECT_TRUE(block::read_all(*device, 0, memory).ok());
  EXPECT_TRUE(wait_until([&] { return served.server().statistics().connections <= 2; }))
      << "silent and broken connections go";
}

TEST(Server, TakesNoMoreConnectionsThanItsLimit) {
  ServedDevice served;
  served.options().max_connections = 6;
  served.start();
  const auto device = open(served.url());
  ASSERT_NE(device, nullptr);
  std::vector<std::unique_ptr<RawHost>> hosts;
  for (int i = 0; i < 40; ++i) hosts.push_back(std::make_unique<RawHost>(served.options().listen[0].port));
  EXPECT_TRUE(wait_until([&] { return served.server().statistics().refused >= 30; }));
  EXPECT_LE(served.server().statistics().connections, 6u);
  std::vector<std::byte> memory(4096);
  EXPECT_TRUE(block::read_all(*device, 0, memory).ok()) << "those that are there go on";
  hosts.clear();
  EXPECT_TRUE(wait_until([&] { return served.server().statistics().connections <= 2; }));
  EXPECT_NE(open(served.url()), nullptr);
}

TEST(Server, WorksWithinLittleMemory) {
  ServedDevice served(32u << 20);
  served.options().max_memory_bytes = 1;  // the least there is: a few of the largest requests
  served.options().open_device = [](const std::string& url, const block::OpenOptions& options) {
    return block::open_device(url, options);
  };
  served.start();
  const auto one = open(served.url("&queues=2")), other = open(served.url());
  ASSERT_TRUE(one != nullptr && other != nullptr);
  std::vector<std::byte> memory(16u << 20, std::byte{5}), back(16u << 20);
  std::vector<block::Request> requests;
  for (std::uint64_t i = 0; i < 16; ++i)
    requests.push_back({Op::kWrite, memory.data() + (i << 20), 1u << 20, i << 20, i});
  ASSERT_EQ(one->submit(requests), 16u);
  ASSERT_TRUE(block::write_all(*other, 16u << 20, std::span(memory).first(4u << 20)).ok())
      << "another host has its turn";
  std::size_t done = 0;
  const auto until = std::chrono::steady_clock::now() + 30s;
  while (done < 16 && std::chrono::steady_clock::now() < until) {
    block::Completion completions[16];
    const std::size_t count = one->poll(completions);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(completions[i].errno_value, 0);
    done += count;
    if (count == 0) one->wait(20ms);
  }
  EXPECT_EQ(done, 16u);
  ASSERT_TRUE(block::read_all(*one, 0, back).ok());
  EXPECT_EQ(memory, back);
}

TEST(Server, StopsWhileHostsAreAtWork) {
  ServedDevice served;
  served.options().drain = 500ms;
  served.start();
  const auto device = open(served.url("&ctrl_loss_timeout=100ms&reconnect_delay=50ms"));
  ASSERT_NE(device, nullptr);
  std::vector<std::byte> memory(64u << 12);
  std::vector<block::Request> requests;
  for (std::uint64_t i = 0; i < 64; ++i) requests.push_back({Op::kWrite, memory.data() + (i << 12), 4096, i << 12, i});
  ASSERT_EQ(device->submit(requests), 64u);
  const auto begin = std::chrono::steady_clock::now();
  served.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  std::size_t done = 0;
  while (done < 64 && std::chrono::steady_clock::now() - begin < 30s) {
    block::Completion completions[16];
    done += device->poll(completions);
    device->wait(10ms);
  }
  EXPECT_EQ(done, 64u) << "each is done or failed";
}

TEST(Server, OptionsThatMakeNoSenseAreRefused) {
  const auto refused = [](ServerOptions options) {
    const auto server = Server::create(std::move(options));
    return !server.ok() && server.error().message.size() > 20;
  };
  ServerOptions good{.listen = {{"127.0.0.1", 0}}, .namespaces = {{.url = "null:1MiB"}}};
  EXPECT_TRUE(Server::create(good).ok());
  ServerOptions bad = good;
  bad.namespaces.clear();
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.pollers = 0;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.nqn = std::string(nvme::kDiscoveryNqn);
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.namespaces[0].url = "/no/such/file";
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.listen = {{"192.0.2.1", 0}};
  EXPECT_TRUE(refused(bad));
}

}  // namespace
}  // namespace dlfs::target
