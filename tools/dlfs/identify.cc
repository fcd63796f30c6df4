// dlfs identify: an NVMe/TCP controller and one of its namespaces.
#include <memory>

#include "base/error.h"
#include "base/try.h"
#include "block/nvme_tcp.h"
#include "command.h"
#include "output.h"
#include "units.h"

namespace dlfs::tools {
namespace {

std::string bytes_text(std::span<const std::byte> bytes) {
  return hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

const char* ana_name(nvme::AnaState state) {
  switch (state) {
    case nvme::AnaState::kOptimized:
      return "optimized";
    case nvme::AnaState::kNonOptimized:
      return "non-optimized";
    case nvme::AnaState::kInaccessible:
      return "inaccessible";
    case nvme::AnaState::kPersistentLoss:
      return "persistent loss";
    case nvme::AnaState::kChange:
      return "changing";
  }
  return "unknown";
}

std::string version_text(std::uint32_t version) {
  return fmt::format("{}.{}.{}", version >> 16, version >> 8 & 0xFF, version & 0xFF);
}

std::uint64_t transfer_limit(const block::ControllerReport& report) {
  const unsigned shift = report.controller.max_transfer_pages_log2;
  return shift == 0 || shift > 31 ? 0 : std::uint64_t{report.capabilities.min_page_bytes} << shift;
}

Json json_of(const block::ControllerReport& report, const block::NvmeTcpUrl& url) {
  const nvme::ControllerIdentity& c = report.controller;
  Json json = {{"url", url.canonical()},
               {"address", report.address},
               {"hostnqn", url.hostnqn},
               {"nqn", base::escape(c.subnqn)},
               {"model", base::escape(c.model_number)},
               {"serial", base::escape(c.serial_number)},
               {"firmware", base::escape(c.firmware_revision)},
               {"version", version_text(report.version)},
               {"cntlid", c.cntlid},
               {"max_transfer_bytes", transfer_limit(report)},
               {"queue_entries", report.capabilities.max_queue_entries},
               {"io_queues", report.io_queues},
               {"in_capsule_bytes", c.io_command_capsule_bytes - 64},
               {"keep_alive_granularity_ms", c.keep_alive_granularity_ms},
               {"ana", c.ana_reporting},
               {"write_zeroes", c.write_zeroes},
               {"write_cache", c.write_cache},
               {"namespaces", report.namespaces}};
  if (report.space) {
    const auto& [nsid, identity, ids, ana] = *report.space;
    json["namespace"] = {{"nsid", nsid},
                         {"capacity_bytes", report.space->capacity_bytes()},
                         {"block_bytes", 1u << identity.block_bytes_log2},
                         {"blocks", identity.blocks},
                         {"nguid", bytes_text(identity.nguid)},
                         {"eui64", bytes_text(identity.eui64)},
                         {"uuid", ids.uuid ? bytes_text(*ids.uuid) : ""},
                         {"write_protected", identity.write_protected},
                         {"shared", identity.shared},
                         {"ana_state", ana_name(ana)}};
  }
  return json;
}

void write_text(Output& out, const Json& json) {
  const auto line = [&](std::string_view key, const std::string& value) {
    out.line(fmt::format("{:<16} {}", key, value));
  };
  const auto text = [&](const Json& from, const char* key) {
    return from[key].is_string() ? from[key].get<std::string>() : from[key].dump();
  };
  line("controller", fmt::format("{} at {} (id {})", text(json, "model"), text(json, "address"), text(json, "cntlid")));
  for (const char* key : {"nqn", "serial", "firmware", "version", "hostnqn"}) line(key, text(json, key));
  const auto limit = json["max_transfer_bytes"].get<std::uint64_t>();
  line("one command", limit == 0 ? "any size" : "at most " + size_text(static_cast<double>(limit)));
  line("queues", fmt::format("{} of at most {} entries", text(json, "io_queues"), text(json, "queue_entries")));
  line("in a capsule", fmt::format("writes up to {} bytes", text(json, "in_capsule_bytes")));
  line("namespaces", text(json, "namespaces"));
  if (!json.contains("namespace")) return;
  const Json& space = json["namespace"];
  line("namespace", fmt::format("{}: {} ({} bytes) in blocks of {}", text(space, "nsid"),
                                size_text(space["capacity_bytes"].get<double>()), text(space, "capacity_bytes"),
                                text(space, "block_bytes")));
  for (const char* key : {"uuid", "nguid"}) line(key, text(space, key));
  line("access",
       fmt::format("{}{}", text(space, "ana_state"), space["write_protected"].get<bool>() ? ", write-protected" : ""));
}

Result<int> run(const std::string& text, bool json) {
  DLFS_TRY_ASSIGN(block::NvmeTcpUrl url, block::parse_nvme_tcp_url(text));
  block::fill_host_identity(url);
  auto report = block::identify_controller(url);
  if (!report.ok()) {
    Error error = std::move(report).error();
    error.message = fmt::format("cannot identify {}: {}", base::escape(text), error.message);
    return error;
  }
  const Json found = json_of(*report, url);
  Output out;
  if (json) {
    out.line(dump(found));
  } else {
    write_text(out, found);
  }
  DLFS_TRY(out.finish());
  return kExitOk;
}

}  // namespace

void add_identify(CLI::App& app, Request& request) {
  auto url = std::make_shared<std::string>();
  CLI::App* command = add_command(app, request, "identify", "Show an NVMe/TCP controller and a namespace of it",
                                  "dlfs identify 'nvme-tcp://10.1.0.7:4420/nqn.2026-01.io.example:stor1?nsid=1'");
  command->add_option("URL", *url, "nvme-tcp://HOST[:PORT]/NQN[?nsid=N&...]; man dlfs lists the options")
      ->required()
      ->type_name("");
  command->callback([url, &request] { request.run = [url, &request] { return run(*url, request.json); }; });
}

}  // namespace dlfs::tools
