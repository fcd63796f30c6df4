// What a host does on the Admin Queue of a controller, as a state machine without I/O: brings the controller up, reads
// what it is, and keeps track of what changes. On top of HostSession, whose bytes the owner moves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dlfs/result.h"
#include "nvme/host_session.h"
#include "nvme/identify.h"
#include "nvme/log_page.h"
#include "nvme/property.h"

namespace dlfs::nvme {

struct AdminOptions {
  HostOptions session{};        // qid 0; keep_alive_ms is lowered or dropped when the controller has none
  bool discovery = false;       // a discovery controller: no queues and namespaces, the discovery log instead
  std::uint32_t nsid = 0;       // the namespace of interest; 0: none (identify only the controller, list namespaces)
  std::uint32_t io_queues = 0;  // I/O queues wanted; 0: none
  std::uint64_t command_timeout_ns = 10'000'000'000;  // of each admin command
};

struct NamespaceInfo {
  std::uint32_t nsid = 0;
  NamespaceIdentity identity{};
  NamespaceIds ids{};
  AnaState ana = AnaState::kOptimized;  // kOptimized where the controller does not report ANA
  std::uint64_t capacity_bytes() const noexcept { return identity.blocks << identity.block_bytes_log2; }
};

// Owner: start() once the connection stands; then move session()'s bytes, and after each received(), sent() or tick()
// of it call advance(). Everything a controller reports is checked for sense before it is stored (block size, MDTS,
// queue counts of zero, MQES below 2, version below 1.2).
class AdminDriver {
 public:
  enum class State : std::uint8_t { kIdle, kBringingUp, kReady, kFailed };

  explicit AdminDriver(AdminOptions options);
  AdminDriver(const AdminDriver&) = delete;
  AdminDriver& operator=(const AdminDriver&) = delete;

  HostSession& session() noexcept;
  void start(std::uint64_t now_ns);
  void advance(std::uint64_t now_ns);
  std::uint64_t next_advance_ns() const noexcept;  // polling CSTS.RDY, deadlines; ~0: none. session() has its own
  State state() const noexcept;
  // Of kFailed: says which step failed and why; nvme_status when a command did. `do_not_retry()`: another attempt would
  // end the same (DNR, no such subsystem or namespace, this host is not allowed, unsupported controller).
  const Error& error() const noexcept;
  bool do_not_retry() const noexcept;

  // ---- from kReady on ----
  std::uint16_t cntlid() const noexcept;
  const Capabilities& capabilities() const noexcept;
  std::uint32_t version() const noexcept;  // VS
  const ControllerIdentity& controller() const noexcept;
  std::uint32_t io_queues() const noexcept;                    // granted, at most wanted
  std::uint32_t queue_entries_limit() const noexcept;          // MQES + 1
  std::uint32_t max_transfer_bytes() const noexcept;           // of MDTS and MPSMIN; 0xFFFFFFFF: no limit
  std::uint32_t in_capsule_bytes() const noexcept;             // of I/O queues: IOCCSZ less the command
  std::uint32_t keep_alive_ms() const noexcept;                // in force; 0: none
  std::span<const std::uint32_t> namespaces() const noexcept;  // active, ascending (with Options::nsid == 0 too)
  const std::optional<NamespaceInfo>& namespace_info() const noexcept;  // of Options::nsid
  const std::vector<DiscoveryEntry>& discovery() const noexcept;        // of a discovery controller

  // Asynchronous events are asked for and answered by themselves: on a namespace or ANA change the driver reads the
  // logs (and clears the event) and the namespace again. What changed since the last call:
  struct Changes {
    bool namespace_changed = false;  // namespace_info() was read again, or is empty: the namespace is gone
    bool ana_changed = false;        // namespace_info()->ana
    bool discovery_changed = false;
    bool any() const noexcept { return namespace_changed || ana_changed || discovery_changed; }
  };
  Changes take_changes() noexcept;
  // Reads namespace and ANA state again, as after an event: for a status that says that they changed (Namespace Not
  // Ready, Invalid Namespace, ANA states).
  void refresh(std::uint64_t now_ns);

  // One command of the owner's own at a time (a log page, a feature): false while another is under way.
  bool submit(const Sqe& sqe, Bytes read_into, std::uint64_t now_ns);
  std::optional<Completion> take_answer() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl, void (*)(Impl*)> impl_;
};

}  // namespace dlfs::nvme
