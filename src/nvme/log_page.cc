#include "nvme/log_page.h"

#include "base/check.h"

namespace dlfs::nvme {
namespace {

namespace discovery {
constexpr At<std::uint64_t> kGenctr{0}, kNumrec{8};
constexpr At<std::uint16_t> kRecfmt{16};
constexpr Run kReserved{18, 1006};
static_assert(kReserved.end() == kDiscoveryHeaderBytes);

constexpr At<std::uint8_t> kTrtype{0}, kAdrfam{1}, kSubtype{2}, kTreq{3};
constexpr At<std::uint16_t> kPortid{4}, kCntlid{6}, kAsqsz{8}, kEflags{10};
constexpr Run kTrsvcid{32, 32}, kSubnqn{256, 256}, kTraddr{512, 256}, kTsas{768, 256};
constexpr At<std::uint8_t> kSectype{768};
static_assert(kTsas.end() == kDiscoveryEntryBytes);
}  // namespace discovery

namespace ana {
constexpr At<std::uint64_t> kChgcnt{0};
constexpr At<std::uint16_t> kNgrps{8};
constexpr std::size_t kHeaderBytes = 16;
constexpr At<std::uint32_t> kGroupId{0}, kGroupNnsids{4};
constexpr At<std::uint64_t> kGroupChgcnt{8};
constexpr At<std::uint8_t> kGroupState{16};
constexpr Run kGroupReserved{17, 15};
constexpr std::size_t kGroupBytes = 32;
static_assert(kGroupReserved.end() == kGroupBytes);
}  // namespace ana

namespace error {
constexpr At<std::uint64_t> kCount{0};
constexpr At<std::uint16_t> kSqid{8}, kCid{10}, kStatus{12}, kLocation{14};
constexpr At<std::uint64_t> kLba{16};
constexpr At<std::uint32_t> kNsid{24};
constexpr At<std::uint64_t> kSpecific{32};
constexpr Run kReserved{42, 22};
static_assert(kReserved.end() == kErrorEntryBytes);
}  // namespace error

namespace smart {
constexpr At<std::uint8_t> kWarning{0};
constexpr At<std::uint16_t> kTemperature{1};
constexpr At<std::uint8_t> kSpare{3}, kThreshold{4}, kUsed{5};
constexpr std::size_t kCounters = 32, kCounterBytes = 16, kCounterCount = 10;
constexpr Run kRest{192, 320};
static_assert(kCounters + kCounterCount * kCounterBytes == kRest.offset && kRest.end() == kSmartBytes);

// The counters in their order on the wire.
constexpr std::uint64_t SmartLog::* kOrder[kCounterCount] = {
    &SmartLog::data_units_read, &SmartLog::data_units_written, &SmartLog::host_reads,     &SmartLog::host_writes,
    &SmartLog::busy_minutes,    &SmartLog::power_cycles,       &SmartLog::power_on_hours, &SmartLog::unsafe_shutdowns,
    &SmartLog::media_errors,    &SmartLog::error_log_entries};
}  // namespace smart

bool valid(AnaState state) {
  switch (state) {
    case AnaState::kOptimized:
    case AnaState::kNonOptimized:
    case AnaState::kInaccessible:
    case AnaState::kPersistentLoss:
    case AnaState::kChange:
      return true;
  }
  return false;
}

}  // namespace

void encode(const DiscoveryHeader& header, std::span<std::byte, kDiscoveryHeaderBytes> to) noexcept {
  std::ranges::fill(to, std::byte{0});
  discovery::kGenctr.put(to.data(), header.generation);
  discovery::kNumrec.put(to.data(), header.records);
  discovery::kRecfmt.put(to.data(), header.format);
}

DiscoveryHeader decode_discovery_header(std::span<const std::byte, kDiscoveryHeaderBytes> from) noexcept {
  return {discovery::kGenctr.get(from.data()), discovery::kNumrec.get(from.data()),
          discovery::kRecfmt.get(from.data())};
}

void encode(const DiscoveryEntry& entry, std::span<std::byte, kDiscoveryEntryBytes> to) noexcept {
  std::ranges::fill(to, std::byte{0});
  std::byte* p = to.data();
  discovery::kTrtype.put(p, static_cast<std::uint8_t>(entry.transport));
  discovery::kAdrfam.put(p, static_cast<std::uint8_t>(entry.family));
  discovery::kSubtype.put(p, static_cast<std::uint8_t>(entry.subsystem));
  discovery::kTreq.put(p, entry.requirements);
  discovery::kPortid.put(p, entry.port_id);
  discovery::kCntlid.put(p, entry.cntlid);
  discovery::kAsqsz.put(p, entry.admin_queue_entries);
  discovery::kEflags.put(p, entry.flags);
  discovery::kTrsvcid.put_text(p, entry.service, ' ');
  discovery::kSubnqn.put_text(p, entry.subnqn, '\0');
  discovery::kTraddr.put_text(p, entry.address, ' ');
  discovery::kSectype.put(p, entry.tcp_security);
}

DiscoveryEntry decode_discovery_entry(std::span<const std::byte, kDiscoveryEntryBytes> from) {
  const std::byte* p = from.data();
  return {.transport = static_cast<TransportType>(discovery::kTrtype.get(p)),
          .family = static_cast<AddressFamily>(discovery::kAdrfam.get(p)),
          .subsystem = static_cast<SubsystemType>(discovery::kSubtype.get(p)),
          .requirements = discovery::kTreq.get(p),
          .port_id = discovery::kPortid.get(p),
          .cntlid = discovery::kCntlid.get(p),
          .admin_queue_entries = discovery::kAsqsz.get(p),
          .flags = discovery::kEflags.get(p),
          .service = discovery::kTrsvcid.text(p),
          .subnqn = discovery::kSubnqn.text(p),
          .address = discovery::kTraddr.text(p),
          .tcp_security = discovery::kSectype.get(p)};
}

std::vector<std::byte> encode(const AnaLog& log) {
  std::size_t size = ana::kHeaderBytes;
  for (const AnaGroup& group : log.groups) size += ana::kGroupBytes + 4 * group.nsids.size();
  DLFS_CHECK(log.groups.size() <= 0xFFFF);
  std::vector<std::byte> out(size);
  ana::kChgcnt.put(out.data(), log.change_count);
  ana::kNgrps.put(out.data(), static_cast<std::uint16_t>(log.groups.size()));
  std::byte* at = out.data() + ana::kHeaderBytes;
  for (const AnaGroup& group : log.groups) {
    ana::kGroupId.put(at, group.id);
    ana::kGroupNnsids.put(at, static_cast<std::uint32_t>(group.nsids.size()));
    ana::kGroupChgcnt.put(at, group.change_count);
    ana::kGroupState.put(at, static_cast<std::uint8_t>(group.state));
    at += ana::kGroupBytes;
    for (const std::uint32_t nsid : group.nsids) {
      base::store_le(at, nsid);
      at += 4;
    }
  }
  return out;
}

std::optional<AnaLog> decode_ana_log(ConstBytes from) {
  if (from.size() < ana::kHeaderBytes) return std::nullopt;
  AnaLog log{.change_count = ana::kChgcnt.get(from.data()), .groups = {}};
  const std::size_t groups = ana::kNgrps.get(from.data());
  from = from.subspan(ana::kHeaderBytes);
  for (std::size_t g = 0; g < groups; ++g) {
    if (from.size() < ana::kGroupBytes) return std::nullopt;
    AnaGroup group{.id = ana::kGroupId.get(from.data()),
                   .change_count = ana::kGroupChgcnt.get(from.data()),
                   .state = static_cast<AnaState>(ana::kGroupState.get(from.data()) & 0x0Fu),
                   .nsids = {}};
    const std::size_t count = ana::kGroupNnsids.get(from.data());
    from = from.subspan(ana::kGroupBytes);
    if (!valid(group.state) || count > from.size() / 4) return std::nullopt;
    for (std::size_t i = 0; i < count; ++i) group.nsids.push_back(base::load_le<std::uint32_t>(from.data() + 4 * i));
    from = from.subspan(4 * count);
    log.groups.push_back(std::move(group));
  }
  return log;
}

void encode(const ErrorEntry& entry, std::span<std::byte, kErrorEntryBytes> to) noexcept {
  std::ranges::fill(to, std::byte{0});
  std::byte* p = to.data();
  error::kCount.put(p, entry.error_count);
  error::kSqid.put(p, entry.sqid);
  error::kCid.put(p, entry.cid);
  error::kStatus.put(p, encode(entry.status));
  error::kLocation.put(p, entry.parameter_location);
  error::kLba.put(p, entry.lba);
  error::kNsid.put(p, entry.nsid);
  error::kSpecific.put(p, entry.specific);
}

ErrorEntry decode_error_entry(std::span<const std::byte, kErrorEntryBytes> from) noexcept {
  const std::byte* p = from.data();
  return {error::kCount.get(p),    error::kSqid.get(p), error::kCid.get(p),  decode_status(error::kStatus.get(p)),
          error::kLocation.get(p), error::kLba.get(p),  error::kNsid.get(p), error::kSpecific.get(p)};
}

void encode(const SmartLog& log, std::span<std::byte, kSmartBytes> to) noexcept {
  std::ranges::fill(to, std::byte{0});
  std::byte* p = to.data();
  smart::kWarning.put(p, log.critical_warning);
  smart::kTemperature.put(p, log.temperature_kelvin);
  smart::kSpare.put(p, log.available_spare_percent);
  smart::kThreshold.put(p, log.spare_threshold_percent);
  smart::kUsed.put(p, log.used_percent);
  for (std::size_t i = 0; i < smart::kCounterCount; ++i)
    base::store_le(p + smart::kCounters + i * smart::kCounterBytes, log.*smart::kOrder[i]);
}

SmartLog decode_smart_log(std::span<const std::byte, kSmartBytes> from) noexcept {
  const std::byte* p = from.data();
  SmartLog log{.critical_warning = smart::kWarning.get(p),
               .temperature_kelvin = smart::kTemperature.get(p),
               .available_spare_percent = smart::kSpare.get(p),
               .spare_threshold_percent = smart::kThreshold.get(p),
               .used_percent = smart::kUsed.get(p)};
  for (std::size_t i = 0; i < smart::kCounterCount; ++i) {
    const std::byte* counter = p + smart::kCounters + i * smart::kCounterBytes;
    const bool wider = base::load_le<std::uint64_t>(counter + 8) != 0;
    log.*smart::kOrder[i] = wider ? ~std::uint64_t{0} : base::load_le<std::uint64_t>(counter);
  }
  return log;
}

void encode(const ChangedNamespaces& changed, std::span<std::byte, kChangedNamespacesBytes> to) noexcept {
  DLFS_CHECK(changed.nsids.size() <= kChangedNamespacesBytes / 4);
  std::ranges::fill(to, std::byte{0});
  if (changed.too_many) {
    base::store_le<std::uint32_t>(to.data(), 0xFFFF'FFFF);
    return;
  }
  for (std::size_t i = 0; i < changed.nsids.size(); ++i) base::store_le(to.data() + 4 * i, changed.nsids[i]);
}

ChangedNamespaces decode_changed_namespaces(std::span<const std::byte, kChangedNamespacesBytes> from) {
  ChangedNamespaces changed;
  for (std::size_t i = 0; i < kChangedNamespacesBytes / 4; ++i) {
    const auto nsid = base::load_le<std::uint32_t>(from.data() + 4 * i);
    if (nsid == 0) break;
    if (nsid == 0xFFFF'FFFF) {
      changed.too_many = true;
      break;
    }
    changed.nsids.push_back(nsid);
  }
  return changed;
}

}  // namespace dlfs::nvme
