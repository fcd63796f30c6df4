// What a controller session asks of the subsystem behind it: who may connect, and what there is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nvme/command.h"
#include "nvme/identify.h"
#include "nvme/log_page.h"

namespace dlfs::nvme {

struct ConnectAnswer {
  Status status{};
  std::uint16_t cntlid = 0;    // when status is ok
  InvalidParameter invalid{};  // when status is Connect Invalid Parameters
};

// What I/O commands are checked against before they are handed out.
struct NamespaceShape {
  std::uint32_t block_bytes = 512;
  std::uint64_t blocks = 0;
  bool read_only = false;
};

// **Thread**: called from within the session's calls, on their thread; sessions on several threads share one subsystem
// only when it says that it may be shared. **Lifetime**: outlives its sessions.
class Subsystem {
 public:
  virtual ~Subsystem() = default;

  // A host wants a queue. Of an I/O queue, data.cntlid names the controller that the Admin Queue was given; the
  // controller must be enabled (CC.EN) and the queue's number free.
  virtual ConnectAnswer connect(const Connect& command, const ConnectData& data) = 0;

  // The identity of this controller; the session fills in what it decides itself (cntlid, capsule sizes, transfer
  // limit, keep-alive granularity).
  virtual ControllerIdentity controller_identity() = 0;
  virtual std::optional<NamespaceShape> namespace_shape(std::uint32_t nsid) = 0;  // nullopt: not active
  virtual NamespaceIdentity namespace_identity(std::uint32_t nsid) = 0;           // of an active namespace
  virtual NamespaceIds namespace_ids(std::uint32_t nsid) = 0;                     // of an active namespace
  virtual std::vector<std::uint32_t> active_namespaces() = 0;                     // ascending

  // The whole page as it is now (what lies behind its end reads as zero); nullopt: no such page here.
  virtual std::optional<std::vector<std::byte>> log_page(const GetLogPage& command) = 0;

  // Set Features, Number of Queues: how many are granted.
  virtual QueueCounts grant_queues(const QueueCounts& wanted) = 0;
};

}  // namespace dlfs::nvme
