// One poller of the server: its connections and its backend, turned by a thread of its own or by a simulation.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "target/backend.h"

namespace dlfs::target {

class ServerPoller {
 public:
  static Result<std::unique_ptr<ServerPoller>> create(Registry& registry, net::Network& network,
                                                      std::size_t memory_bytes, std::function<void()> poke_all);
  ~ServerPoller();
  ServerPoller(const ServerPoller&) = delete;
  ServerPoller& operator=(const ServerPoller&) = delete;

  // Accepts connections and gives each to `place`. **Lifetime**: the listeners outlive the poller's work.
  Result<void> listen(std::vector<std::unique_ptr<net::Listener>>& listeners,
                      std::function<void(std::unique_ptr<net::Stream>)> place);
  void adopt(std::unique_ptr<net::Stream> stream);  // **Thread**: any
  void poke() noexcept;                             // **Thread**: any: attend to all connections soon
  void drain() noexcept;                            // **Thread**: any: no new connections and commands

  Result<void> start();     // a thread that turns until it is drained and empty, or abandon() is called
  void abandon() noexcept;  // **Thread**: any: close everything now
  void join();
  bool idle() const noexcept { return connection_count_.load() == 0; }

  // What is to be done now; true when anything was.
  bool turn();
  std::uint64_t next_turn_ns() const noexcept;

 private:
  ServerPoller(Registry& registry, net::Network& network, std::function<void()> poke_all)
      : registry_(registry), network_(network), poke_all_(std::move(poke_all)) {}
  void run();
  void accept_all();
  void take_mail();
  bool ready_ones(std::uint64_t now_ns);
  void attend_all(std::uint64_t now_ns);
  bool flush_answered();
  void settle(Connection& connection);
  void reap();

  Registry& registry_;
  net::Network& network_;
  std::function<void()> poke_all_;
  std::unique_ptr<net::Poller> poller_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<net::Listener>>* listeners_ = nullptr;
  std::function<void(std::unique_ptr<net::Stream>)> place_;
  std::uint64_t next_tag_ = kFirstTag, next_tick_ns_ = ~std::uint64_t{0};
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;  // by tag
  std::vector<std::pair<std::uint64_t, Connection*>> hot_;                      // bytes came from them in the last turn
  unsigned turns_since_wait_ = 0;
  bool may_reap_ = false;

  static constexpr std::uint64_t kDeviceTag = 0, kFirstTag = 1024;  // 1 to 1023: listeners
  std::mutex mail_mutex_;
  std::vector<std::unique_ptr<net::Stream>> mail_;
  std::atomic<bool> has_mail_{false}, poked_{false}, draining_{false}, abandoned_{false};
  std::atomic<std::size_t> connection_count_{0};
  std::thread thread_;
};

}  // namespace dlfs::target
