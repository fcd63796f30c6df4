// The nvme_tcp kind of device: a namespace behind any NVMe/TCP target, reached from user space.
//
// One handle is one association a path: an Admin Queue and `queues` I/O queues, all driven by submit(), poll() and the
// owner's sleeping on wait_descriptor(); there is no thread. A handle that nobody polls for longer than the keep-alive
// time loses its connections and makes them again at the next request. See docs/disaggregate.md for what each error
// means.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "block/device.h"
#include "net/network.h"
#include "nvme/admin_driver.h"

namespace dlfs::block {

inline constexpr std::uint16_t kNvmeTcpPort = 4420, kDiscoveryPort = 8009;

// nvme-tcp://HOST[:PORT][,HOST[:PORT]...]/NQN[?nsid=1&option=value...]   (several hosts: paths to one subsystem. A
// comma before the '/' belongs to the URL, so that lists of device URLs can still be split at the others)
struct NvmeTcpUrl {
  std::vector<net::Endpoint> paths;  // 1 to 16
  std::string subnqn;
  std::uint32_t nsid = 1;
  std::string hostnqn;  // default: /etc/nvme/hostnqn, else one made from the machine's id
  std::array<std::byte, 16>
      hostid{};  // default: /etc/nvme/hostid, else from hostnqn's uuid, else from the machine's id
  bool header_digest = false, data_digest = false;
  std::uint32_t queues = 1;       // I/O queues a path, 1 to 64
  std::uint32_t queue_depth = 0;  // commands in flight a queue, 1 to 4095; 0: OpenOptions::queue_depth over all queues
  std::chrono::milliseconds connect_timeout{5'000};  // of one attempt on one path, until it can do I/O
  std::chrono::milliseconds keep_alive{10'000};      // KATO; 0: none (then a frozen peer is found by io_timeout only)
  std::chrono::milliseconds io_timeout{30'000};      // of one command on one path; then the path counts as lost
  std::chrono::milliseconds ctrl_loss_timeout{60'000};  // without any usable path; then requests fail
  std::chrono::milliseconds reconnect_delay{100};       // after the first failure; doubles up to 5 s, with jitter
  std::string canonical() const;                        // parse of it gives the same; defaults are left out
  bool operator==(const NvmeTcpUrl&) const = default;
};
// `text` with its scheme. Unknown options, options given twice and values out of range are errors that name what would
// do. NQN and values may hold %XX. **Errors**: kInvalidArgument.
Result<NvmeTcpUrl> parse_nvme_tcp_url(std::string_view text);
// Fills in hostnqn and hostid where the URL gave none. Reads files below `etc` ("/etc").
void fill_host_identity(NvmeTcpUrl& url, std::string_view etc = "/etc");

// **Blocks** until one path can do I/O, at most connect_timeout (all paths are tried at the same time). **Errors**:
// kTimedOut, kIo, kNotFound (host, subsystem or namespace: says which, and what there is), kUnsupported; each names URL
// and path.
//
// Failed requests complete with nvme_status and an errno: EIO (media, DNR), EROFS (write protected), ENODEV (no path
// for ctrl_loss_timeout: Code::kDeviceLost), ETIMEDOUT (not answered three times, or tried for ctrl_loss_timeout and
// io_timeout together while paths broke under it), ESTALE (the namespace is gone, has another capacity, block size or
// identity than when it was opened: Code::kDeviceLost, and so for every later request), ENOSPC. completion_error() has
// the sentence for each.
Result<std::unique_ptr<BlockDevice>> open_nvme_tcp_device(const NvmeTcpUrl& url, const OpenOptions& options,
                                                          net::Network& network = net::system_network());

// What `dlfs identify` and `dlfs discover` print. **Block** at most url.connect_timeout.
struct ControllerReport {
  std::string address;
  nvme::Capabilities capabilities{};
  std::uint32_t version = 0;
  nvme::ControllerIdentity controller{};
  std::uint32_t io_queues = 0;  // that it would grant of 64
  std::vector<std::uint32_t> namespaces;
  std::optional<nvme::NamespaceInfo> space;  // of url.nsid
};
Result<ControllerReport> identify_controller(const NvmeTcpUrl& url, net::Network& network = net::system_network());
struct DiscoveryReport {
  std::string address;
  std::vector<nvme::DiscoveryEntry> entries;
};
// `url.subnqn` empty: the well-known discovery subsystem.
Result<DiscoveryReport> discover(const NvmeTcpUrl& url, net::Network& network = net::system_network());

}  // namespace dlfs::block
