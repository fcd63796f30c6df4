// Submission and completion queue entries, and the commands DLFS uses. NVM Express Base 2.0 and NVM Command Set 1.0.
//
// A command is a small struct with to_sqe() and a decode_*() of its own. Zero-based fields (queue sizes, block and
// dword counts) are counts here and zero-based only on the wire.
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "nvme/status.h"
#include "nvme/wire.h"

namespace dlfs::nvme {

// Base 2.0, 3.3.3.1 (Submission Queue Entry), 3.3.3.2 (Completion Queue Entry).
inline constexpr std::size_t kSqeBytes = 64, kCqeBytes = 16;

// Base 2.0, figure "Opcodes for Admin Commands" (5), "Opcodes for Fabrics Commands" (6) and NVM Command Set 1.0, 3.2.
enum class Opcode : std::uint8_t {
  // I/O queues
  kFlush = 0x00,
  kWrite = 0x01,
  kRead = 0x02,
  kWriteZeroes = 0x08,
  kDatasetManagement = 0x09,
  // the Admin Queue
  kGetLogPage = 0x02,
  kIdentify = 0x06,
  kAbort = 0x08,
  kSetFeatures = 0x09,
  kGetFeatures = 0x0A,
  kAsyncEventRequest = 0x0C,
  kKeepAlive = 0x18,
  // both
  kFabrics = 0x7F,
};
// Bits 1:0 of an opcode say which way data go.
enum class Transfer : std::uint8_t { kNone = 0, kToController = 1, kToHost = 2, kBoth = 3 };

// Fabrics Command Type, byte 4 of a Fabrics command. Base 2.0, 6. Bits 1:0 are the direction, as in opcodes.
enum class FabricsType : std::uint8_t { kPropertySet = 0x00, kConnect = 0x01, kPropertyGet = 0x04, kDisconnect = 0x08 };

// SGL descriptor of 16 bytes; only what NVMe/TCP uses. Base 2.0, 4.1.2; NVMe/TCP 1.0, 2 (data in a capsule: Data Block
// with an offset; data in data PDUs: Transport SGL Data Block).
struct Sgl {
  static constexpr std::uint8_t kInCapsule = 0x01;  // type 0h, subtype 1h: address is an offset in the capsule
  static constexpr std::uint8_t kTransport = 0x5A;  // type 5h, subtype Ah
  std::uint64_t address = 0;
  std::uint32_t length_bytes = 0;
  std::uint8_t type = kTransport;
  bool operator==(const Sgl&) const = default;
};

struct Sqe {
  std::uint8_t opcode = 0;
  std::uint8_t flags = 0x40;  // PSDT 01b: this command uses an SGL, as all do over fabrics; FUSE 00b
  std::uint16_t cid = 0;
  std::uint32_t nsid = 0;  // of a Fabrics command: byte 4 is the FabricsType
  Sgl sgl{};
  std::array<std::uint32_t, 6> cdw{};  // CDW10 to CDW15
  bool operator==(const Sqe&) const = default;

