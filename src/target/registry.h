// What all connections of a server share: its namespaces, and the controllers that hosts have made.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "nvme/subsystem.h"
#include "target/server.h"

namespace dlfs::target {

// A namespace as hosts see it; its bytes are behind each poller's own handle. Fixed once the server stands.
struct Space {
  std::string url;
  std::uint32_t block_bytes = 512;
  std::uint8_t block_bytes_log2 = 9;
  std::uint64_t blocks = 0;
  bool read_only = false;
  std::array<std::byte, 16> nguid{}, uuid{};
};

// One association of a host: made by an Admin Queue's Connect, ended with that connection.
struct Controller {
  std::uint16_t cntlid = 0;
  bool discovery = false;
  std::string hostnqn;
  std::array<std::byte, 16> hostid{};
  std::atomic<bool> enabled{false};          // CC.EN, by the admin connection
  std::atomic<std::uint32_t> generation{0};  // grows when the I/O queues of before must end: reset, shutdown, gone
  std::atomic<bool> gone{false};
  std::atomic<std::uint64_t> expires_ns{~std::uint64_t{0}};  // its host has gone if it stays silent until then
  std::atomic<std::uint32_t> events{0};                      // kEvent* for the admin connection to tell its host
  static constexpr std::uint32_t kEventNamespace = 1, kEventAna = 2;
  // Under Registry's mutex:
  std::set<std::uint16_t> queues;          // I/O queues that are connected
  std::set<std::uint32_t> changed_spaces;  // not yet read by the host
};

struct Counters {
  std::atomic<std::uint64_t> connections{0}, refused{0}, reads{0}, writes{0}, read_bytes{0}, written_bytes{0},
      errors{0};
};

// **Thread**: any. The mutex is taken for Connect, log pages and the end of queues, never for I/O.
class Registry {
 public:
  Registry(const ServerOptions& options, std::vector<Space> spaces, std::uint16_t first_cntlid);

  const ServerOptions& options() const noexcept { return options_; }
  const std::vector<Space>& spaces() const noexcept { return spaces_; }
  const Space* space(std::uint32_t nsid) const noexcept {
    return nsid >= 1 && nsid <= spaces_.size() ? &spaces_[nsid - 1] : nullptr;
  }
  Counters& counters() noexcept { return counters_; }
  nvme::AnaState ana() const noexcept { return ana_.load(std::memory_order_relaxed); }
  std::uint64_t ana_changes() const noexcept { return ana_changes_.load(std::memory_order_relaxed); }

  // Connect of an Admin Queue. Null with `why` set when it is refused.
  std::shared_ptr<Controller> make(const nvme::ConnectData& data, bool discovery, nvme::ConnectAnswer& why);
  // Connect of an I/O queue of a controller that exists, is enabled and belongs to the same host.
  std::shared_ptr<Controller> join(const nvme::Connect& command, const nvme::ConnectData& data,
                                   nvme::ConnectAnswer& why);
  void leave(Controller& controller, std::uint16_t qid);  // that queue's connection ended; qid 0: all of it

  void namespace_changed(std::uint32_t nsid);
  std::vector<std::uint32_t> take_changed(Controller& controller);
  void set_ana(nvme::AnaState state);
  std::size_t controllers() const;
  void log(const std::string& line) const;

 private:
  ServerOptions options_;
  std::vector<Space> spaces_;
  Counters counters_;
  std::atomic<nvme::AnaState> ana_;
  std::atomic<std::uint64_t> ana_changes_{1};
  mutable std::mutex mutex_, log_mutex_;
  std::map<std::uint16_t, std::shared_ptr<Controller>> controllers_;
  std::uint16_t next_cntlid_;
};

}  // namespace dlfs::target
