// A network without a wire: streams that are cut anywhere, delayed, stalled, reset or silent, and whose bits flip where
// digests would notice.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "net/network.h"
#include "sim/world.h"

namespace dlfs::sim {

struct NetworkFaults {
  double reset = 0;   // of a receive: the connection breaks
  double flip = 0;    // of a receive: one bit is wrong (only where both digests are on)
  double stall = 0;   // of a send: the bytes come up to stall_ns later
  double refuse = 0;  // of a connect
  std::uint64_t stall_ns = kSecond * 3 / 10;
};

// Of a port: what is sent there or comes from there goes nowhere. Connections that lost bytes so never carry any again,
// unless the bytes are sent again once it is over, as TCP does for a while.
struct Silence {
  bool to_server = true, to_client = true, sent_again = false;
};

struct Pipe {  // one direction
  struct Chunk {
    std::uint64_t at_ns = 0;
    std::vector<std::byte> bytes;
    std::size_t begin = 0;
  };
  std::deque<Chunk> chunks;
  std::size_t queued_bytes = 0;
  std::uint64_t passed_bytes = 0, last_at_ns = 0;
  std::uint64_t closed_at_ns = ~std::uint64_t{0};  // then the receiver hears of the end, behind all bytes
  bool lost = false;                               // nothing gets through any more
};

struct Wire {  // a connection
  Pipe to_server, to_client;
  bool reset = false;
  std::uint64_t connected_at_ns = ~std::uint64_t{0};  // ~0: never
  bool refused = false;
  net::Address client, server;
};

class SimNetwork;

class SimStream final : public net::Stream {
 public:
  SimStream(SimNetwork& network, std::shared_ptr<Wire> wire, bool client)
      : network_(network), wire_(std::move(wire)), client_(client) {}
  ~SimStream() override;
  net::Moved receive(std::span<std::byte> first, std::span<std::byte> second) noexcept override;
  net::Moved send(std::span<const std::span<const std::byte>> pieces) noexcept override;
  net::Moved finish_connect() noexcept override;
  net::Address local() const override { return client_ ? wire_->client : wire_->server; }
  net::Address peer() const override { return client_ ? wire_->server : wire_->client; }
  bool readable() const noexcept;
  bool writable() const noexcept;

 private:
  Pipe& in() const noexcept { return client_ ? wire_->to_client : wire_->to_server; }
  Pipe& out() const noexcept { return client_ ? wire_->to_server : wire_->to_client; }
  bool connected() const noexcept;
  bool ended(const Pipe& pipe) const noexcept;
  std::size_t take(std::span<std::byte> first, std::span<std::byte> second, std::size_t room) noexcept;
  void flip_a_bit(std::span<std::byte> bytes) noexcept;

  SimNetwork& network_;
  std::shared_ptr<Wire> wire_;
  bool client_;
};

class SimListener final : public net::Listener {
 public:
  SimListener(SimNetwork& network, const net::Address& at) : network_(network), at_(at) {}
  ~SimListener() override;
  Result<std::unique_ptr<net::Stream>> accept() override;
  net::Address local() const override { return at_; }
  bool readable() const noexcept;
  std::deque<std::shared_ptr<Wire>> waiting;

 private:
  SimNetwork& network_;
  net::Address at_;
};

// Who only ever waits for no time at all is a server; who sleeps in it makes the world go on.
class SimPoller final : public net::Poller {
 public:
  explicit SimPoller(SimNetwork& network) : network_(network) {}
  Result<void> watch(net::Stream& stream, std::uint64_t tag, Interest interest) override;
  Result<void> watch(net::Listener& listener, std::uint64_t tag) override;
  Result<void> watch(int, std::uint64_t) override { return {}; }
  void forget(net::Stream& stream) noexcept override { streams_.erase(&stream); }
  void forget(net::Listener& listener) noexcept override { listeners_.erase(&listener); }
  void forget(int) noexcept override {}
  void set_timer(std::uint64_t at_ns) noexcept override { timer_ns_ = at_ns; }
  std::size_t wait(std::span<Ready> into, std::chrono::nanoseconds longest) noexcept override;
  int descriptor() const noexcept override { return -1; }
  void wake() noexcept override { woken_ = true; }

 private:
  std::size_t collect(std::span<Ready> into) noexcept;
  struct Watched {
    SimStream* stream = nullptr;
    std::uint64_t tag = 0, number = 0;
    Interest interest;
  };
  SimNetwork& network_;
  std::map<net::Stream*, Watched> streams_;
  std::map<net::Listener*, std::pair<SimListener*, std::uint64_t>> listeners_;
  std::uint64_t timer_ns_ = ~std::uint64_t{0}, next_number_ = 0;
  bool woken_ = false;
};

class SimNetwork final : public net::Network {
 public:
  explicit SimNetwork(World& w) : world(w) {}
  std::uint64_t now_ns() const noexcept override { return world.now_ns(); }
  Result<std::vector<net::Address>> resolve(const net::Endpoint& endpoint) override;
  Result<std::unique_ptr<net::Stream>> connect(const net::Address& to) override;
  Result<std::unique_ptr<net::Listener>> listen(const net::Address& at) override;
  Result<std::unique_ptr<net::Poller>> make_poller() override {
    return std::unique_ptr<net::Poller>(std::make_unique<SimPoller>(*this));
  }

  void reset_all();  // every connection breaks
  void silence(std::uint16_t port, const Silence& how) { silent_[port] = how; }
  void lift_silence(std::uint16_t port);
  void lift_silences();
  // What becomes of bytes sent now in this direction: null, they arrive.
  const Silence* silence_on(const Wire& wire, bool to_server) const noexcept;

  World& world;
  NetworkFaults faults;
  bool flips = false;  // both digests are on: flips are noticed
  bool cut = false;    // no connection can be made
  std::map<std::string, SimListener*> listeners;

 private:
  std::map<std::uint16_t, Silence> silent_;
  std::vector<std::weak_ptr<Wire>> wires_;
  std::uint16_t next_port_ = 40'000;
};

}  // namespace dlfs::sim
