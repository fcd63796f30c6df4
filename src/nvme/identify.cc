#include "nvme/identify.h"

#include "base/check.h"

namespace dlfs::nvme {
namespace {

namespace ctrl {
constexpr At<std::uint16_t> kVid{0}, kSsvid{2};
constexpr Run kSn{4, 20}, kMn{24, 40}, kFr{64, 8};
constexpr At<std::uint8_t> kCmic{76}, kMdts{77};
constexpr At<std::uint16_t> kCntlid{78};
constexpr At<std::uint32_t> kVer{80}, kOaes{92}, kCtratt{96};
constexpr At<std::uint8_t> kType{111};
constexpr std::size_t kCrdt = 128;
constexpr At<std::uint8_t> kAcl{258}, kAerl{259}, kLpa{261}, kElpe{262};
constexpr At<std::uint16_t> kKas{320};
constexpr At<std::uint8_t> kAnatt{342}, kAnacap{343};
constexpr At<std::uint32_t> kAnagrpmax{344}, kNanagrpid{348};
constexpr At<std::uint8_t> kSqes{512}, kCqes{513};
constexpr At<std::uint16_t> kMaxcmd{514};
constexpr At<std::uint32_t> kNn{516};
constexpr At<std::uint16_t> kOncs{520};
constexpr At<std::uint8_t> kVwc{525};
constexpr At<std::uint32_t> kSgls{536}, kMnan{540};
constexpr Run kSubnqn{768, 256};
constexpr At<std::uint32_t> kIoccsz{1792}, kIorcsz{1796};
constexpr At<std::uint16_t> kIcdoff{1800};
constexpr At<std::uint8_t> kFcatt{1802}, kMsdbd{1803};
constexpr At<std::uint16_t> kOfcs{1804};
constexpr Run kVendor{3072, 1024};
static_assert(kFr.end() == 72 && kCntlid.end() == kVer.offset && kSubnqn.end() == 1024 &&
              kVendor.end() == kIdentifyBytes);
}  // namespace ctrl

namespace ns {
constexpr At<std::uint64_t> kNsze{0}, kNcap{8}, kNuse{16};
constexpr At<std::uint8_t> kNsfeat{24}, kNlbaf{25}, kFlbas{26}, kNmic{30}, kDlfeat{33};
constexpr At<std::uint16_t> kNoiob{46};
constexpr At<std::uint32_t> kAnagrpid{92};
constexpr At<std::uint8_t> kNsattr{99};
constexpr Run kNguid{104, 16}, kEui64{120, 8}, kFormats{128, 256}, kVendor{384, 3712};
constexpr std::size_t kFormatBytes = 4;
static_assert(kNguid.end() == kEui64.offset && kEui64.end() == kFormats.offset && kVendor.end() == kIdentifyBytes);
}  // namespace ns

// NIDT and its NIDL. Base 2.0, figure "Identify - Namespace Identification Descriptor".
constexpr std::uint8_t kEui64Type = 1, kNguidType = 2, kUuidType = 3, kCsiType = 4;
constexpr std::size_t kDescriptorHeaderBytes = 4;

constexpr unsigned flag(bool value, unsigned bit) { return (value ? 1u : 0u) << bit; }
constexpr bool bit(unsigned value, unsigned n) { return ((value >> n) & 1u) != 0; }
std::uint8_t zero_based(std::uint32_t count) {
  DLFS_CHECK(count >= 1 && count <= 256);
  return static_cast<std::uint8_t>(count - 1);
}

template <std::size_t N>
bool take(std::optional<std::array<std::byte, N>>& into, ConstBytes value) {
  if (value.size() != N) return false;
  std::ranges::copy(value, into.emplace().begin());
  return true;
}

std::byte* append(std::byte* at, std::uint8_t type, ConstBytes value) {
  at[0] = std::byte{type};
  at[1] = static_cast<std::byte>(value.size());
  std::memcpy(at + kDescriptorHeaderBytes, value.data(), value.size());
  return at + kDescriptorHeaderBytes + value.size();
}

}  // namespace

void encode(const ControllerIdentity& c, IdentifyBuffer to) noexcept {
  std::ranges::fill(to, std::byte{0});
  std::byte* p = to.data();
  ctrl::kVid.put(p, c.vendor);
  ctrl::kSsvid.put(p, c.subsystem_vendor);
  ctrl::kSn.put_text(p, c.serial_number, ' ');
  ctrl::kMn.put_text(p, c.model_number, ' ');
  ctrl::kFr.put_text(p, c.firmware_revision, ' ');
  ctrl::kCmic.put(
      p, static_cast<std::uint8_t>(flag(c.many_ports, 0) | flag(c.many_controllers, 1) | flag(c.ana_reporting, 3)));
  ctrl::kMdts.put(p, c.max_transfer_pages_log2);
  ctrl::kCntlid.put(p, c.cntlid);
  ctrl::kVer.put(p, c.version);
  ctrl::kOaes.put(p, c.async_events);
  ctrl::kCtratt.put(p, c.attributes);
  ctrl::kType.put(p, static_cast<std::uint8_t>(c.type));
  for (std::size_t i = 0; i < c.retry_delays_100ms.size(); ++i)
    base::store_le(p + ctrl::kCrdt + 2 * i, c.retry_delays_100ms[i]);
  ctrl::kAcl.put(p, zero_based(c.abort_limit));
  ctrl::kAerl.put(p, zero_based(c.async_event_limit));
  ctrl::kLpa.put(p, c.log_attributes);
  ctrl::kElpe.put(p, zero_based(c.error_log_entries));
  ctrl::kKas.put(p, static_cast<std::uint16_t>(c.keep_alive_granularity_ms / 100));
  ctrl::kAnatt.put(p, c.ana_transition_s);
  ctrl::kAnacap.put(p, c.ana_capabilities);
  ctrl::kAnagrpmax.put(p, c.ana_max_group);
  ctrl::kNanagrpid.put(p, c.ana_groups);
  ctrl::kSqes.put(p, 0x66);  // required and maximum: 2^6 bytes
  ctrl::kCqes.put(p, 0x44);  // required and maximum: 2^4 bytes
  ctrl::kMaxcmd.put(p, c.max_commands);
  ctrl::kNn.put(p, c.namespaces);
  ctrl::kOncs.put(p, static_cast<std::uint16_t>(flag(c.dataset_management, 2) | flag(c.write_zeroes, 3)));
  ctrl::kVwc.put(p, static_cast<std::uint8_t>(flag(c.write_cache, 0) | (c.flush_all ? 0x06u : 0u)));
  ctrl::kSgls.put(p, c.sgl_support);
  ctrl::kMnan.put(p, c.max_namespaces);
  ctrl::kSubnqn.put_text(p, c.subnqn, '\0');
  ctrl::kIoccsz.put(p, c.io_command_capsule_bytes / 16);
  ctrl::kIorcsz.put(p, c.io_response_capsule_bytes / 16);
  ctrl::kIcdoff.put(p, static_cast<std::uint16_t>(c.in_capsule_data_offset_bytes / 16));
  ctrl::kFcatt.put(p, static_cast<std::uint8_t>(flag(!c.dynamic_controllers, 0)));
  ctrl::kMsdbd.put(p, c.max_sgl_descriptors);
  ctrl::kOfcs.put(p, static_cast<std::uint16_t>(flag(c.disconnect, 0)));
}

ControllerIdentity decode_controller_identity(IdentifyView from) {
  const std::byte* p = from.data();
  ControllerIdentity c;
  c.vendor = ctrl::kVid.get(p);
  c.subsystem_vendor = ctrl::kSsvid.get(p);
  c.serial_number = ctrl::kSn.text(p);
  c.model_number = ctrl::kMn.text(p);
  c.firmware_revision = ctrl::kFr.text(p);
  c.many_ports = bit(ctrl::kCmic.get(p), 0);
  c.many_controllers = bit(ctrl::kCmic.get(p), 1);
  c.ana_reporting = bit(ctrl::kCmic.get(p), 3);
  c.max_transfer_pages_log2 = ctrl::kMdts.get(p);
  c.cntlid = ctrl::kCntlid.get(p);
  c.version = ctrl::kVer.get(p);
  c.async_events = ctrl::kOaes.get(p);
  c.attributes = ctrl::kCtratt.get(p);
  c.type = static_cast<ControllerType>(ctrl::kType.get(p));
  for (std::size_t i = 0; i < c.retry_delays_100ms.size(); ++i)
    c.retry_delays_100ms[i] = base::load_le<std::uint16_t>(p + ctrl::kCrdt + 2 * i);
  c.abort_limit = ctrl::kAcl.get(p) + 1u;
  c.async_event_limit = ctrl::kAerl.get(p) + 1u;
  c.log_attributes = ctrl::kLpa.get(p);
  c.error_log_entries = ctrl::kElpe.get(p) + 1u;
  c.keep_alive_granularity_ms = ctrl::kKas.get(p) * 100u;
  c.ana_transition_s = ctrl::kAnatt.get(p);
  c.ana_capabilities = ctrl::kAnacap.get(p);
  c.ana_max_group = ctrl::kAnagrpmax.get(p);
  c.ana_groups = ctrl::kNanagrpid.get(p);
  c.max_commands = ctrl::kMaxcmd.get(p);
  c.namespaces = ctrl::kNn.get(p);
  c.dataset_management = bit(ctrl::kOncs.get(p), 2);
  c.write_zeroes = bit(ctrl::kOncs.get(p), 3);
  c.write_cache = bit(ctrl::kVwc.get(p), 0);
  c.flush_all = (ctrl::kVwc.get(p) & 0x06u) == 0x06u;
  c.sgl_support = ctrl::kSgls.get(p);
  c.max_namespaces = ctrl::kMnan.get(p);
  c.subnqn = ctrl::kSubnqn.text(p);
  // IOCCSZ may be anything up to 2^32 - 1 steps; no more than a capsule's length can say is of use.
  c.io_command_capsule_bytes = std::min(ctrl::kIoccsz.get(p), 0x0FFF'FFFFu) * 16;
  c.io_response_capsule_bytes = std::min(ctrl::kIorcsz.get(p), 0x0FFF'FFFFu) * 16;
  c.in_capsule_data_offset_bytes = ctrl::kIcdoff.get(p) * 16u;
  c.dynamic_controllers = !bit(ctrl::kFcatt.get(p), 0);
  c.max_sgl_descriptors = ctrl::kMsdbd.get(p);
  c.disconnect = bit(ctrl::kOfcs.get(p), 0);
  return c;
}

void encode(const NamespaceIdentity& n, IdentifyBuffer to) noexcept {
  std::ranges::fill(to, std::byte{0});
  std::byte* p = to.data();
  ns::kNsze.put(p, n.blocks);
  ns::kNcap.put(p, n.capacity_blocks);
  ns::kNuse.put(p, n.used_blocks);
  ns::kNsfeat.put(p, n.features);
  ns::kNmic.put(p, static_cast<std::uint8_t>(flag(n.shared, 0)));
  ns::kDlfeat.put(p, n.deallocated_reads);
  ns::kNoiob.put(p, n.optimal_io_blocks);
  ns::kAnagrpid.put(p, n.ana_group);
  ns::kNsattr.put(p, static_cast<std::uint8_t>(flag(n.write_protected, 0)));
  ns::kNguid.put(p, n.nguid);
  ns::kEui64.put(p, n.eui64);
  // NLBAF and FLBAS stay zero: one format, number 0. MS in bytes 1:0 of it, LBADS in byte 2.
  base::store_le<std::uint16_t>(p + ns::kFormats.offset, n.metadata_bytes);
  base::store_le<std::uint8_t>(p + ns::kFormats.offset + 2, n.block_bytes_log2);
}

std::optional<NamespaceIdentity> decode_namespace_identity(IdentifyView from) noexcept {
  const std::byte* p = from.data();
  NamespaceIdentity n;
  n.blocks = ns::kNsze.get(p);
  n.capacity_blocks = ns::kNcap.get(p);
  n.used_blocks = ns::kNuse.get(p);
  n.features = ns::kNsfeat.get(p);
  n.shared = bit(ns::kNmic.get(p), 0);
  n.deallocated_reads = ns::kDlfeat.get(p);
  n.optimal_io_blocks = ns::kNoiob.get(p);
  n.ana_group = ns::kAnagrpid.get(p);
  n.write_protected = bit(ns::kNsattr.get(p), 0);
  std::ranges::copy(ns::kNguid.of(p), n.nguid.begin());
  std::ranges::copy(ns::kEui64.of(p), n.eui64.begin());
  // FLBAS: bits 3:0 are the low, bits 6:5 the high bits of the format's number. At most 64 formats lie in the page.
  const unsigned flbas = ns::kFlbas.get(p);
  const unsigned format = (flbas & 0x0Fu) | (flbas >> 5 & 3u) << 4;
  const unsigned formats = ns::kNlbaf.get(p) + 1u;
  const std::byte* entry = p + ns::kFormats.offset + format * ns::kFormatBytes;
  n.metadata_bytes = base::load_le<std::uint16_t>(entry);
  n.block_bytes_log2 = base::load_le<std::uint8_t>(entry + 2);
  const bool sane = format < formats && n.block_bytes_log2 >= 9 && n.block_bytes_log2 <= 31;
  if (!sane && n.blocks != 0) return std::nullopt;
  return n;
}

void encode_namespace_list(std::span<const std::uint32_t> ascending, IdentifyBuffer to) noexcept {
  DLFS_CHECK(ascending.size() <= kMaxNamespaceList);
  std::ranges::fill(to, std::byte{0});
  for (std::size_t i = 0; i < ascending.size(); ++i) base::store_le(to.data() + 4 * i, ascending[i]);
}

std::optional<std::vector<std::uint32_t>> decode_namespace_list(IdentifyView from) {
  std::vector<std::uint32_t> list;
  for (std::size_t i = 0; i < kMaxNamespaceList; ++i) {
    const auto nsid = base::load_le<std::uint32_t>(from.data() + 4 * i);
    if (nsid == 0) break;
    if (nsid > kMaxNsid || (!list.empty() && nsid <= list.back())) return std::nullopt;
    list.push_back(nsid);
  }
  return list;
}

void encode(const NamespaceIds& ids, IdentifyBuffer to) noexcept {
  std::ranges::fill(to, std::byte{0});
  std::byte* at = to.data();
  if (ids.eui64) at = append(at, kEui64Type, *ids.eui64);
  if (ids.nguid) at = append(at, kNguidType, *ids.nguid);
  if (ids.uuid) at = append(at, kUuidType, *ids.uuid);
  if (ids.command_set) append(at, kCsiType, std::as_bytes(std::span(&*ids.command_set, 1)));
}

std::optional<NamespaceIds> decode_namespace_ids(IdentifyView from) noexcept {
  NamespaceIds ids;
  ConstBytes rest = from;
  while (rest.size() >= kDescriptorHeaderBytes && rest[0] != std::byte{0}) {
    const auto type = std::to_integer<std::uint8_t>(rest[0]);
    const auto length = std::to_integer<std::size_t>(rest[1]);
    if (length == 0 || length > rest.size() - kDescriptorHeaderBytes) return std::nullopt;
    const ConstBytes value = rest.subspan(kDescriptorHeaderBytes, length);
    bool fits = true;
    if (type == kEui64Type) fits = take(ids.eui64, value);
    if (type == kNguidType) fits = take(ids.nguid, value);
    if (type == kUuidType) fits = take(ids.uuid, value);
    if (type == kCsiType) {
      fits = length == 1;
      ids.command_set = std::to_integer<std::uint8_t>(value[0]);
    }
    if (!fits) return std::nullopt;
    rest = rest.subspan(kDescriptorHeaderBytes + length);
  }
  return ids;
}

}  // namespace dlfs::nvme
