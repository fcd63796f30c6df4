// dlfs discover: what a discovery controller offers.
#include <memory>

#include "base/error.h"
#include "base/try.h"
#include "block/nvme_tcp.h"
#include "command.h"
#include "output.h"

namespace dlfs::tools {
namespace {

struct DiscoverOptions {
  std::string host, hostnqn;
  bool digests = false;
};

const char* transport_name(nvme::TransportType type) {
  switch (type) {
    case nvme::TransportType::kRdma:
      return "rdma";
    case nvme::TransportType::kFibreChannel:
      return "fc";
    case nvme::TransportType::kTcp:
      return "tcp";
  }
  return "other";
}

const char* subsystem_name(nvme::SubsystemType type) {
  switch (type) {
    case nvme::SubsystemType::kReferral:
      return "referral";
    case nvme::SubsystemType::kNvme:
      return "nvme";
    case nvme::SubsystemType::kCurrentDiscovery:
      return "discovery";
  }
  return "other";
}

// Where DLFS would reach it. A target that listens everywhere names no address: then the one that answered us.
std::string url_of(const nvme::DiscoveryEntry& entry, const std::string& answered) {
  if (entry.transport != nvme::TransportType::kTcp || entry.subsystem != nvme::SubsystemType::kNvme) return {};
  block::NvmeTcpUrl url;
  const bool anywhere = entry.address == "0.0.0.0" || entry.address == "::" || entry.address.empty();
  const auto endpoint = net::parse_endpoint(anywhere ? answered
                                            : entry.address.find(':') != std::string::npos
                                                ? fmt::format("[{}]:{}", entry.address, entry.service)
                                                : fmt::format("{}:{}", entry.address, entry.service),
                                            block::kNvmeTcpPort);
  if (!endpoint.ok()) return {};
  url.paths = {*endpoint};
  url.subnqn = entry.subnqn;
  return url.canonical();
}

Result<block::DiscoveryReport> ask(const DiscoverOptions& options) {
  block::NvmeTcpUrl url;
  url.hostnqn = options.hostnqn;
  url.header_digest = url.data_digest = options.digests;
  block::fill_host_identity(url);
  DLFS_TRY_ASSIGN(const net::Endpoint given, net::parse_endpoint(options.host, 0));
  if (given.port != 0) {
    url.paths = {given};
  } else {  // the standard port, then the one that targets commonly answer on
    url.paths = {{given.host, block::kDiscoveryPort}, {given.host, block::kNvmeTcpPort}};
  }
  auto report = block::discover(url);
  if (report.ok()) return report;
  Error error = std::move(report).error();
  error.message = fmt::format("nothing was discovered at {}: {}", base::escape(options.host), error.message);
  return error;
}

Json json_of(const block::DiscoveryReport& report) {
  Json entries = Json::array();
  for (const auto& entry : report.entries) {
    entries.push_back({{"transport", transport_name(entry.transport)},
                       {"subsystem", subsystem_name(entry.subsystem)},
                       {"address", base::escape(entry.address)},
                       {"service", base::escape(entry.service)},
                       {"nqn", base::escape(entry.subnqn)},
                       {"port_id", entry.port_id},
                       {"tls", entry.tcp_security != 0},
                       {"url", url_of(entry, report.address)}});
  }
  return {{"address", report.address}, {"entries", entries}};
}

Result<int> run(const DiscoverOptions& options, bool json) {
  DLFS_TRY_ASSIGN(const block::DiscoveryReport report, ask(options));
  if (json) {
    DLFS_TRY(print(json_of(report)));
    return kExitOk;
  }
  Output out;
  out.line(fmt::format("{} offers {} {}", report.address, report.entries.size(),
                       report.entries.size() == 1 ? "subsystem" : "subsystems"));
  for (const auto& entry : report.entries) {
    out.line(fmt::format("{:<10} {:<5} {}:{}  {}{}", subsystem_name(entry.subsystem), transport_name(entry.transport),
                         base::escape(entry.address), base::escape(entry.service), base::escape(entry.subnqn),
                         entry.tcp_security != 0 ? "  (wants TLS, which DLFS does not speak)" : ""));
    if (const std::string url = url_of(entry, report.address); !url.empty()) out.line("           " + url);
  }
  DLFS_TRY(out.finish());
  return kExitOk;
}

}  // namespace

void add_discover(CLI::App& app, Request& request) {
  auto options = std::make_shared<DiscoverOptions>();
  CLI::App* command = add_command(app, request, "discover", "List the NVMe/TCP subsystems that a host offers",
                                  "dlfs discover 10.1.0.7");
  command->add_option("HOST", options->host, "HOST[:PORT]; without a port 8009 and then 4420 are asked")
      ->required()
      ->type_name("");
  command
      ->add_option("--hostnqn", options->hostnqn,
                   "Who asks; by default /etc/nvme/hostnqn, or a name made from /etc/machine-id")
      ->type_name("NQN");
  command->add_flag("--digests", options->digests, "Ask for header and data digests");
  command->callback([options, &request] { request.run = [options, &request] { return run(*options, request.json); }; });
}

}  // namespace dlfs::tools
