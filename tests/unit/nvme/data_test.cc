// Identify data, log pages and properties.
#include <gtest/gtest.h>

#include "golden.h"
#include "nvme/identify.h"
#include "nvme/log_page.h"
#include "nvme/property.h"

namespace dlfs::nvme {
namespace {

using test::exactly;
using test::Octets;

const Octets& golden(const std::string& name) {
  static const test::Golden data = test::read_golden("nvme_data.hex");
  return data.at(name);
}

template <std::size_t N, class T>
Octets encoded(const T& value) {
  Octets bytes(N, std::byte{0xEE});
  encode(value, std::span<std::byte, N>(bytes));
  return bytes;
}

template <std::size_t N>
std::array<std::byte, N> counting(unsigned first) {
  std::array<std::byte, N> out;
  for (std::size_t i = 0; i < N; ++i) out[i] = static_cast<std::byte>(first + i);
  return out;
}

ControllerIdentity controller() {
  ControllerIdentity c;
  c.vendor = 0x8086;
  c.subsystem_vendor = 0x1AF4;
  c.serial_number = "SN0123";
  c.model_number = "DLFS controller";
  c.firmware_revision = "1.0";
  c.many_controllers = c.ana_reporting = true;
  c.max_transfer_pages_log2 = 5;
  c.cntlid = 7;
  c.version = kVersion20;
  c.async_events = 0x8000'0900;
  c.attributes = 0x80;
  c.retry_delays_100ms = {10, 100, 0};
  c.abort_limit = 4;
  c.async_event_limit = 16;
  c.log_attributes = 6;
  c.error_log_entries = 128;
  c.keep_alive_granularity_ms = 1000;
  c.ana_transition_s = 10;
  c.ana_capabilities = 7;
  c.ana_max_group = c.ana_groups = 1;
  c.max_commands = 128;
  c.namespaces = c.max_namespaces = 32;
  c.write_zeroes = c.dataset_management = c.write_cache = c.flush_all = true;
  c.sgl_support = 0x0010'0001;
  c.subnqn = "nqn.2026-01.io.example:stor1";
  c.io_command_capsule_bytes = 8256;
  c.dynamic_controllers = false;
  c.max_sgl_descriptors = 1;
  c.disconnect = true;
  return c;
}

TEST(nvme_identify, controller_is_as_specified) {
  EXPECT_EQ(encoded<kIdentifyBytes>(controller()), golden("identify_controller"));
  EXPECT_EQ(decode_controller_identity(exactly<kIdentifyBytes>(golden("identify_controller"))), controller());
}

TEST(nvme_identify, capsule_size_that_no_number_holds_is_bounded) {
  Octets page = golden("identify_controller");
  std::fill_n(page.begin() + 1792, 4, std::byte{0xFF});
  EXPECT_EQ(decode_controller_identity(exactly<kIdentifyBytes>(page)).io_command_capsule_bytes, 0xFFFF'FFF0u);
}

TEST(nvme_identify, namespace_is_as_specified) {
  const NamespaceIdentity n{.blocks = 1u << 31,
                            .capacity_blocks = 1u << 31,
                            .used_blocks = 1,
                            .features = 0x10,
                            .block_bytes_log2 = 12,
                            .shared = true,
                            .deallocated_reads = 9,
                            .optimal_io_blocks = 256,
                            .ana_group = 1,
                            .write_protected = true,
                            .nguid = counting<16>(0),
                            .eui64 = counting<8>(0xF0)};
  EXPECT_EQ(encoded<kIdentifyBytes>(n), golden("identify_namespace"));
  EXPECT_EQ(decode_namespace_identity(exactly<kIdentifyBytes>(golden("identify_namespace"))), n);
}

TEST(nvme_identify, namespace_with_an_impossible_format_is_refused) {
  const auto decoded = [](std::size_t at, unsigned value) {
    Octets page = golden("identify_namespace");
    page[at] = static_cast<std::byte>(value);
    return decode_namespace_identity(exactly<kIdentifyBytes>(page));
  };
  EXPECT_FALSE(decoded(26, 1).has_value());     // FLBAS: a format that is not listed
  EXPECT_FALSE(decoded(26, 0x6F).has_value());  // the highest that FLBAS can say
  EXPECT_FALSE(decoded(130, 8).has_value());    // LBADS: blocks of 256 bytes
  EXPECT_FALSE(decoded(130, 32).has_value());   // of 4 GiB
  const Octets inactive(kIdentifyBytes);
  EXPECT_EQ(decode_namespace_identity(exactly<kIdentifyBytes>(inactive))->blocks, 0u);
}

TEST(nvme_identify, format_number_of_more_than_four_bits_is_found) {
  Octets page = golden("identify_namespace");
  page[25] = std::byte{63};
  page[26] = std::byte{0x61};  // format 49: high bits 11b, low bits 0001b
  page[128 + 49 * 4] = std::byte{8};
  page[128 + 49 * 4 + 2] = std::byte{9};
  const auto decoded = decode_namespace_identity(exactly<kIdentifyBytes>(page));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->block_bytes_log2, 9);
  EXPECT_EQ(decoded->metadata_bytes, 8);
}

TEST(nvme_identify, active_namespaces_are_as_specified) {
  const std::vector<std::uint32_t> ids{1, 5, 0xFFFF'FFFE};
  Octets bytes(kIdentifyBytes, std::byte{0xEE});
  encode_namespace_list(ids, IdentifyBuffer(bytes));
  EXPECT_EQ(bytes, golden("active_namespaces"));
  EXPECT_EQ(decode_namespace_list(exactly<kIdentifyBytes>(bytes)), ids);
  bytes[4] = std::byte{1};  // 1 after 1
  EXPECT_FALSE(decode_namespace_list(exactly<kIdentifyBytes>(bytes)).has_value());
  bytes[4] = std::byte{5};
  bytes[8] = std::byte{0xFF};  // FFFFFFFFh
  EXPECT_FALSE(decode_namespace_list(exactly<kIdentifyBytes>(bytes)).has_value());
  for (std::uint32_t i = 0; i < kMaxNamespaceList; ++i) base::store_le(bytes.data() + 4 * i, i + 1);
  EXPECT_EQ(decode_namespace_list(exactly<kIdentifyBytes>(bytes))->size(), kMaxNamespaceList);  // full, without an end
}

TEST(nvme_identify, namespace_descriptors_are_as_specified) {
  const NamespaceIds ids{
      .eui64 = counting<8>(0xF0), .nguid = counting<16>(0), .uuid = counting<16>(0x10), .command_set = 0};
  EXPECT_EQ(encoded<kIdentifyBytes>(ids), golden("namespace_descriptors"));
  EXPECT_EQ(decode_namespace_ids(exactly<kIdentifyBytes>(golden("namespace_descriptors"))), ids);
}

TEST(nvme_identify, descriptors_of_wrong_length_are_refused_and_unknown_ones_passed_over) {
  Octets page(kIdentifyBytes);
  const auto set = [&](std::size_t at, unsigned type, unsigned length) {
    page[at] = static_cast<std::byte>(type);
    page[at + 1] = static_cast<std::byte>(length);
  };
  const auto decoded = [&] { return decode_namespace_ids(exactly<kIdentifyBytes>(page)); };
  set(0, 9, 20);
  set(24, 4, 1);
  EXPECT_EQ(decoded()->command_set, 0);
  set(0, 2, 15);
  EXPECT_FALSE(decoded().has_value());
  set(0, 1, 0);
  EXPECT_FALSE(decoded().has_value());
  std::ranges::fill(page, std::byte{0xFF});  // unknown types of 255 bytes, the last of which leads out of the page
  EXPECT_FALSE(decoded().has_value());
}

TEST(nvme_log_page, discovery_is_as_specified) {
  const DiscoveryHeader header{.generation = 5, .records = 1};
  EXPECT_EQ(encoded<kDiscoveryHeaderBytes>(header), golden("discovery_header"));
  EXPECT_EQ(decode_discovery_header(exactly<kDiscoveryHeaderBytes>(golden("discovery_header"))), header);
  const DiscoveryEntry entry{.requirements = 4,
                             .port_id = 1,
                             .flags = 1,
                             .service = "4420",
                             .subnqn = "nqn.2026-01.io.example:stor1",
                             .address = "10.1.0.7"};
  EXPECT_EQ(encoded<kDiscoveryEntryBytes>(entry), golden("discovery_entry"));
  EXPECT_EQ(decode_discovery_entry(exactly<kDiscoveryEntryBytes>(golden("discovery_entry"))), entry);
}

TEST(nvme_log_page, ana_is_as_specified) {
  const AnaLog log{.change_count = 3,
                   .groups = {{.id = 1, .change_count = 1, .state = AnaState::kOptimized, .nsids = {1, 3}},
                              {.id = 7, .change_count = 2, .state = AnaState::kInaccessible, .nsids = {}}}};
  EXPECT_EQ(encode(log), golden("ana_log"));
  EXPECT_EQ(decode_ana_log(golden("ana_log")), log);
}

TEST(nvme_log_page, ana_that_leads_out_of_the_page_is_refused) {
  const Octets& whole = golden("ana_log");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_ana_log(std::span(whole).first(size)).has_value()) << size;
  }
  Octets log = whole;
  std::fill_n(log.begin() + 20, 4, std::byte{0xFF});  // namespaces of group 1
  EXPECT_FALSE(decode_ana_log(log).has_value());
  log = whole;
  log[32] = std::byte{9};  // its state
  EXPECT_FALSE(decode_ana_log(log).has_value());
}

TEST(nvme_log_page, errors_are_as_specified) {
  const ErrorEntry entry{.error_count = 42,
                         .sqid = 1,
                         .cid = 0x1234,
                         .status = StatusCode::kUnrecoveredReadError,
                         .parameter_location = 40,
                         .lba = 4096,
                         .nsid = 1,
                         .specific = 0x99};
  EXPECT_EQ(encoded<kErrorEntryBytes>(entry), golden("error_entry"));
  EXPECT_EQ(decode_error_entry(exactly<kErrorEntryBytes>(golden("error_entry"))), entry);
}

TEST(nvme_log_page, smart_is_as_specified) {
  const SmartLog log{.critical_warning = 4,
                     .temperature_kelvin = 300,
                     .available_spare_percent = 100,
                     .spare_threshold_percent = 10,
                     .used_percent = 3,
                     .data_units_read = 1,
                     .data_units_written = 2,
                     .host_reads = 3,
                     .host_writes = 4,
                     .busy_minutes = 5,
                     .power_cycles = 6,
                     .power_on_hours = 7,
                     .unsafe_shutdowns = 8,
                     .media_errors = 9,
                     .error_log_entries = 10};
  EXPECT_EQ(encoded<kSmartBytes>(log), golden("smart"));
  EXPECT_EQ(decode_smart_log(exactly<kSmartBytes>(golden("smart"))), log);
  Octets wide = golden("smart");
  wide[32 + 8] = std::byte{1};  // 2^64 + 1 data units
  EXPECT_EQ(decode_smart_log(exactly<kSmartBytes>(wide)).data_units_read, ~std::uint64_t{0});
}

TEST(nvme_log_page, changed_namespaces_are_as_specified) {
  const ChangedNamespaces changed{.too_many = false, .nsids = {2, 9}};
  EXPECT_EQ(encoded<kChangedNamespacesBytes>(changed), golden("changed_namespaces"));
  EXPECT_EQ(decode_changed_namespaces(exactly<kChangedNamespacesBytes>(golden("changed_namespaces"))), changed);
  const ChangedNamespaces many{.too_many = true, .nsids = {}};
  EXPECT_EQ(decode_changed_namespaces(exactly<kChangedNamespacesBytes>(encoded<kChangedNamespacesBytes>(many))), many);
}

TEST(nvme_property, registers_are_as_specified) {
  const Capabilities cap{.max_queue_entries = 1024, .ready_timeout_ms = 7500, .max_page_bytes = 8192};
  const auto cap_wire = base::load_le<std::uint64_t>(golden("cap").data());
  EXPECT_EQ(encode(cap), cap_wire);
  EXPECT_EQ(decode_capabilities(cap_wire), cap);
  const Configuration cc{.enable = true, .shutdown = Shutdown::kNormal};
  const auto cc_wire = base::load_le<std::uint32_t>(golden("cc").data());
  EXPECT_EQ(encode(cc), cc_wire);
  EXPECT_EQ(decode_configuration(cc_wire), cc);
  const ControllerStatus csts{.ready = true, .shutdown = ShutdownState::kComplete};
  const auto csts_wire = base::load_le<std::uint32_t>(golden("csts").data());
  EXPECT_EQ(encode(csts), csts_wire);
  EXPECT_EQ(decode_controller_status(csts_wire), csts);
}

}  // namespace
}  // namespace dlfs::nvme
