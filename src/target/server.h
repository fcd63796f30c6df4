// The NVMe/TCP target behind `dlfs serve`: block devices as namespaces of one subsystem, and a discovery subsystem.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "block/device.h"
#include "dlfs/result.h"
#include "net/network.h"
#include "nvme/log_page.h"

namespace dlfs::target {

struct NamespaceOptions {
  std::string url = {};  // of a block device; namespaces are numbered 1, 2, ... in the order given
  bool read_only = false;
};

struct ServerOptions {
  std::vector<net::Endpoint> listen{{"127.0.0.1", 4420}};  // port 0: a free one
  std::string nqn{};                 // of the subsystem; empty: one made from the namespaces' URLs
  std::vector<std::string> hosts{};  // NQNs that may connect; empty: any
  std::vector<NamespaceOptions> namespaces{};
  std::uint32_t pollers = 1;
  std::uint32_t max_connections = 1024;         // more are refused
  std::uint64_t max_memory_bytes = 256u << 20;  // of buffers for I/O; requests wait for them, and are never refused
  std::uint32_t max_queues = 64;                // I/O queues a controller
  std::uint32_t max_queue_entries = 256;        // 32 (hosts open admin queues of so many) to 1024
  std::uint32_t device_depth = 256;             // requests in flight, a namespace and a poller
  bool allow_header_digest = true, allow_data_digest = true;
  std::chrono::milliseconds drain{5'000};  // stop(): for requests in flight and answers to leave
  nvme::AnaState ana = nvme::AnaState::kOptimized;
  // How namespaces are opened; empty: block::open_device.
  std::function<Result<std::unique_ptr<block::BlockDevice>>(const std::string&, const block::OpenOptions&)>
      open_device = {};
  // A line for people, about hosts that come and go and what was refused. **Thread**: any, one call at a time.
  std::function<void(const std::string&)> log = {};
};

struct ServerStatistics {
  std::uint64_t connections = 0, refused = 0, controllers = 0;  // refused: since start; the others now
  std::uint64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0, errors = 0;
};

// **Thread**: start() and stop() from one; the others from any.
class Server {
 public:
  // Opens all namespaces and listens. Nothing is served before run() or start(). **Errors**: of devices and
  // addresses, kInvalidArgument.
  static Result<std::unique_ptr<Server>> create(ServerOptions options, net::Network& network = net::system_network());
  virtual ~Server() = default;  // as stop()

  virtual const std::string& nqn() const noexcept = 0;
  virtual std::vector<net::Address> addresses() const = 0;  // with the ports taken
  virtual std::vector<std::string> urls() const = 0;        // nvme-tcp:// URLs, one a namespace (the first address)

  virtual Result<void> start() = 0;  // the pollers' threads
  // No new connections and commands; waits for what is in flight (at most `drain`), tells hosts, closes. Idempotent.
  virtual void stop() = 0;
  // Without threads, in place of start(), for a simulation: does what is to be done now on poller `poller` and returns
  // whether anything was. next_step_ns(): when time alone gives more to do.
  virtual bool step(std::uint32_t poller) = 0;
  virtual std::uint64_t next_step_ns(std::uint32_t poller) const noexcept = 0;

  virtual ServerStatistics statistics() const noexcept = 0;
  // A namespace went away, came back or changed its size: hosts are told (asynchronous event). For administration and
  // tests.
  virtual void announce_change(std::uint32_t nsid) = 0;
  // Of all namespaces, as hosts see them through this server: for several servers that are paths to the same bytes.
  virtual void set_ana_state(nvme::AnaState state) = 0;
};

}  // namespace dlfs::target
