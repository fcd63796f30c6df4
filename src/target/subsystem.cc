#include "target/subsystem.h"

#include <algorithm>

#include "base/error.h"

namespace dlfs::target {
namespace {

constexpr std::uint16_t kSubNqnAt = 256;  // of the Connect data. Base 2.0, 6.3
constexpr std::uint32_t kAnaGroup = 1;
constexpr std::uint32_t kNoticeNamespace = 1u << 8, kNoticeAna = 1u << 11;  // OAES
constexpr std::uint8_t kAnaStatesReported = 0x0F;  // ANACAP: optimized, non-optimized, inaccessible, persistent loss

// A serial number that is the same after a restart: 20 hexadecimal digits of the first namespace's identity.
std::string serial_number(const std::vector<Space>& spaces) {
  std::string serial;
  if (spaces.empty()) return "0";
  for (std::size_t i = 0; i < 10; ++i) serial += fmt::format("{:02X}", std::to_integer<unsigned>(spaces[0].nguid[i]));
  return serial;
}

}  // namespace

nvme::ConnectAnswer ConnectionSubsystem::connect(const nvme::Connect& command, const nvme::ConnectData& data) {
  nvme::ConnectAnswer answer;
  const bool discovery = data.subnqn == nvme::kDiscoveryNqn;
  if (!discovery && data.subnqn != registry_.options().nqn) {
    registry_.log(fmt::format("host {} asked for subsystem {}, which is not here", base::escape(data.hostnqn),
                              base::escape(data.subnqn)));
    return {.status = nvme::StatusCode::kConnectInvalidParameters, .invalid = {kSubNqnAt, true}};
  }
  controller_ = command.qid == 0 ? registry_.make(data, discovery, answer) : registry_.join(command, data, answer);
  if (controller_ != nullptr) generation_ = controller_->generation;
  return answer;
}

nvme::ControllerIdentity ConnectionSubsystem::controller_identity() {
  nvme::ControllerIdentity identity;
  identity.serial_number = serial_number(registry_.spaces());
  identity.model_number = "DLFS target";
  identity.firmware_revision = "0.1.0";
  identity.type = discovery() ? nvme::ControllerType::kDiscovery : nvme::ControllerType::kIo;
  identity.subnqn = discovery() ? std::string(nvme::kDiscoveryNqn) : registry_.options().nqn;
  identity.abort_limit = 4;
  if (discovery()) return identity;
  const auto spaces = static_cast<std::uint32_t>(registry_.spaces().size());
  identity.many_ports = identity.many_controllers = identity.ana_reporting = true;
  identity.async_events = kNoticeNamespace | kNoticeAna;
  identity.namespaces = identity.max_namespaces = spaces;
  identity.write_zeroes = true;
  identity.write_cache = identity.flush_all = true;
  identity.ana_transition_s = 10;
  identity.ana_capabilities = kAnaStatesReported;
  identity.ana_max_group = identity.ana_groups = kAnaGroup;
  return identity;
}

std::optional<nvme::NamespaceShape> ConnectionSubsystem::namespace_shape(std::uint32_t nsid) {
  const Space* space = discovery() ? nullptr : registry_.space(nsid);
  if (space == nullptr) return std::nullopt;
  return nvme::NamespaceShape{
      .block_bytes = space->block_bytes, .blocks = space->blocks, .read_only = space->read_only};
}

nvme::NamespaceIdentity ConnectionSubsystem::namespace_identity(std::uint32_t nsid) {
  const Space& space = *registry_.space(nsid);
  nvme::NamespaceIdentity identity;
  identity.blocks = identity.capacity_blocks = identity.used_blocks = space.blocks;
  identity.block_bytes_log2 = space.block_bytes_log2;
  identity.shared = true;
  identity.ana_group = kAnaGroup;
  identity.write_protected = space.read_only;
  identity.nguid = space.nguid;
  return identity;
}

nvme::NamespaceIds ConnectionSubsystem::namespace_ids(std::uint32_t nsid) {
  const Space& space = *registry_.space(nsid);
  return {.eui64 = {}, .nguid = space.nguid, .uuid = space.uuid, .command_set = std::uint8_t{0}};
}

std::vector<std::uint32_t> ConnectionSubsystem::active_namespaces() {
  std::vector<std::uint32_t> nsids;
  if (discovery()) return nsids;
  for (std::uint32_t i = 1; i <= registry_.spaces().size(); ++i) nsids.push_back(i);
  return nsids;
}

std::vector<std::byte> ConnectionSubsystem::discovery_log() const {
  std::vector<std::byte> log(nvme::kDiscoveryHeaderBytes + nvme::kDiscoveryEntryBytes);
  const std::span all(log);
  encode(nvme::DiscoveryHeader{.generation = 1, .records = 1}, all.first<nvme::kDiscoveryHeaderBytes>());
  nvme::DiscoveryEntry entry;
  entry.family = local_.family() == AF_INET6 ? nvme::AddressFamily::kIpv6 : nvme::AddressFamily::kIpv4;
  entry.requirements = 1u << 2;
  entry.port_id = 1;
  entry.service = std::to_string(local_.port());
  entry.subnqn = registry_.options().nqn;
  entry.address = local_.host();
  encode(entry, all.subspan<nvme::kDiscoveryHeaderBytes, nvme::kDiscoveryEntryBytes>());
  return log;
}

std::vector<std::byte> ConnectionSubsystem::ana_log() const {
  nvme::AnaGroup group{.id = kAnaGroup, .change_count = registry_.ana_changes(), .state = registry_.ana()};
  for (std::uint32_t i = 1; i <= registry_.spaces().size(); ++i) group.nsids.push_back(i);
  return encode(nvme::AnaLog{.change_count = registry_.ana_changes(), .groups = {group}});
}

std::vector<std::byte> ConnectionSubsystem::smart_log() const {
  constexpr std::uint64_t kUnit = 512'000;
  Counters& counters = registry_.counters();
  std::vector<std::byte> log(nvme::kSmartBytes);
  encode(nvme::SmartLog{.temperature_kelvin = 300,
                        .available_spare_percent = 100,
                        .data_units_read = (counters.read_bytes + kUnit - 1) / kUnit,
                        .data_units_written = (counters.written_bytes + kUnit - 1) / kUnit,
                        .host_reads = counters.reads,
                        .host_writes = counters.writes,
                        .media_errors = counters.errors},
         std::span<std::byte, nvme::kSmartBytes>(log));
  return log;
}

std::optional<std::vector<std::byte>> ConnectionSubsystem::log_page(const nvme::GetLogPage& command) {
  if (discovery()) {
    if (command.page != nvme::LogPage::kDiscovery) return std::nullopt;
    return discovery_log();
  }
  switch (command.page) {
    case nvme::LogPage::kError:
      return std::vector<std::byte>(nvme::kErrorEntryBytes);  // as Identify says: one entry, and it is empty
    case nvme::LogPage::kSmart:
      return smart_log();
    case nvme::LogPage::kAna:
      return ana_log();
    case nvme::LogPage::kChangedNamespaces: {
      std::vector<std::byte> log(nvme::kChangedNamespacesBytes);
      encode(nvme::ChangedNamespaces{.nsids = registry_.take_changed(*controller_)},
             std::span<std::byte, nvme::kChangedNamespacesBytes>(log));
      return log;
    }
    default:
      return std::nullopt;
  }
}

nvme::QueueCounts ConnectionSubsystem::grant_queues(const nvme::QueueCounts& wanted) {
  const std::uint32_t granted =
      std::clamp<std::uint32_t>(std::min(wanted.submission, wanted.completion), 1, registry_.options().max_queues);
  return {granted, granted};
}

}  // namespace dlfs::target
