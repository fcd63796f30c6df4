// One stream and the host session on it: moves the session's bytes, in bursts.
#pragma once

#include <memory>

#include "net/network.h"
#include "nvme/host_session.h"

namespace dlfs::block {

// **Thread**: one at a time. **Lifetime**: session and poller are longer.
class NvmeConnection {
 public:
  NvmeConnection(net::Network& network, net::Poller& poller, nvme::HostSession& session) noexcept
      : network_(network), poller_(poller), session_(session) {}
  ~NvmeConnection();
  NvmeConnection(const NvmeConnection&) = delete;
  NvmeConnection& operator=(const NvmeConnection&) = delete;

  Result<void> open(const net::Address& to);  // begins
  // The handshake of TCP. True once it is done; the caller then starts the session. **Errors**: refused, unreachable.
  Result<bool> connected();
  // Receives until nothing more is there, a bounded number of times, and parses. True when anything came.
  bool receive(std::uint64_t now_ns) noexcept;
  void send() noexcept;  // all that the session has to say, in few calls
  // The peer is known to have let go of the connection, so that no command of it can still be executed: it closed it.
  bool closed_by_peer() const noexcept { return closed_by_peer_; }
  void abandon() noexcept;  // this is a forked child: the parent's poller must not notice that we go

 private:
  void lost(const net::Moved& how, const char* doing) noexcept;

  net::Network& network_;
  net::Poller& poller_;
  nvme::HostSession& session_;
  std::unique_ptr<net::Stream> stream_;
  bool blocked_ = false, closed_by_peer_ = false;
};

}  // namespace dlfs::block
