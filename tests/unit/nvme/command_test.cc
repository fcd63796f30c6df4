#include "nvme/command.h"

#include <gtest/gtest.h>

#include "golden.h"

namespace dlfs::nvme {
namespace {

const test::Octets& golden(const std::string& name) {
  static const test::Golden commands = test::read_golden("nvme_commands.hex");
  return commands.at(name);
}

constexpr std::uint16_t kCid = 0x1234;

// Encodes with the golden file's cid and, where data move, its SGL; compares; gives back what the golden bytes decode
// to.
Sqe same(const std::string& name, Sqe sqe, Sgl sgl = {}) {
  sqe.cid = kCid;
  sqe.sgl = sgl;
  test::Octets bytes(kSqeBytes, std::byte{0xEE});
  encode(sqe, bytes.data());
  EXPECT_EQ(bytes, golden(name)) << name;
  EXPECT_EQ(decode_sqe(golden(name).data()), sqe) << name;
  return decode_sqe(golden(name).data());
}

Cqe same(const std::string& name, const Cqe& cqe) {
  test::Octets bytes(kCqeBytes, std::byte{0xEE});
  encode(cqe, bytes.data());
  EXPECT_EQ(bytes, golden(name)) << name;
  return decode_cqe(golden(name).data());
}

TEST(nvme_command, connect_is_as_specified) {
  const Connect connect{.qid = 1, .queue_entries = 128, .disable_sq_flow_control = true, .keep_alive_ms = 30'000};
  const Sqe sqe = same("connect", connect.to_sqe(), {0, 1024, Sgl::kInCapsule});
  EXPECT_EQ(decode_connect(sqe), connect);
  EXPECT_TRUE(sqe.is_fabrics());
  EXPECT_EQ(sqe.fabrics_type(), FabricsType::kConnect);
  EXPECT_EQ(sqe.transfer(), Transfer::kToController);

  ConnectData data{.subnqn = "nqn.2026-01.io.example:stor1",
                   .hostnqn = "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff"};
  for (unsigned i = 0; i < 16; ++i) data.hostid[i] = static_cast<std::byte>(i * 0x11);
  test::Octets bytes(kConnectDataBytes, std::byte{0xEE});
  encode(data, std::span<std::byte, kConnectDataBytes>(bytes));
  EXPECT_EQ(bytes, golden("connect_data"));
  EXPECT_EQ(decode_connect_data(test::exactly<kConnectDataBytes>(golden("connect_data"))), data);
}

TEST(nvme_command, connect_data_without_a_name_are_refused) {
  const auto decoded = [](std::size_t at, std::size_t count, std::byte value) {
    test::Octets bytes = golden("connect_data");
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, value);
    return decode_connect_data(test::exactly<kConnectDataBytes>(bytes));
  };
  EXPECT_EQ(decoded(256, 256, std::byte{'x'}).error(), 256);  // no end
  EXPECT_EQ(decoded(512, 224, std::byte{'x'}).error(), 512);  // one byte too long
  EXPECT_EQ(decoded(512, 223, std::byte{'x'})->hostnqn, std::string(223, 'x'));
  EXPECT_EQ(decoded(256, 1, std::byte{0}).error(), 256);
  EXPECT_EQ(decoded(512, 1, std::byte{0})->hostnqn, "") << "a nameless host is left to the allow-list";
}

TEST(nvme_command, connect_responses_are_as_specified) {
  const Cqe cqe = same("connect_response", Cqe{.result = encode(ConnectResult{.cntlid = 7}), .sqhd = 1, .cid = kCid});
  EXPECT_EQ(decode_connect_result(cqe.result).cntlid, 7);
  EXPECT_EQ(decode_connect_result(cqe.result).authentication, 0);
  EXPECT_TRUE(cqe.status.ok());
  const Cqe invalid = same("connect_invalid_response", Cqe{.result = encode(InvalidParameter{512, true}),
                                                           .cid = kCid,
                                                           .status = {StatusCode::kConnectInvalidParameters, true}});
  EXPECT_EQ(decode_invalid_parameter(invalid.result).offset, 512);
  EXPECT_TRUE(decode_invalid_parameter(invalid.result).in_data);
  EXPECT_EQ(invalid.status, Status(StatusCode::kConnectInvalidParameters, true));
  EXPECT_EQ(describe(invalid.status), "Connect Invalid Parameters (SCT 1h, SC 82h)");
}

TEST(nvme_command, properties_and_disconnect_are_as_specified) {
  const PropertyGet get{.offset = 0, .wide = true};
  EXPECT_EQ(decode_property_get(same("property_get", get.to_sqe())), get);
  const PropertySet set{.offset = 0x14, .wide = false, .value = 0x0046'0001};
  EXPECT_EQ(decode_property_set(same("property_set", set.to_sqe())), set);
  EXPECT_EQ(decode_disconnect(same("disconnect", Disconnect{}.to_sqe())).record_format, 0);
  Sqe odd = set.to_sqe();
  odd.cdw[0] = 2;
  EXPECT_FALSE(decode_property_set(odd).has_value());
  EXPECT_FALSE(decode_property_get(odd).has_value());
}

TEST(nvme_command, admin_commands_are_as_specified) {
  const Identify identify{.cns = Cns::kDescriptors, .nsid = 5, .cntid = 0x0102, .csi = 2};
  EXPECT_EQ(decode_identify(same("identify", identify.to_sqe(), {0, 4096, Sgl::kTransport})), identify);
  const SetFeatures set{.feature = FeatureId::kNumberOfQueues, .value = encode(QueueCounts{4, 8}), .save = true};
  EXPECT_EQ(decode_set_features(same("set_features", set.to_sqe())), set);
  EXPECT_EQ(decode_queue_counts(set.value), (QueueCounts{4, 8}));
  const GetFeatures get{.feature = FeatureId::kKeepAliveTimer, .select = 3};
  EXPECT_EQ(decode_get_features(same("get_features", get.to_sqe())), get);
  const Abort abort{.sqid = 2, .cid = 0xABCD};
  EXPECT_EQ(decode_abort(same("abort", abort.to_sqe())), abort);
  EXPECT_EQ(same("keep_alive", keep_alive()).transfer(), Transfer::kNone);
  EXPECT_EQ(same("async_event_request", async_event_request()).transfer(), Transfer::kNone);
}

TEST(nvme_command, async_events_are_as_specified) {
  const AsyncEvent event{.type = AsyncEvent::kNotice, .info = AsyncEvent::kAnaChanged, .log_page = 0x0C};
  EXPECT_EQ(
      decode_async_event(same("async_event_response", Cqe{.result = encode(event), .sqhd = 9, .cid = kCid}).result),
      event);
  const AsyncEventConfig config{
      .smart_warnings = 0x1F, .namespace_attribute = true, .ana_change = true, .discovery_log_change = true};
  EXPECT_EQ(encode(config), 0x8000'091Fu);
  EXPECT_EQ(decode_async_event_config(0x8000'091F), config);
}

TEST(nvme_command, get_log_page_is_as_specified) {
  const GetLogPage get{.page = LogPage::kAna,
                       .specific = 1,
                       .retain_event = true,
                       .length_bytes = 524'288,
                       .offset_bytes = 0x1'0000'1000,
                       .nsid = 0xFFFF'FFFF};
  EXPECT_EQ(decode_get_log_page(same("get_log_page", get.to_sqe(), {0, 524'288, Sgl::kTransport})), get);
  const GetLogPage longest{.length_bytes = std::uint64_t{4} << 32};
  EXPECT_EQ(decode_get_log_page(longest.to_sqe()), longest);
}

TEST(nvme_command, io_commands_are_as_specified) {
  const ReadWrite read{
      .opcode = Opcode::kRead, .nsid = 1, .lba = 0xFEDC'BA98'7654'3210, .blocks = 256, .limited_retry = true};
  const Sqe sqe = same("read", read.to_sqe(), {0, 131'072, Sgl::kTransport});
  EXPECT_EQ(decode_read_write(sqe), read);
  EXPECT_EQ(sqe.transfer(), Transfer::kToHost);
  const ReadWrite write{.opcode = Opcode::kWrite, .nsid = 2, .lba = 1, .blocks = 1, .force_unit_access = true};
  EXPECT_EQ(decode_read_write(same("write", write.to_sqe(), {0, 512, Sgl::kInCapsule})), write);
  EXPECT_EQ(same("flush", flush(1)).nsid, 1u);
  const ReadWrite zeroes{
      .opcode = Opcode::kWriteZeroes, .nsid = 1, .lba = 0x1'0000'0000, .blocks = 65'536, .deallocate = true};
  EXPECT_EQ(decode_read_write(same("write_zeroes", zeroes.to_sqe())), zeroes);
  const DatasetManagement dsm{.nsid = 1, .ranges = 2, .deallocate = true};
  EXPECT_EQ(decode_dataset_management(same("dataset_management", dsm.to_sqe(), {0, 32, Sgl::kInCapsule})), dsm);
  const DsmRange range{.blocks = 2048, .lba = 0x1'0000'0000};
  test::Octets bytes(kDsmRangeBytes);
  encode(range, bytes.data());
  EXPECT_EQ(bytes, golden("dataset_management_range"));
  EXPECT_EQ(decode_dsm_range(bytes.data()), range);
}

TEST(nvme_command, every_status_word_survives_decoding_but_for_the_phase) {
  for (unsigned wire = 0; wire <= 0xFFFF; ++wire) {
    EXPECT_EQ(encode(decode_status(static_cast<std::uint16_t>(wire))), wire & 0xFFFEu);
  }
  EXPECT_EQ(describe(decode_status(0x0FFE)), "status SCT 7h, SC FFh");
}

}  // namespace
}  // namespace dlfs::nvme
