// Data structures of the Identify command. NVM Express Base 2.0, 5.17.2; NVM Command Set 1.0, 4.1.5.
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nvme/wire.h"

namespace dlfs::nvme {

inline constexpr std::size_t kIdentifyBytes = 4096;
inline constexpr std::uint32_t kAllNamespaces = 0xFFFF'FFFF, kMaxNsid = 0xFFFF'FFFE;
using IdentifyBuffer = std::span<std::byte, kIdentifyBytes>;
using IdentifyView = std::span<const std::byte, kIdentifyBytes>;

enum class ControllerType : std::uint8_t {
  kNotReported = 0,
  kIo = 1,
  kDiscovery = 2,
  kAdministrative = 3
};  // CNTRLTYPE

// Identify Controller (CNS 01h), the fields that a host over fabrics needs.
struct ControllerIdentity {
  std::uint16_t vendor = 0, subsystem_vendor = 0;                            // VID, SSVID
  std::string serial_number, model_number, firmware_revision;                // ASCII: at most 20, 40 and 8 bytes
  bool many_ports = false, many_controllers = false, ana_reporting = false;  // CMIC bits 0, 1, 3
  std::uint8_t max_transfer_pages_log2 = 0;  // MDTS: 2^n minimum pages of CAP; 0: no limit
  std::uint16_t cntlid = 0;
  std::uint32_t version = 0;       // VER
  std::uint32_t async_events = 0;  // OAES, as AsyncEventConfig's notices
  std::uint32_t attributes = 0;    // CTRATT
  ControllerType type = ControllerType::kIo;
  std::array<std::uint16_t, 3> retry_delays_100ms{};        // CRDT1 to CRDT3
  std::uint32_t abort_limit = 1;                            // ACL + 1: 1 to 256
  std::uint32_t async_event_limit = 1;                      // AERL + 1: 1 to 256
  std::uint8_t log_attributes = 0;                          // LPA
  std::uint32_t error_log_entries = 1;                      // ELPE + 1: 1 to 256
  std::uint32_t keep_alive_granularity_ms = 0;              // KAS, in steps of 100 ms; 0: not supported
  std::uint8_t ana_transition_s = 0, ana_capabilities = 0;  // ANATT, ANACAP
  std::uint32_t ana_max_group = 0, ana_groups = 0;          // ANAGRPMAX, NANAGRPID
  std::uint16_t max_commands = 0;                           // MAXCMD, of one I/O queue
  std::uint32_t namespaces = 0;                             // NN: the highest nsid
  bool write_zeroes = false, dataset_management = false;    // ONCS bits 3, 2
  bool write_cache = false;                                 // VWC bit 0
  bool flush_all = false;                                   // VWC bits 2:1 = 11b: Flush takes nsid FFFFFFFFh
  std::uint32_t sgl_support = 0;                            // SGLS
  std::uint32_t max_namespaces = 0;                         // MNAN
  std::string subnqn;
  std::uint32_t io_command_capsule_bytes = 64, io_response_capsule_bytes = 16;  // IOCCSZ, IORCSZ, in steps of 16 bytes
  std::uint32_t in_capsule_data_offset_bytes = 0;                               // ICDOFF, in steps of 16 bytes
  bool dynamic_controllers = true;                                              // FCATT bit 0 is 0
  std::uint8_t max_sgl_descriptors = 0;                                         // MSDBD
  bool disconnect = false;                                                      // OFCS bit 0
  bool operator==(const ControllerIdentity&) const = default;
};
void encode(const ControllerIdentity& identity, IdentifyBuffer to) noexcept;
ControllerIdentity decode_controller_identity(IdentifyView from);

// Identify Namespace (CNS 00h). An inactive namespace is all zero: blocks == 0.
struct NamespaceIdentity {
  std::uint64_t blocks = 0, capacity_blocks = 0, used_blocks = 0;  // NSZE, NCAP, NUSE
  std::uint8_t features = 0;                                       // NSFEAT
  std::uint8_t block_bytes_log2 = 9;                               // LBADS of the format in use
  std::uint16_t metadata_bytes = 0;     // MS of the format in use; DLFS uses namespaces without metadata
  bool shared = false;                  // NMIC bit 0
  std::uint8_t deallocated_reads = 0;   // DLFEAT
  std::uint16_t optimal_io_blocks = 0;  // NOIOB
  std::uint32_t ana_group = 0;          // ANAGRPID
  bool write_protected = false;         // NSATTR bit 0
  std::array<std::byte, 16> nguid{};
  std::array<std::byte, 8> eui64{};
  bool operator==(const NamespaceIdentity&) const = default;
};
void encode(const NamespaceIdentity& identity, IdentifyBuffer to) noexcept;
// nullopt: the format in use is none of those listed, or its blocks are not 2^9 to 2^31 bytes long (an inactive
// namespace passes).
std::optional<NamespaceIdentity> decode_namespace_identity(IdentifyView from) noexcept;

// Active Namespace ID list (CNS 02h): at most 1024 ids, ascending, ended by zero.
inline constexpr std::size_t kMaxNamespaceList = kIdentifyBytes / 4;
void encode_namespace_list(std::span<const std::uint32_t> ascending, IdentifyBuffer to) noexcept;
// nullopt: not ascending, or an id that no namespace has.
std::optional<std::vector<std::uint32_t>> decode_namespace_list(IdentifyView from);

// Namespace Identification Descriptor list (CNS 03h).
struct NamespaceIds {
  std::optional<std::array<std::byte, 8>> eui64;
  std::optional<std::array<std::byte, 16>> nguid, uuid;
  std::optional<std::uint8_t> command_set;  // CSI; 0: NVM
  bool operator==(const NamespaceIds&) const = default;
};
void encode(const NamespaceIds& ids, IdentifyBuffer to) noexcept;
// Types that are not known are passed over. nullopt: a known type of a wrong length, or a descriptor that leads out of
// the page.
std::optional<NamespaceIds> decode_namespace_ids(IdentifyView from) noexcept;

}  // namespace dlfs::nvme
