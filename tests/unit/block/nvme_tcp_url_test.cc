#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>
#include <fstream>

#include "block/nvme_tcp.h"
#include "support/temporary_directory.h"

namespace dlfs::block {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

NvmeTcpUrl parsed(const std::string& text) {
  auto url = parse_nvme_tcp_url(text);
  EXPECT_TRUE(url.ok()) << text << ": " << (url.ok() ? "" : url.error().message);
  return url.ok() ? *url : NvmeTcpUrl{};
}

TEST(NvmeTcpUrl, HasDefaults) {
  const NvmeTcpUrl url = parsed("nvme-tcp://10.1.0.7/nqn.2026-01.io.example:stor1");
  EXPECT_EQ(url.paths, (std::vector<net::Endpoint>{{"10.1.0.7", 4420}}));
  EXPECT_EQ(url.subnqn, "nqn.2026-01.io.example:stor1");
  EXPECT_EQ(url.nsid, 1u);
  EXPECT_EQ(url.queues, 1u);
  EXPECT_EQ(url.keep_alive, 10s);
  EXPECT_EQ(url.canonical(), "nvme-tcp://10.1.0.7:4420/nqn.2026-01.io.example:stor1?nsid=1");
}

TEST(NvmeTcpUrl, TakesAllOptions) {
  const NvmeTcpUrl url = parsed(
      "nvme-tcp://a:1,[fe80::1%25eth0]:2,c/"
      "nqn.x?nsid=4294967294&hostnqn=nqn.h%26&hostid=2cd2c43b-a90a-45c1-a8cd-86b33ab273b5"
      "&header_digest=on&data_digest=1&queues=4&queue_depth=64&connect_timeout=500ms&keep_alive=0&io_timeout=2min&ctrl_"
      "loss_timeout=7"
      "&reconnect_delay=1s");
  EXPECT_EQ(url.paths.size(), 3u);
  EXPECT_EQ(url.paths[1].port, 2);
  EXPECT_EQ(url.nsid, 4294967294u);
  EXPECT_EQ(url.hostnqn, "nqn.h&");
  EXPECT_EQ(url.hostid[0], std::byte{0x2c});
  EXPECT_TRUE(url.header_digest && url.data_digest);
  EXPECT_EQ(url.queues, 4u);
  EXPECT_EQ(url.queue_depth, 64u);
  EXPECT_EQ(url.connect_timeout, 500ms);
  EXPECT_EQ(url.keep_alive, 0ms);
  EXPECT_EQ(url.io_timeout, 120s);
  EXPECT_EQ(url.ctrl_loss_timeout, 7s);
  EXPECT_EQ(parsed(url.canonical()), url);
}

TEST(NvmeTcpUrl, ErrorsSayWhatToWrite) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"nvme-tcp:10.1.0.7", "write nvme-tcp://HOST:PORT/NQN"},
      {"nvme-tcp://10.1.0.7:4420", "dlfs discover 10.1.0.7:4420"},
      {"nvme-tcp:///nqn.x", "is not a HOST:PORT"},
      {"nvme-tcp://h:0/nqn.x", "port 0"},
      {"nvme-tcp://h:99999/nqn.x", "0 to 65535"},
      {"nvme-tcp://h/", "NQN behind the host"},
      {"nvme-tcp://h/nqn%2", "NQN behind the host"},
      {"nvme-tcp://h,h/nqn.x", "given twice"},
      {"nvme-tcp://::1/nqn.x", "[::1]"},
      {"nvme-tcp://h/nqn.x?nsid=0", "nsid must be a whole number from 1"},
      {"nvme-tcp://h/nqn.x?nsid=4294967295", "nsid"},
      {"nvme-tcp://h/nqn.x?nsid=1&nsid=1", "given twice"},
      {"nvme-tcp://h/nqn.x?queues=65", "from 1 to 64"},
      {"nvme-tcp://h/nqn.x?queue_depth=4096", "from 1 to 4095"},
      {"nvme-tcp://h/nqn.x?keep_alive=1h", "500ms, 10s or 2min"},
      {"nvme-tcp://h/nqn.x?connect_timeout=0", "500ms"},
      {"nvme-tcp://h/nqn.x?data_digest=maybe", "on or off"},
      {"nvme-tcp://h/nqn.x?hostid=0", "UUID"},
      {"nvme-tcp://h/nqn.x?hostnqn=", "hostnqn"},
      {"nvme-tcp://h/nqn.x?tls=1", "unknown option 'tls'; there are nsid"},
  };
  for (const auto& one : cases) {
    const auto url = parse_nvme_tcp_url(one.text);
    ASSERT_FALSE(url.ok()) << one.text;
    EXPECT_EQ(url.error().code, Code::kInvalidArgument);
    EXPECT_THAT(url.error().message, HasSubstr(one.says)) << one.text;
  }
  std::string many = "nvme-tcp://h0";
  for (int i = 1; i < 17; ++i) many += ",h" + std::to_string(i);
  EXPECT_FALSE(parse_nvme_tcp_url(many + "/nqn.x").ok());
  EXPECT_FALSE(parse_nvme_tcp_url("nvme-tcp://h/" + std::string(224, 'n')).ok());
  EXPECT_FALSE(parse_nvme_tcp_url("nvme-tcp://h/nqn.x?" + std::string(9000, 'x')).ok());
}

