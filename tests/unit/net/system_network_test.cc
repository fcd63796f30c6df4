// The system's network on loopback: what net/network.h says of streams, listeners and pollers.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "net/network.h"

namespace dlfs::net {
namespace {

using namespace std::chrono_literals;
using State = Moved::State;

std::span<const std::byte> bytes_of(const char* text) { return std::as_bytes(std::span(text, std::strlen(text))); }

class SystemNetwork : public ::testing::Test {
 protected:
  Network& network_ = system_network();
  std::unique_ptr<Listener> listener_ = network_.listen(*Address::from_number("127.0.0.1", 0)).value();
  std::unique_ptr<Poller> poller_ = network_.make_poller().value();
  std::unique_ptr<Stream> client_, server_;

  // Waits until `tag` is ready; fails after 20 seconds.
  Poller::Ready await(std::uint64_t tag) {
    for (int i = 0; i < 200; ++i) {
      Poller::Ready ready[8];
      const std::size_t count = poller_->wait(ready, 100ms);
      for (std::size_t k = 0; k < count; ++k) {
        if (ready[k].tag == tag) return ready[k];
      }
    }
    ADD_FAILURE() << "never ready";
    return {};
  }

  void connect() {
    client_ = network_.connect(listener_->local()).value();
    ASSERT_TRUE(poller_->watch(*listener_, 1).ok());
    await(1);
    server_ = listener_->accept().value();
    ASSERT_NE(server_, nullptr);
    ASSERT_TRUE(poller_->watch(*client_, 2, {.readable = false, .writable = true}).ok());
    EXPECT_TRUE(await(2).writable);
    ASSERT_EQ(client_->finish_connect().state, State::kSome);
  }
};

TEST_F(SystemNetwork, CarriesBytesBothWays) {
  connect();
  EXPECT_EQ(client_->peer(), listener_->local());
  EXPECT_EQ(server_->peer(), client_->local());
  EXPECT_EQ(listener_->accept().value(), nullptr) << "nobody else waits";

  std::byte first[3], second[64];
  EXPECT_EQ(server_->receive(first, second).state, State::kWouldBlock);
  const std::span<const std::byte> pieces[] = {bytes_of("hel"), bytes_of("lo"), bytes_of(" world")};
  const Moved sent = client_->send(pieces);
  EXPECT_EQ(sent.state, State::kSome);
  EXPECT_EQ(sent.bytes, 11u);
  ASSERT_TRUE(poller_->watch(*server_, 3, {}).ok());
  EXPECT_TRUE(await(3).readable);
  const Moved got = server_->receive(first, second);
  EXPECT_EQ(got.bytes, 11u);
  EXPECT_EQ(std::memcmp(first, "hel", 3), 0);
  EXPECT_EQ(std::memcmp(second, "lo world", 8), 0);

  client_.reset();
  EXPECT_TRUE(await(3).readable);
  EXPECT_EQ(server_->receive({}, second).state, State::kClosed);
}

TEST_F(SystemNetwork, SendStopsWhenNobodyReads) {
  connect();
  const std::vector<std::byte> block(1u << 20);
  const std::span<const std::byte> piece(block);
  std::size_t sent = 0;
  Moved moved;
  while ((moved = client_->send(std::span(&piece, 1))).state == State::kSome) sent += moved.bytes;
  EXPECT_EQ(moved.state, State::kWouldBlock);
  std::vector<std::byte> into(1u << 20);
  std::size_t received = 0;
  ASSERT_TRUE(poller_->watch(*server_, 3, {}).ok());
  while (received < sent) {
    await(3);
    const Moved got = server_->receive(into, {});
    ASSERT_EQ(got.state, State::kSome);
    received += got.bytes;
  }
  EXPECT_EQ(received, sent);
}

TEST_F(SystemNetwork, ABrokenStreamSaysSo) {
  connect();
  const std::span<const std::byte> piece = bytes_of("x");
  ASSERT_EQ(client_->send(std::span(&piece, 1)).bytes, 1u);
  server_.reset();  // with an unread byte: the peer gets a reset
  ASSERT_TRUE(poller_->watch(*client_, 2, {}).ok());
  await(2);
  std::byte into[8];
  const Moved got = client_->receive(into, {});
  EXPECT_EQ(got.state, State::kFailed);
  EXPECT_EQ(got.errno_value, ECONNRESET);
  EXPECT_EQ(client_->send(std::span(&piece, 1)).state, State::kFailed) << "no SIGPIPE either";
}

TEST_F(SystemNetwork, RefusedConnectionsAreFailures) {
  const Address nobody = listener_->local();
  listener_.reset();
  auto stream = network_.connect(nobody);
  if (!stream.ok()) return;  // the kernel may say it at once
  ASSERT_TRUE(poller_->watch(**stream, 4, {.readable = false, .writable = true}).ok());
  await(4);
  const Moved moved = (*stream)->finish_connect();
  EXPECT_EQ(moved.state, State::kFailed);
  EXPECT_EQ(moved.errno_value, ECONNREFUSED);
}

TEST_F(SystemNetwork, TwoCannotListenOnOnePort) {
  const auto second = network_.listen(listener_->local());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kBusy);
  const auto elsewhere = network_.listen(*Address::from_number("192.0.2.1", 0));
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_EQ(elsewhere.error().code, Code::kInvalidArgument);
}

TEST_F(SystemNetwork, ResolvesNumbersAndNames) {
  EXPECT_EQ(network_.resolve({"127.0.0.1", 7}).value(), std::vector{*Address::from_number("127.0.0.1", 7)});
  const auto local = network_.resolve({"localhost", 7});
  ASSERT_TRUE(local.ok()) << local.error().message;
  EXPECT_TRUE(local->front().loopback());
  const auto unknown = network_.resolve({"no-such-host.invalid", 7});
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("no-such-host.invalid"), std::string::npos);
}

