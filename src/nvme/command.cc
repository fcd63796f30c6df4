#include "nvme/command.h"

#include "base/check.h"

namespace dlfs::nvme {
namespace {

namespace sqe_at {
constexpr At<std::uint8_t> kOpcode{0}, kFlags{1};
constexpr At<std::uint16_t> kCid{2};
constexpr At<std::uint32_t> kNsid{4};
constexpr At<std::uint64_t> kSglAddress{24};
constexpr At<std::uint32_t> kSglLength{32};
constexpr At<std::uint8_t> kSglType{39};
constexpr std::size_t kCdw10 = 40;
static_assert(kSglType.end() == kCdw10 && kCdw10 + 6 * sizeof(std::uint32_t) == kSqeBytes);
}  // namespace sqe_at

namespace cqe_at {
constexpr At<std::uint64_t> kResult{0};
constexpr At<std::uint16_t> kSqhd{8}, kSqid{10}, kCid{12}, kStatus{14};
static_assert(kStatus.end() == kCqeBytes);
}  // namespace cqe_at

namespace connect_data_at {
constexpr Run kHostid{0, 16};
constexpr At<std::uint16_t> kCntlid{16};
constexpr Run kSubnqn{256, 256}, kHostnqn{512, 256}, kReserved{768, 256};
static_assert(kReserved.end() == kConnectDataBytes);
}  // namespace connect_data_at

namespace dsm_at {
constexpr At<std::uint32_t> kAttributes{0}, kBlocks{4};
constexpr At<std::uint64_t> kLba{8};
static_assert(kLba.end() == kDsmRangeBytes);
}  // namespace dsm_at

constexpr std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }
constexpr std::uint64_t join(std::uint32_t lower, std::uint32_t upper) { return std::uint64_t{upper} << 32 | lower; }
constexpr bool bit(std::uint32_t value, unsigned n) { return ((value >> n) & 1u) != 0; }
constexpr std::uint32_t flag(bool value, unsigned n) { return (value ? 1u : 0u) << n; }

Sqe command(Opcode opcode, std::uint32_t nsid = 0) {
  Sqe sqe;
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.nsid = nsid;
  return sqe;
}
Sqe command(FabricsType type) { return command(Opcode::kFabrics, static_cast<std::uint32_t>(type)); }

// A size of 4 or 8 bytes in bits 2:0 of a property command's ATTRIB.
std::optional<bool> wide(const Sqe& sqe) {
  const std::uint32_t size = sqe.cdw[0] & 7u;
  if (size > 1) return std::nullopt;
  return size == 1;
}

bool valid_nqn(const std::byte* structure, const Run& field) {
  const auto bytes = field.of(structure);
  const auto end = std::find(bytes.begin(), bytes.end(), std::byte{0});
  const auto length = static_cast<std::size_t>(end - bytes.begin());
  return length > 0 && length <= kMaxNqnBytes;
}

}  // namespace

void encode(const Sqe& sqe, std::byte* to) noexcept {
  std::memset(to, 0, kSqeBytes);
  sqe_at::kOpcode.put(to, sqe.opcode);
  sqe_at::kFlags.put(to, sqe.flags);
  sqe_at::kCid.put(to, sqe.cid);
  sqe_at::kNsid.put(to, sqe.nsid);
  sqe_at::kSglAddress.put(to, sqe.sgl.address);
  sqe_at::kSglLength.put(to, sqe.sgl.length_bytes);
  sqe_at::kSglType.put(to, sqe.sgl.type);
  for (std::size_t i = 0; i < sqe.cdw.size(); ++i) base::store_le(to + sqe_at::kCdw10 + 4 * i, sqe.cdw[i]);
}

Sqe decode_sqe(const std::byte* from) noexcept {
  Sqe sqe;
  sqe.opcode = sqe_at::kOpcode.get(from);
  sqe.flags = sqe_at::kFlags.get(from);
  sqe.cid = sqe_at::kCid.get(from);
  sqe.nsid = sqe_at::kNsid.get(from);
  sqe.sgl = {sqe_at::kSglAddress.get(from), sqe_at::kSglLength.get(from), sqe_at::kSglType.get(from)};
  for (std::size_t i = 0; i < sqe.cdw.size(); ++i)
    sqe.cdw[i] = base::load_le<std::uint32_t>(from + sqe_at::kCdw10 + 4 * i);
  return sqe;
}

