// One path to a subsystem: an Admin Queue and I/O queues to one address, brought up, watched, and made again with
// back-off after a loss.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/mix.h"
#include "block/nvme_connection.h"
#include "block/nvme_tcp.h"

namespace dlfs::block {

// **Thread**: one at a time. No call blocks.
class NvmePath {
 public:
  enum class State : std::uint8_t {
    kResting,  // after a loss, until the next attempt is due
    kOpening,  // TCP of the Admin Queue
    kAdmin,    // the controller is being brought up
    kQueues,   // I/O queues connect
    kLive,     // takes commands
    kRefused,  // the last attempt ended in a way that another would as well; tried again with the longest delay
  };
  struct Queue {
    Queue(net::Network& network, net::Poller& poller, nvme::HostOptions options)
        : session(std::move(options)), connection(network, poller, session) {}
    nvme::HostSession session;
    NvmeConnection connection;
    bool started = false;  // the session's handshake
    bool touched = false;  // has something to send
  };

  NvmePath(const NvmeTcpUrl& url, std::size_t index, std::vector<net::Address> addresses, std::uint32_t depth,
           net::Network& network, net::Poller& poller);

  const std::string& name() const noexcept { return name_; }
  State state() const noexcept { return state_; }
  bool live() const noexcept { return state_ == State::kLive; }
  std::uint32_t attempts() const noexcept { return attempts_; }  // that failed, since it was last live
  const Error& error() const noexcept { return error_; }         // of the last loss or attempt
  std::size_t address_count() const noexcept { return addresses_.size(); }

  // Progress of everything but the I/O queues' traffic while live: connecting, admin, clocks.
  void turn(std::uint64_t now_ns);
  std::uint64_t next_turn_ns() const noexcept;
  void tick(std::uint64_t now_ns);  // the clocks alone
  // The path failed (its queues' sessions say why, or `why`). What was in flight is in the sessions' completions, which
  // the owner has taken before.
  void lose(Error why, std::uint64_t now_ns);
  // Until when a command of the lost association may still be executed by a target that does not know that we have
  // gone; 0: it knows.
  std::uint64_t old_commands_until_ns() const noexcept { return old_commands_until_ns_; }
  void refuse(Error why, std::uint64_t now_ns);  // not the namespace that it was
  void abandon() noexcept;

  // ---- while live ----
  std::vector<std::unique_ptr<Queue>>& queues() noexcept { return queues_; }
  nvme::AdminDriver& admin() noexcept { return *admin_; }
  const nvme::NamespaceInfo& space() const noexcept { return *admin_->namespace_info(); }
  std::uint32_t max_transfer_bytes() const noexcept { return max_transfer_bytes_; }
  std::uint32_t depth() const noexcept { return depth_in_force_; }  // of each queue
  std::size_t queue_count() const noexcept { return queues_.size(); }
  const Error* failure() const noexcept;  // of a session, when one has failed
  std::uint64_t asked_ns = 0;             // the owner's: when turn() was called last

 private:
  void begin(std::uint64_t now_ns);
  void turn_opening(std::uint64_t now_ns);
  void turn_admin(std::uint64_t now_ns);
  void turn_queues(std::uint64_t now_ns);
  void make_queues(std::uint64_t now_ns);
  void rest(Error why, bool refused, std::uint64_t now_ns);
  nvme::HostOptions session_options() const;

  const NvmeTcpUrl& url_;
  net::Network& network_;
  net::Poller& poller_;
  std::vector<net::Address> addresses_;
  std::size_t next_address_ = 0;
  std::uint32_t wanted_depth_, depth_in_force_ = 0, max_transfer_bytes_ = 0;
  std::string name_;
  State state_ = State::kResting;
  Error error_{};
  std::uint32_t attempts_ = 0;
  std::uint64_t rest_until_ns_ = 0, attempt_until_ns_ = 0, old_commands_until_ns_ = 0;
  base::Prng prng_;
  std::unique_ptr<nvme::AdminDriver> admin_;
  std::unique_ptr<NvmeConnection> admin_connection_;
  std::vector<std::unique_ptr<Queue>> queues_;
};

}  // namespace dlfs::block