TEST_F(SystemNetwork, TheTimerEndsASleep) {
  poller_->set_timer(network_.now_ns() + 20'000'000);
  Poller::Ready ready[1];
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(poller_->wait(ready, 20s), 0u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
  EXPECT_EQ(poller_->wait(ready, 1ms), 0u) << "once";
  poller_->set_timer(1);  // long past: at once
  EXPECT_EQ(poller_->wait(ready, 20s), 0u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

std::atomic<Poller*> woken_by_signal{nullptr};

TEST_F(SystemNetwork, WakesFromThreadsAndSignals) {
  Poller::Ready ready[1];
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] { poller_->wake(); });
  EXPECT_EQ(poller_->wait(ready, 20s), 0u);
  other.join();
  woken_by_signal = poller_.get();
  struct sigaction action{};
  action.sa_handler = [](int) { woken_by_signal.load()->wake(); };
  struct sigaction before{};
  sigaction(SIGUSR2, &action, &before);
  raise(SIGUSR2);
  EXPECT_EQ(poller_->wait(ready, 20s), 0u);
  sigaction(SIGUSR2, &before, nullptr);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

TEST_F(SystemNetwork, StandsInAForeignPollSet) {
  connect();
  pollfd foreign{.fd = poller_->descriptor(), .events = POLLIN, .revents = 0};
  Poller::Ready ready[4];
  poller_->forget(*client_);
  while (poller_->wait(ready, 0ns) > 0) {
  }
  EXPECT_EQ(::poll(&foreign, 1, 0), 0);
  ASSERT_TRUE(poller_->watch(*server_, 3, {}).ok());
  const std::span<const std::byte> piece = bytes_of("x");
  client_->send(std::span(&piece, 1));
  EXPECT_EQ(::poll(&foreign, 1, 10'000), 1);
  EXPECT_EQ(::poll(&foreign, 1, 0), 1) << "level-triggered";
  EXPECT_TRUE(await(3).readable);
  poller_->forget(*server_);
  EXPECT_EQ(::poll(&foreign, 1, 0), 0);
}

TEST_F(SystemNetwork, WatchesForeignDescriptors) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_TRUE(poller_->watch(ends[0], 9).ok());
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_TRUE(await(9).readable);
  poller_->forget(ends[0]);
  Poller::Ready ready[1];
  EXPECT_EQ(poller_->wait(ready, 1ms), 0u);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(SystemNetwork, SeveralThreadsUseItAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      Network& network = system_network();
      auto listener = network.listen(*Address::from_number("127.0.0.1", 0)).value();
      auto poller = network.make_poller().value();
      for (int k = 0; k < 20; ++k) {
        auto stream = network.connect(listener->local()).value();
        ASSERT_TRUE(poller->watch(*listener, 1).ok());
        Poller::Ready ready[1];
        while (poller->wait(ready, 100ms) == 0) {
        }
        ASSERT_NE(listener->accept().value(), nullptr);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace dlfs::net
