// One controller looked at and left: for `dlfs identify` and `dlfs discover`.
#include <array>

#include "base/error.h"
#include "base/try.h"
#include "block/nvme_connection.h"
#include "block/nvme_tcp.h"

namespace dlfs::block {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(50);
constexpr std::uint32_t kQueuesAsked = 64;

std::uint64_t ns(std::chrono::milliseconds time) { return static_cast<std::uint64_t>(time.count()) * 1'000'000; }

nvme::AdminOptions admin_options(const NvmeTcpUrl& url, bool discovery) {
  return {.session = {.subnqn = url.subnqn,
                      .hostnqn = url.hostnqn,
                      .hostid = url.hostid,
                      .header_digest = url.header_digest,
                      .data_digest = url.data_digest,
                      .connect_timeout_ns = ns(url.connect_timeout)},
          .discovery = discovery,
          .nsid = discovery ? 0 : url.nsid,
          .io_queues = discovery ? 0 : kQueuesAsked,
          .command_timeout_ns = ns(url.connect_timeout)};
}

// Brings the controller at `address` up, as far as `driver` goes. **Blocks** until `until_ns`.
Result<void> bring_up(nvme::AdminDriver& driver, const net::Address& address, net::Network& network,
                      std::uint64_t until_ns) {
  DLFS_TRY_ASSIGN(const auto poller, network.make_poller());
  NvmeConnection connection(network, *poller, driver.session());
  DLFS_TRY(connection.open(address));
  bool standing = false;
  while (true) {
    const std::uint64_t now_ns = network.now_ns();
    if (!standing) {
      DLFS_TRY_ASSIGN(standing, connection.connected());
      if (standing) driver.start(now_ns);
    }
    if (standing) {
      connection.receive(now_ns);
      driver.session().tick(now_ns);
      driver.advance(now_ns);
      connection.send();
      driver.advance(now_ns);
    }
    if (driver.state() == nvme::AdminDriver::State::kReady) return {};
    if (driver.state() == nvme::AdminDriver::State::kFailed) return driver.error();
    if (now_ns >= until_ns) return Error{Code::kTimedOut, "no answer in time"};
    poller->set_timer(std::min({until_ns, driver.next_advance_ns(), driver.session().next_tick_ns()}));
    std::array<net::Poller::Ready, 4> ready;
    poller->wait(ready, std::min<std::chrono::nanoseconds>(kSlice, std::chrono::nanoseconds(until_ns - now_ns)));
  }
}

// The first address of any path where a controller can be brought up.
Result<std::string> first_that_answers(const NvmeTcpUrl& url, bool discovery, net::Network& network,
                                       std::unique_ptr<nvme::AdminDriver>& driver) {
  const std::uint64_t until_ns = network.now_ns() + ns(url.connect_timeout);
  Error last{Code::kInvalidArgument, "no address to try"};
  std::string reasons;
  for (const net::Endpoint& path : url.paths) {
    auto addresses = network.resolve(path);
    if (!addresses.ok()) {
      last = std::move(addresses).error();
      reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", last.message);
      continue;
    }
    for (const net::Address& address : *addresses) {
      driver = std::make_unique<nvme::AdminDriver>(admin_options(url, discovery));
      auto up = bring_up(*driver, address, network, until_ns);
      if (up.ok()) return address.text();
      last = std::move(up).error();
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", address.text(), last.message);
    }
  }
  last.message = reasons.empty() ? last.message : reasons;
  return last;
}

}  // namespace

Result<ControllerReport> identify_controller(const NvmeTcpUrl& url, net::Network& network) {
  std::unique_ptr<nvme::AdminDriver> driver;
  DLFS_TRY_ASSIGN(const std::string address, first_that_answers(url, false, network, driver));
  return ControllerReport{.address = address,
                          .capabilities = driver->capabilities(),
                          .version = driver->version(),
                          .controller = driver->controller(),
                          .io_queues = driver->io_queues(),
                          .namespaces = {driver->namespaces().begin(), driver->namespaces().end()},
                          .space = driver->namespace_info()};
}

Result<DiscoveryReport> discover(const NvmeTcpUrl& url, net::Network& network) {
  NvmeTcpUrl asked = url;
  if (asked.subnqn.empty()) asked.subnqn = nvme::kDiscoveryNqn;
  std::unique_ptr<nvme::AdminDriver> driver;
  DLFS_TRY_ASSIGN(const std::string address, first_that_answers(asked, true, network, driver));
  return DiscoveryReport{.address = address, .entries = driver->discovery()};
}

}  // namespace dlfs::block