void encode(const Cqe& cqe, std::byte* to) noexcept {
  cqe_at::kResult.put(to, cqe.result);
  cqe_at::kSqhd.put(to, cqe.sqhd);
  cqe_at::kSqid.put(to, 0);  // reserved over fabrics
  cqe_at::kCid.put(to, cqe.cid);
  cqe_at::kStatus.put(to, encode(cqe.status));
}

Cqe decode_cqe(const std::byte* from) noexcept {
  return {cqe_at::kResult.get(from), cqe_at::kSqhd.get(from), cqe_at::kCid.get(from),
          decode_status(cqe_at::kStatus.get(from))};
}

// Connect: RECFMT and QID in CDW10, SQSIZE and CATTR in CDW11, KATO in CDW12.
Sqe Connect::to_sqe() const noexcept {
  DLFS_CHECK(queue_entries >= 1 && queue_entries <= 65'536);
  Sqe sqe = command(FabricsType::kConnect);
  sqe.cdw[0] = record_format | std::uint32_t{qid} << 16;
  sqe.cdw[1] = (queue_entries - 1) | flag(disable_sq_flow_control, 18);
  sqe.cdw[2] = keep_alive_ms;
  return sqe;
}

Connect decode_connect(const Sqe& sqe) noexcept {
  return {.record_format = static_cast<std::uint16_t>(sqe.cdw[0]),
          .qid = static_cast<std::uint16_t>(sqe.cdw[0] >> 16),
          .queue_entries = (sqe.cdw[1] & 0xFFFFu) + 1,
          .disable_sq_flow_control = bit(sqe.cdw[1], 18),
          .keep_alive_ms = sqe.cdw[2]};
}

void encode(const ConnectData& data, std::span<std::byte, kConnectDataBytes> to) noexcept {
  std::ranges::fill(to, std::byte{0});
  connect_data_at::kHostid.put(to.data(), data.hostid);
  connect_data_at::kCntlid.put(to.data(), data.cntlid);
  connect_data_at::kSubnqn.put_text(to.data(), data.subnqn, '\0');
  connect_data_at::kHostnqn.put_text(to.data(), data.hostnqn, '\0');
}

std::expected<ConnectData, std::uint16_t> decode_connect_data(std::span<const std::byte, kConnectDataBytes> from) {
  ConnectData data;
  std::ranges::copy(connect_data_at::kHostid.of(from.data()), data.hostid.begin());
  data.cntlid = connect_data_at::kCntlid.get(from.data());
  for (const Run& field : {connect_data_at::kSubnqn, connect_data_at::kHostnqn}) {
    // A host without a name breaks the rules and exists (spdk_nvme_perf with a "ns:" in its address): an allow-list
    // knows what to do with it.
    const bool nameless = field.offset == connect_data_at::kHostnqn.offset && from[field.offset] == std::byte{0};
    if (!nameless && !valid_nqn(from.data(), field)) return std::unexpected(static_cast<std::uint16_t>(field.offset));
  }
  data.subnqn = connect_data_at::kSubnqn.text(from.data());
  data.hostnqn = connect_data_at::kHostnqn.text(from.data());
  return data;
}

std::uint32_t encode(const ConnectResult& result) noexcept {
  return result.cntlid | std::uint32_t{result.authentication} << 16;
}
ConnectResult decode_connect_result(std::uint64_t result) noexcept {
  return {static_cast<std::uint16_t>(result), static_cast<std::uint16_t>(result >> 16)};
}
std::uint32_t encode(const InvalidParameter& parameter) noexcept {
  return parameter.offset | flag(parameter.in_data, 16);
}
InvalidParameter decode_invalid_parameter(std::uint64_t result) noexcept {
  return {static_cast<std::uint16_t>(result), bit(low(result), 16)};
}

// Property commands: ATTRIB in CDW10, OFST in CDW11, VALUE in CDW12 and 13.
Sqe PropertyGet::to_sqe() const noexcept {
  Sqe sqe = command(FabricsType::kPropertyGet);
  sqe.cdw[0] = wide ? 1 : 0;
  sqe.cdw[1] = offset;
  return sqe;
}

Sqe PropertySet::to_sqe() const noexcept {
  Sqe sqe = command(FabricsType::kPropertySet);
  sqe.cdw[0] = wide ? 1 : 0;
  sqe.cdw[1] = offset;
  sqe.cdw[2] = low(value);
  sqe.cdw[3] = wide ? high(value) : 0;
  return sqe;
}

std::optional<PropertyGet> decode_property_get(const Sqe& sqe) noexcept {
  const auto size = wide(sqe);
  if (!size) return std::nullopt;
  return PropertyGet{sqe.cdw[1], *size};
}

std::optional<PropertySet> decode_property_set(const Sqe& sqe) noexcept {
  const auto size = wide(sqe);
  if (!size) return std::nullopt;
  return PropertySet{sqe.cdw[1], *size, *size ? join(sqe.cdw[2], sqe.cdw[3]) : sqe.cdw[2]};
}

Sqe Disconnect::to_sqe() const noexcept {
  Sqe sqe = command(FabricsType::kDisconnect);
  sqe.cdw[0] = record_format;
  return sqe;
}
Disconnect decode_disconnect(const Sqe& sqe) noexcept { return {static_cast<std::uint16_t>(sqe.cdw[0])}; }

Sqe Identify::to_sqe() const noexcept {
  Sqe sqe = command(Opcode::kIdentify, nsid);
  sqe.cdw[0] = static_cast<std::uint32_t>(cns) | std::uint32_t{cntid} << 16;
  sqe.cdw[1] = std::uint32_t{csi} << 24;
  return sqe;
}

Identify decode_identify(const Sqe& sqe) noexcept {
  return {static_cast<Cns>(sqe.cdw[0] & 0xFFu), sqe.nsid, static_cast<std::uint16_t>(sqe.cdw[0] >> 16),
          static_cast<std::uint8_t>(sqe.cdw[1] >> 24)};
}

Sqe SetFeatures::to_sqe() const noexcept {
  Sqe sqe = command(Opcode::kSetFeatures, nsid);
  sqe.cdw[0] = static_cast<std::uint32_t>(feature) | flag(save, 31);
  sqe.cdw[1] = value;
  return sqe;
}
SetFeatures decode_set_features(const Sqe& sqe) noexcept {
  return {static_cast<FeatureId>(sqe.cdw[0] & 0xFFu), sqe.cdw[1], bit(sqe.cdw[0], 31), sqe.nsid};
}

Sqe GetFeatures::to_sqe() const noexcept {
  Sqe sqe = command(Opcode::kGetFeatures, nsid);
  sqe.cdw[0] = static_cast<std::uint32_t>(feature) | (select & 7u) << 8;
  return sqe;
}
GetFeatures decode_get_features(const Sqe& sqe) noexcept {
  return {static_cast<FeatureId>(sqe.cdw[0] & 0xFFu), static_cast<std::uint8_t>((sqe.cdw[0] >> 8) & 7u), sqe.nsid};
}

std::uint32_t encode(const QueueCounts& counts) noexcept {
  DLFS_CHECK(counts.submission >= 1 && counts.submission <= 65'536 && counts.completion >= 1 &&
             counts.completion <= 65'536);
  return (counts.submission - 1) | (counts.completion - 1) << 16;
}
QueueCounts decode_queue_counts(std::uint32_t wire) noexcept { return {(wire & 0xFFFFu) + 1, (wire >> 16) + 1}; }

std::uint32_t encode(const AsyncEventConfig& config) noexcept {
  return config.smart_warnings | flag(config.namespace_attribute, 8) | flag(config.ana_change, 11) |
         flag(config.discovery_log_change, 31);
}
AsyncEventConfig decode_async_event_config(std::uint32_t wire) noexcept {
  return {static_cast<std::uint8_t>(wire), bit(wire, 8), bit(wire, 11), bit(wire, 31)};
}

std::uint32_t encode(const AsyncEvent& event) noexcept {
  return (event.type & 7u) | std::uint32_t{event.info} << 8 | std::uint32_t{event.log_page} << 16;
}
AsyncEvent decode_async_event(std::uint64_t result) noexcept {
  return {static_cast<std::uint8_t>(result & 7u), static_cast<std::uint8_t>(result >> 8),
          static_cast<std::uint8_t>(result >> 16)};
}
Sqe async_event_request() noexcept { return command(Opcode::kAsyncEventRequest); }
Sqe keep_alive() noexcept { return command(Opcode::kKeepAlive); }

Sqe Abort::to_sqe() const noexcept {
  Sqe sqe = command(Opcode::kAbort);
  sqe.cdw[0] = sqid | std::uint32_t{cid} << 16;
  return sqe;
}
Abort decode_abort(const Sqe& sqe) noexcept {
  return {static_cast<std::uint16_t>(sqe.cdw[0]), static_cast<std::uint16_t>(sqe.cdw[0] >> 16)};
}

// LID, LSP, RAE and NUMDL in CDW10, NUMDU in CDW11, the offset in CDW12 and 13.
Sqe GetLogPage::to_sqe() const noexcept {
  DLFS_CHECK(length_bytes >= 4 && length_bytes % 4 == 0 && length_bytes / 4 <= std::uint64_t{1} << 32 &&
             offset_bytes % 4 == 0);
  Sqe sqe = command(Opcode::kGetLogPage, nsid);
  const std::uint32_t dwords = low(length_bytes / 4 - 1);
  sqe.cdw[0] = static_cast<std::uint32_t>(page) | (specific & 0x7Fu) << 8 | flag(retain_event, 15) | dwords << 16;
  sqe.cdw[1] = dwords >> 16;
  sqe.cdw[2] = low(offset_bytes);
  sqe.cdw[3] = high(offset_bytes);
  return sqe;
}

GetLogPage decode_get_log_page(const Sqe& sqe) noexcept {
  const std::uint64_t dwords = std::uint64_t{(sqe.cdw[0] >> 16) | (sqe.cdw[1] & 0xFFFFu) << 16} + 1;
  return {.page = static_cast<LogPage>(sqe.cdw[0] & 0xFFu),
          .specific = static_cast<std::uint8_t>((sqe.cdw[0] >> 8) & 0x7Fu),
          .retain_event = bit(sqe.cdw[0], 15),
          .length_bytes = dwords * 4,
          .offset_bytes = join(sqe.cdw[2], sqe.cdw[3]),
          .nsid = sqe.nsid};
}

Sqe ReadWrite::to_sqe() const noexcept {
  DLFS_CHECK(blocks >= 1 && blocks <= 65'536);
  Sqe sqe = command(opcode, nsid);
  sqe.cdw[0] = low(lba);
  sqe.cdw[1] = high(lba);
  sqe.cdw[2] = (blocks - 1) | flag(deallocate, 25) | flag(force_unit_access, 30) | flag(limited_retry, 31);
  return sqe;
}
ReadWrite decode_read_write(const Sqe& sqe) noexcept {
  return {.opcode = static_cast<Opcode>(sqe.opcode),
          .nsid = sqe.nsid,
          .lba = join(sqe.cdw[0], sqe.cdw[1]),
          .blocks = (sqe.cdw[2] & 0xFFFFu) + 1,
          .force_unit_access = bit(sqe.cdw[2], 30),
          .limited_retry = bit(sqe.cdw[2], 31),
          .deallocate = bit(sqe.cdw[2], 25)};
}

Sqe flush(std::uint32_t nsid) noexcept { return command(Opcode::kFlush, nsid); }

Sqe DatasetManagement::to_sqe() const noexcept {
  DLFS_CHECK(ranges >= 1 && ranges <= 256);
  Sqe sqe = command(Opcode::kDatasetManagement, nsid);
  sqe.cdw[0] = ranges - 1;
  sqe.cdw[1] = flag(deallocate, 2);
  return sqe;
}
DatasetManagement decode_dataset_management(const Sqe& sqe) noexcept {
  return {sqe.nsid, (sqe.cdw[0] & 0xFFu) + 1, bit(sqe.cdw[1], 2)};
}

void encode(const DsmRange& range, std::byte* to) noexcept {
  dsm_at::kAttributes.put(to, range.attributes);
  dsm_at::kBlocks.put(to, range.blocks);
  dsm_at::kLba.put(to, range.lba);
}
DsmRange decode_dsm_range(const std::byte* from) noexcept {
  return {dsm_at::kAttributes.get(from), dsm_at::kBlocks.get(from), dsm_at::kLba.get(from)};
}

}  // namespace dlfs::nvme
