// Log pages. NVM Express Base 2.0, 5.16.1.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nvme/status.h"
#include "nvme/wire.h"

namespace dlfs::nvme {

// ---- Discovery (70h): a header of 1024 bytes, then entries of 1024 ----

inline constexpr std::size_t kDiscoveryHeaderBytes = 1024, kDiscoveryEntryBytes = 1024;

struct DiscoveryHeader {
  std::uint64_t generation = 0;  // GENCTR
  std::uint64_t records = 0;     // NUMREC
  std::uint16_t format = 0;      // RECFMT
  bool operator==(const DiscoveryHeader&) const = default;
};
void encode(const DiscoveryHeader& header, std::span<std::byte, kDiscoveryHeaderBytes> to) noexcept;
DiscoveryHeader decode_discovery_header(std::span<const std::byte, kDiscoveryHeaderBytes> from) noexcept;

enum class TransportType : std::uint8_t { kRdma = 1, kFibreChannel = 2, kTcp = 3 };
enum class AddressFamily : std::uint8_t { kNone = 0, kIpv4 = 1, kIpv6 = 2, kInfiniBand = 3, kFibreChannel = 4 };
enum class SubsystemType : std::uint8_t { kReferral = 1, kNvme = 2, kCurrentDiscovery = 3 };

struct DiscoveryEntry {
  TransportType transport = TransportType::kTcp;
  AddressFamily family = AddressFamily::kIpv4;
  SubsystemType subsystem = SubsystemType::kNvme;
  std::uint8_t requirements = 0;  // TREQ; bit 2: SQ flow control may be disabled
  std::uint16_t port_id = 0, cntlid = 0xFFFF;
  std::uint16_t admin_queue_entries = 32;      // ASQSZ
  std::uint16_t flags = 0;                     // EFLAGS
  std::string service{}, subnqn{}, address{};  // TRSVCID, SUBNQN, TRADDR
  std::uint8_t tcp_security = 0;               // SECTYPE of TSAS: 0 none, 1 TLS 1.2, 2 TLS 1.3
  bool operator==(const DiscoveryEntry&) const = default;
};
void encode(const DiscoveryEntry& entry, std::span<std::byte, kDiscoveryEntryBytes> to) noexcept;
DiscoveryEntry decode_discovery_entry(std::span<const std::byte, kDiscoveryEntryBytes> from);

// ---- Asymmetric Namespace Access (0Ch) ----

enum class AnaState : std::uint8_t {
  kOptimized = 1,
  kNonOptimized = 2,
  kInaccessible = 3,
  kPersistentLoss = 4,
  kChange = 15
};

struct AnaGroup {
  std::uint32_t id = 0;
  std::uint64_t change_count = 0;
  AnaState state = AnaState::kOptimized;
  std::vector<std::uint32_t> nsids{};
  bool operator==(const AnaGroup&) const = default;
};
struct AnaLog {
  std::uint64_t change_count = 0;
  std::vector<AnaGroup> groups{};
  bool operator==(const AnaLog&) const = default;
};
std::vector<std::byte> encode(const AnaLog& log);
// nullopt: a group or its list leads out of `from`, or a state that is none.
std::optional<AnaLog> decode_ana_log(ConstBytes from);

// ---- Error Information (01h): entries of 64 bytes, newest first ----

inline constexpr std::size_t kErrorEntryBytes = 64;
struct ErrorEntry {
  std::uint64_t error_count = 0;  // 0: no entry
  std::uint16_t sqid = 0, cid = 0;
  Status status{};
  std::uint16_t parameter_location = 0xFFFF;
  std::uint64_t lba = 0;
  std::uint32_t nsid = 0;
  std::uint64_t specific = 0;
  bool operator==(const ErrorEntry&) const = default;
};
void encode(const ErrorEntry& entry, std::span<std::byte, kErrorEntryBytes> to) noexcept;
ErrorEntry decode_error_entry(std::span<const std::byte, kErrorEntryBytes> from) noexcept;

// ---- SMART / Health (02h). 16-byte counters are cut to 64 bits (saturated) ----

inline constexpr std::size_t kSmartBytes = 512;
struct SmartLog {
  std::uint8_t critical_warning = 0;
  std::uint16_t temperature_kelvin = 0;
  std::uint8_t available_spare_percent = 0, spare_threshold_percent = 0, used_percent = 0;
  std::uint64_t data_units_read = 0, data_units_written = 0;  // of 512,000 bytes, rounded up
  std::uint64_t host_reads = 0, host_writes = 0, busy_minutes = 0, power_cycles = 0, power_on_hours = 0;
  std::uint64_t unsafe_shutdowns = 0, media_errors = 0, error_log_entries = 0;
  bool operator==(const SmartLog&) const = default;
};
void encode(const SmartLog& log, std::span<std::byte, kSmartBytes> to) noexcept;
SmartLog decode_smart_log(std::span<const std::byte, kSmartBytes> from) noexcept;

// ---- Changed Namespace List (04h): at most 1024 ids; FFFFFFFFh alone: more than that ----

inline constexpr std::size_t kChangedNamespacesBytes = 4096;
struct ChangedNamespaces {
  bool too_many = false;
  std::vector<std::uint32_t> nsids{};
  bool operator==(const ChangedNamespaces&) const = default;
};
void encode(const ChangedNamespaces& changed, std::span<std::byte, kChangedNamespacesBytes> to) noexcept;
ChangedNamespaces decode_changed_namespaces(std::span<const std::byte, kChangedNamespacesBytes> from);

}  // namespace dlfs::nvme
