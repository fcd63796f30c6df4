// Any bytes as a stream of PDUs, cut in pieces, and as the data structures that commands carry.
#include <deque>

#include "nvme/identify.h"
#include "nvme/log_page.h"
#include "nvme/property.h"
#include "nvme_source.h"

namespace {

using namespace dlfs;

// Decodes every PDU and gives it a place of exactly its size.
class Taker final : public nvme::PduHandler {
 public:
  std::expected<nvme::Bytes, nvme::Fault> on_header(const nvme::PduShape& shape, const std::byte* header) override {
    fuzz::touch({header, shape.before_data_bytes});
    using nvme::PduType;
    if (shape.type == PduType::kIcReq) (void)nvme::decode_ic_req(header);
    if (shape.type == PduType::kIcResp) (void)nvme::decode_ic_resp(header);
    if (shape.type == PduType::kCapsuleCmd) command(nvme::decode_capsule(header));
    if (shape.type == PduType::kCapsuleResp) (void)nvme::describe(nvme::decode_response(header).status);
    DLFS_CHECK(place_.empty());
    if (shape.data_bytes > 100'000) return std::unexpected(nvme::Fault{});  // as a session bounds it
    place_.resize(shape.data_bytes);
    return nvme::Bytes(place_);
  }
  void on_data(bool) override {
    fuzz::touch(place_);
    place_ = {};
  }

 private:
  static void command(const nvme::Sqe& sqe) {
    // What was decoded is encoded to the same fields.
    DLFS_CHECK(nvme::decode_connect(nvme::decode_connect(sqe).to_sqe()) == nvme::decode_connect(sqe));
    DLFS_CHECK(nvme::decode_read_write(nvme::decode_read_write(sqe).to_sqe()) == nvme::decode_read_write(sqe));
    DLFS_CHECK(nvme::decode_identify(nvme::decode_identify(sqe).to_sqe()) == nvme::decode_identify(sqe));
    const auto dsm = nvme::decode_dataset_management(sqe);
    DLFS_CHECK(nvme::decode_dataset_management(dsm.to_sqe()) == dsm);
    nvme::GetLogPage page = nvme::decode_get_log_page(sqe);
    page.offset_bytes &= ~std::uint64_t{3};
    DLFS_CHECK(nvme::decode_get_log_page(page.to_sqe()) == page);
    (void)nvme::encode(nvme::decode_capabilities(std::uint64_t{sqe.cdw[1]} << 32 | sqe.cdw[0] | 1));
    (void)nvme::encode(nvme::decode_configuration(sqe.cdw[2]));
  }
  std::vector<std::byte> place_;
};

struct Parser {
  Parser(nvme::Receiver side, const nvme::Framing& framing, bool b) : receiver(side, 1), burst(b) {
    receiver.set_framing(framing);
  }
  nvme::Want want() { return receiver.want(burst); }
  void received(std::size_t bytes, std::uint64_t) {
    if (!receiver.received(bytes, taker)) return;
    fuzz::touch(receiver.header());
    receiver.stop();
  }
  nvme::PduReceiver receiver;
  Taker taker;
  bool burst;
};

void data_structures(std::span<const std::byte> input) {
  std::vector<std::byte> page(nvme::kIdentifyBytes);
  std::ranges::copy(input.first(std::min(input.size(), page.size())), page.begin());
  const nvme::IdentifyView view(page);
  (void)nvme::decode_controller_identity(view);
  (void)nvme::decode_namespace_identity(view);
  (void)nvme::decode_namespace_list(view);
  (void)nvme::decode_namespace_ids(view);
  (void)nvme::decode_changed_namespaces(view);
  (void)nvme::decode_connect_data(view.first<nvme::kConnectDataBytes>());
  (void)nvme::decode_discovery_entry(view.first<nvme::kDiscoveryEntryBytes>());
  (void)nvme::decode_smart_log(view.first<nvme::kSmartBytes>());
  (void)nvme::decode_error_entry(view.first<nvme::kErrorEntryBytes>());
  const std::vector<std::byte> exact(input.begin(), input.end());
  if (const auto log = nvme::decode_ana_log(exact)) {
    const auto again = nvme::decode_ana_log(nvme::encode(*log));
    DLFS_CHECK(again == log);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned choice = data[0];
  const auto input = fuzz::bytes_of(data + 1, size - 1);
  const nvme::Framing framing{(choice & 1u) != 0, (choice & 2u) != 0, (choice & 4u) != 0 ? 4u : 32u};
  Parser parser((choice & 8u) != 0 ? nvme::Receiver::kHost : nvme::Receiver::kController, framing, (choice & 16u) != 0);
  fuzz::feed(parser, input, 0, 1 + (choice >> 5) * 11);
  data_structures(input);
  return 0;
}