TEST(NvmeTcpUrl, CanonicalTextIsReadBack) {
  rc::check([] {
    NvmeTcpUrl url;
    const auto paths = *rc::gen::inRange(1, 5);
    for (int i = 0; i < paths; ++i) {
      url.paths.push_back({*rc::gen::element<std::string>("h", "10.0.0.", "fe80::") + std::to_string(i),
                           *rc::gen::inRange<std::uint16_t>(1, 65535)});
    }
    url.subnqn = "nqn." + *rc::gen::container<std::string>(rc::gen::inRange<char>(0x21, 0x7F));
    url.subnqn.resize(std::min<std::size_t>(url.subnqn.size(), 223));
    url.nsid = *rc::gen::inRange(1u, 0xFFFF'FFFFu);
    url.header_digest = *rc::gen::arbitrary<bool>();
    url.queues = *rc::gen::inRange(1u, 65u);
    url.queue_depth = *rc::gen::inRange(0u, 4096u);
    url.io_timeout = std::chrono::milliseconds(*rc::gen::inRange(1, 86'400'000));
    url.ctrl_loss_timeout = std::chrono::milliseconds(*rc::gen::inRange(0, 86'400'000));
    const auto again = parse_nvme_tcp_url(url.canonical());
    RC_ASSERT(again.ok());
    RC_ASSERT(*again == url);
  });
}

TEST(NvmeTcpUrl, HostIdentityComesFromTheMachine) {
  const testing_support::TemporaryDirectory directory;
  const std::string etc = directory.path();
  NvmeTcpUrl url, again;
  fill_host_identity(url, etc);
  EXPECT_THAT(url.hostnqn, HasSubstr("nqn.2014-08.org.nvmexpress:uuid:"));
  EXPECT_NE(url.hostid, (std::array<std::byte, 16>{}));
  fill_host_identity(again, etc);
  EXPECT_EQ(url, again) << "the same every time";

  std::ofstream(etc + "/machine-id") << "0123456789abcdef0123456789abcdef\n";
  NvmeTcpUrl other;
  fill_host_identity(other, etc);
  EXPECT_NE(other.hostid, url.hostid) << "another machine is another host";

  std::filesystem::create_directory(etc + "/nvme");
  std::ofstream(etc + "/nvme/hostnqn") << "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5\n";
  NvmeTcpUrl configured;
  fill_host_identity(configured, etc);
  EXPECT_EQ(configured.hostnqn, "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5");
  EXPECT_EQ(configured.hostid[1], std::byte{0xd2}) << "the id is the name's";
  std::ofstream(etc + "/nvme/hostid") << "11111111-2222-3333-4444-555555555555\n";
  NvmeTcpUrl both;
  fill_host_identity(both, etc);
  EXPECT_EQ(both.hostid[0], std::byte{0x11});
}

}  // namespace
}  // namespace dlfs::block