  bool is_fabrics() const noexcept { return opcode == static_cast<std::uint8_t>(Opcode::kFabrics); }
  FabricsType fabrics_type() const noexcept { return static_cast<FabricsType>(nsid & 0xFFu); }
  Transfer transfer() const noexcept { return static_cast<Transfer>((is_fabrics() ? nsid : opcode) & 3u); }
};
void encode(const Sqe& sqe, std::byte* to) noexcept;  // exactly kSqeBytes
Sqe decode_sqe(const std::byte* from) noexcept;

struct Cqe {
  std::uint64_t result = 0;  // DW0 and DW1: command specific
  std::uint16_t sqhd = 0;    // 0xFFFF where SQ flow control is disabled
  std::uint16_t cid = 0;
  Status status{};
  bool operator==(const Cqe&) const = default;
};
void encode(const Cqe& cqe, std::byte* to) noexcept;  // exactly kCqeBytes
Cqe decode_cqe(const std::byte* from) noexcept;

// ---- Fabrics commands ----

inline constexpr std::size_t kConnectDataBytes = 1024, kMaxNqnBytes = 223;
inline constexpr std::uint16_t kAnyController = 0xFFFF;  // dynamic controller model
inline constexpr std::string_view kDiscoveryNqn = "nqn.2014-08.org.nvmexpress.discovery";

// Base 2.0, 6.3.
struct Connect {
  std::uint16_t record_format = 0;
  std::uint16_t qid = 0;            // 0 is the Admin Queue
  std::uint32_t queue_entries = 2;  // SQSIZE + 1
  bool disable_sq_flow_control = false;
  std::uint32_t keep_alive_ms = 0;  // KATO; 0: off
  Sqe to_sqe() const noexcept;
  bool operator==(const Connect&) const = default;
};
Connect decode_connect(const Sqe& sqe) noexcept;

struct ConnectData {
  std::array<std::byte, 16> hostid{};
  std::uint16_t cntlid = kAnyController;
  std::string subnqn{}, hostnqn{};
  bool operator==(const ConnectData&) const = default;
};
void encode(const ConnectData& data, std::span<std::byte, kConnectDataBytes> to) noexcept;
// The error is the offset of the field that is not a name: empty (but for the host's), longer than kMaxNqnBytes or
// without an end.
std::expected<ConnectData, std::uint16_t> decode_connect_data(std::span<const std::byte, kConnectDataBytes> from);

// DW0 of a Connect response: the controller's id and whether it wants authentication; or what was wrong.
struct ConnectResult {
  std::uint16_t cntlid = 0;
  std::uint16_t authentication = 0;  // AUTHREQ; 0: none required
};
std::uint32_t encode(const ConnectResult& result) noexcept;
ConnectResult decode_connect_result(std::uint64_t result) noexcept;
// Status Connect Invalid Parameters: the offset of the parameter, in the command or in its data.
struct InvalidParameter {
  std::uint16_t offset = 0;
  bool in_data = false;
};
std::uint32_t encode(const InvalidParameter& parameter) noexcept;
InvalidParameter decode_invalid_parameter(std::uint64_t result) noexcept;

// Base 2.0, 6.5 and 6.6. `wide` properties have 8 bytes, others 4.
struct PropertyGet {
  std::uint32_t offset = 0;
  bool wide = false;
  Sqe to_sqe() const noexcept;
  bool operator==(const PropertyGet&) const = default;
};
struct PropertySet {
  std::uint32_t offset = 0;
  bool wide = false;
  std::uint64_t value = 0;
  Sqe to_sqe() const noexcept;
  bool operator==(const PropertySet&) const = default;
};
// nullopt: a size that is neither 4 nor 8 bytes.
std::optional<PropertyGet> decode_property_get(const Sqe& sqe) noexcept;
std::optional<PropertySet> decode_property_set(const Sqe& sqe) noexcept;

struct Disconnect {  // Base 2.0, 6.4; only on I/O queues
  std::uint16_t record_format = 0;
  Sqe to_sqe() const noexcept;
};
Disconnect decode_disconnect(const Sqe& sqe) noexcept;

// ---- Admin commands ----

// Base 2.0, 5.17, figure "CNS Values".
enum class Cns : std::uint8_t { kNamespace = 0x00, kController = 0x01, kActiveNamespaces = 0x02, kDescriptors = 0x03 };
struct Identify {
  Cns cns = Cns::kController;
  std::uint32_t nsid = 0;
  std::uint16_t cntid = 0;
  std::uint8_t csi = 0;
  Sqe to_sqe() const noexcept;
  bool operator==(const Identify&) const = default;
};
Identify decode_identify(const Sqe& sqe) noexcept;

// Base 2.0, 5.27.1, figure "Feature Identifiers".
enum class FeatureId : std::uint8_t {
  kVolatileWriteCache = 0x06,
  kNumberOfQueues = 0x07,
  kAsyncEventConfiguration = 0x0B,
  kKeepAliveTimer = 0x0F,
};
struct SetFeatures {
  FeatureId feature = FeatureId::kNumberOfQueues;
  std::uint32_t value = 0;  // CDW11
  bool save = false;
  std::uint32_t nsid = 0;
  Sqe to_sqe() const noexcept;
  bool operator==(const SetFeatures&) const = default;
};
SetFeatures decode_set_features(const Sqe& sqe) noexcept;
struct GetFeatures {
  FeatureId feature = FeatureId::kNumberOfQueues;
  std::uint8_t select = 0;  // SEL: 0 current, 1 default, 2 saved, 3 supported capabilities
  std::uint32_t nsid = 0;
  Sqe to_sqe() const noexcept;
  bool operator==(const GetFeatures&) const = default;
};
GetFeatures decode_get_features(const Sqe& sqe) noexcept;

// CDW11 of Set Features, DW0 of its completion (zero-based on the wire): I/O queues wanted, allocated. 1 to 65536.
struct QueueCounts {
  std::uint32_t submission = 1, completion = 1;
  bool operator==(const QueueCounts&) const = default;
};
std::uint32_t encode(const QueueCounts& counts) noexcept;
QueueCounts decode_queue_counts(std::uint32_t wire) noexcept;

// Asynchronous Event Configuration, CDW11: which notices and warnings are wanted.
struct AsyncEventConfig {
  std::uint8_t smart_warnings = 0;    // bits 7:0
  bool namespace_attribute = false;   // bit 8
  bool ana_change = false;            // bit 11
  bool discovery_log_change = false;  // bit 31
  bool operator==(const AsyncEventConfig&) const = default;
};
std::uint32_t encode(const AsyncEventConfig& config) noexcept;
AsyncEventConfig decode_async_event_config(std::uint32_t wire) noexcept;

// DW0 of a completed Asynchronous Event Request. Base 2.0, 5.2.
struct AsyncEvent {
  static constexpr std::uint8_t kError = 0, kSmart = 1, kNotice = 2;  // type
  static constexpr std::uint8_t kNamespaceChanged = 0x00, kAnaChanged = 0x03,
                                kDiscoveryChanged = 0xF0;  // info of a notice
  std::uint8_t type = 0, info = 0, log_page = 0;
  bool operator==(const AsyncEvent&) const = default;
};
std::uint32_t encode(const AsyncEvent& event) noexcept;
AsyncEvent decode_async_event(std::uint64_t result) noexcept;
Sqe async_event_request() noexcept;

Sqe keep_alive() noexcept;  // Base 2.0, 5.18

struct Abort {  // Base 2.0, 5.1; bit 0 of the completion's DW0 is 1 when the command was not aborted
  std::uint16_t sqid = 0, cid = 0;
  Sqe to_sqe() const noexcept;
  bool operator==(const Abort&) const = default;
};
Abort decode_abort(const Sqe& sqe) noexcept;

// Base 2.0, 5.16.1, figure "Get Log Page - Log Page Identifiers".
enum class LogPage : std::uint8_t {
  kError = 0x01,
  kSmart = 0x02,
  kChangedNamespaces = 0x04,
  kAna = 0x0C,
  kDiscovery = 0x70,
};
struct GetLogPage {
  LogPage page = LogPage::kError;
  std::uint8_t specific = 0;       // LSP
  bool retain_event = false;       // RAE
  std::uint64_t length_bytes = 4;  // a multiple of 4, at least 4, at most 2^34; NUMD
  std::uint64_t offset_bytes = 0;  // a multiple of 4
  std::uint32_t nsid = 0;
  Sqe to_sqe() const noexcept;
  bool operator==(const GetLogPage&) const = default;
};
GetLogPage decode_get_log_page(const Sqe& sqe) noexcept;

// ---- I/O commands. NVM Command Set 1.0, 3.2; Flush: Base 2.0, 7.1 ----

struct ReadWrite {  // Read, Write and Write Zeroes
  Opcode opcode = Opcode::kRead;
  std::uint32_t nsid = 0;
  std::uint64_t lba = 0;
  std::uint32_t blocks = 1;  // NLB + 1: 1 to 65536
  bool force_unit_access = false;
  bool limited_retry = false;
  bool deallocate = false;  // DEAC of Write Zeroes
  Sqe to_sqe() const noexcept;
  bool operator==(const ReadWrite&) const = default;
};
ReadWrite decode_read_write(const Sqe& sqe) noexcept;

Sqe flush(std::uint32_t nsid) noexcept;

struct DatasetManagement {
  std::uint32_t nsid = 0;
  std::uint32_t ranges = 1;  // NR + 1: 1 to 256, kDsmRangeBytes of data each
  bool deallocate = false;   // AD
  Sqe to_sqe() const noexcept;
  bool operator==(const DatasetManagement&) const = default;
};
DatasetManagement decode_dataset_management(const Sqe& sqe) noexcept;

inline constexpr std::size_t kDsmRangeBytes = 16;
struct DsmRange {
  std::uint32_t attributes = 0;
  std::uint32_t blocks = 0;  // not zero-based
  std::uint64_t lba = 0;
  bool operator==(const DsmRange&) const = default;
};
void encode(const DsmRange& range, std::byte* to) noexcept;
DsmRange decode_dsm_range(const std::byte* from) noexcept;

}  // namespace dlfs::nvme
