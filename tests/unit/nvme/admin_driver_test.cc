// The bring-up of a controller against our own controller session, and against one that answers as a test says.
#include "nvme/admin_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "nvme/controller_session.h"

namespace dlfs::nvme {
namespace {

using State = AdminDriver::State;
using ::testing::HasSubstr;

constexpr std::uint64_t kStart_ns = 1'000'000'000;

ControllerIdentity fake_identity() {
  ControllerIdentity identity;
  identity.model_number = "fake";
  identity.ana_reporting = true;
  identity.async_events = 1u << 8 | 1u << 11;
  identity.ana_max_group = identity.ana_groups = 1;
  identity.namespaces = 2000;
  return identity;
}

class FakeSubsystem final : public Subsystem {
 public:
  ConnectAnswer connect(const Connect&, const ConnectData& data) override {
    if (data.subnqn == "nqn.absent") return {.status = StatusCode::kConnectInvalidParameters, .invalid = {256, true}};
    if (data.hostnqn == "nqn.stranger") return {.status = {StatusCode::kConnectInvalidHost, true}};
    return {.cntlid = 7};
  }
  ControllerIdentity controller_identity() override { return identity; }
  std::optional<NamespaceShape> namespace_shape(std::uint32_t nsid) override {
    if (nsid == 0 || nsid > spaces) return std::nullopt;
    return NamespaceShape{.block_bytes = 512, .blocks = blocks};
  }
  NamespaceIdentity namespace_identity(std::uint32_t) override {
    return {.blocks = blocks, .capacity_blocks = blocks, .metadata_bytes = metadata, .ana_group = 1};
  }
  NamespaceIds namespace_ids(std::uint32_t) override {
    NamespaceIds ids;
    ids.uuid = std::array<std::byte, 16>{std::byte{1}};
    return ids;
  }
  std::vector<std::uint32_t> active_namespaces() override {
    std::vector<std::uint32_t> all;
    for (std::uint32_t i = 1; i <= spaces; ++i) all.push_back(i);
    return all;
  }
  std::optional<std::vector<std::byte>> log_page(const GetLogPage& command) override {
    if (command.page == LogPage::kAna) return encode(AnaLog{.groups = {{.id = 1, .state = ana, .nsids = {1}}}});
    if (command.page == LogPage::kChangedNamespaces) return std::vector<std::byte>(kChangedNamespacesBytes);
    if (command.page != LogPage::kDiscovery) return std::nullopt;
    ++discovery_reads;
    std::vector<std::byte> log(kDiscoveryHeaderBytes + entries * kDiscoveryEntryBytes);
    const std::uint64_t generation = restless ? discovery_reads : 1;
    encode(DiscoveryHeader{.generation = generation, .records = entries},
           std::span(log).first<kDiscoveryHeaderBytes>());
    for (std::size_t i = 0; i < entries; ++i) {
      const DiscoveryEntry entry{.service = "4420", .subnqn = "nqn.entry" + std::to_string(i), .address = "10.0.0.1"};
      encode(entry, std::span<std::byte, kDiscoveryEntryBytes>(
                        log.data() + kDiscoveryHeaderBytes + i * kDiscoveryEntryBytes, kDiscoveryEntryBytes));
    }
    return log;
  }
  QueueCounts grant_queues(const QueueCounts& wanted) override {
    return {std::min(wanted.submission, 3u), std::min(wanted.completion, 3u)};
  }

  ControllerIdentity identity = fake_identity();
  std::uint32_t spaces = 2;
  std::uint64_t blocks = 1000, discovery_reads = 0;
  std::uint16_t metadata = 0;
  std::size_t entries = 40;
  bool restless = false;
  AnaState ana = AnaState::kNonOptimized;
};

// Both sides in one place; bytes move when run() is called.
class Pair {
 public:
  explicit Pair(AdminOptions options) : controller_({}, subsystem, kStart_ns), driver(with_names(std::move(options))) {}
  static AdminOptions with_names(AdminOptions options) {
    if (options.session.subnqn.empty()) options.session.subnqn = "nqn.sub";
    if (options.session.hostnqn.empty()) options.session.hostnqn = "nqn.host";
    return options;
  }

  void run(int rounds = 400) {
    if (driver.state() == State::kIdle) driver.start(now_ns_);
    for (int i = 0; i < rounds && driver.state() != State::kFailed; ++i) {
      const bool moved = carry(driver.session(), controller_) + carry(controller_, driver.session()) > 0;
      driver.advance(now_ns_);
      if (!moved && !driver.session().anything_to_send()) now_ns_ += 6'000'000;
      driver.session().tick(now_ns_);
      controller_.tick(now_ns_);
      driver.advance(now_ns_);
    }
  }
  ControllerSession& controller() { return controller_; }

  FakeSubsystem subsystem;

 private:
  template <class From, class To>
  std::size_t carry(From& from, To& to) {
    ConstBytes pieces[32];
    std::vector<std::byte> bytes;
    const std::size_t count = from.gather(pieces);
    for (std::size_t i = 0; i < count; ++i) bytes.insert(bytes.end(), pieces[i].begin(), pieces[i].end());
    from.sent(bytes.size());
    for (std::size_t at = 0; at < bytes.size();) {
      const Want want = to.want();
      const std::size_t some = std::min(bytes.size() - at, want.size());
      if (some == 0) break;
      const std::size_t direct = std::min(some, want.direct.size());
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), direct, want.direct.begin());
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at + direct), some - direct, want.stage.begin());
      to.received(some, now_ns_);
      at += some;
    }
    return bytes.size();
  }

  std::uint64_t now_ns_ = kStart_ns;
  ControllerSession controller_;

 public:
  AdminDriver driver;
};

TEST(AdminDriver, BringsAControllerUp) {
  Pair pair({.nsid = 2, .io_queues = 8});
  pair.run();
  ASSERT_EQ(pair.driver.state(), State::kReady) << pair.driver.error().message;
  EXPECT_EQ(pair.driver.cntlid(), 7);
  EXPECT_EQ(pair.driver.controller().model_number, "fake");
  EXPECT_EQ(pair.driver.io_queues(), 3u) << "as many as were granted";
  EXPECT_EQ(pair.driver.queue_entries_limit(), 128u);
  EXPECT_EQ(pair.driver.max_transfer_bytes(), 1u << 20);
  EXPECT_EQ(pair.driver.namespaces().size(), 2u);
  ASSERT_TRUE(pair.driver.namespace_info().has_value());
  EXPECT_EQ(pair.driver.namespace_info()->capacity_bytes(), 512'000u);
  EXPECT_EQ(pair.driver.namespace_info()->ana, AnaState::kNonOptimized);
  EXPECT_EQ(pair.driver.namespace_info()->ids.uuid->at(0), std::byte{1});
  EXPECT_TRUE(pair.controller().controller_status().ready);
  EXPECT_TRUE(pair.controller().async_event_config().namespace_attribute);
}

TEST(AdminDriver, ReadsLongListsOfNamespaces) {
  Pair pair({.nsid = 1500});
  pair.subsystem.spaces = 1500;
  pair.run();
  ASSERT_EQ(pair.driver.state(), State::kReady) << pair.driver.error().message;
  EXPECT_EQ(pair.driver.namespaces().size(), 1500u);
}

TEST(AdminDriver, NoticesWhatChanges) {
  Pair pair({.nsid = 1});
  pair.run();
  ASSERT_EQ(pair.driver.state(), State::kReady);
  EXPECT_FALSE(pair.driver.take_changes().any());
  pair.subsystem.ana = AnaState::kInaccessible;
  pair.controller().notify({AsyncEvent::kNotice, AsyncEvent::kAnaChanged, static_cast<std::uint8_t>(LogPage::kAna)});
  pair.run();
  auto changes = pair.driver.take_changes();
  EXPECT_TRUE(changes.ana_changed && !changes.namespace_changed);
  EXPECT_EQ(pair.driver.namespace_info()->ana, AnaState::kInaccessible);
  pair.subsystem.blocks = 900;
  pair.controller().notify(
      {AsyncEvent::kNotice, AsyncEvent::kNamespaceChanged, static_cast<std::uint8_t>(LogPage::kChangedNamespaces)});
  pair.run();
  EXPECT_TRUE(pair.driver.take_changes().namespace_changed) << "the second event is asked for after the first";
  EXPECT_EQ(pair.driver.namespace_info()->identity.blocks, 900u);
  pair.subsystem.spaces = 0;
  pair.driver.refresh(kStart_ns);
  pair.run();
  EXPECT_TRUE(pair.driver.take_changes().namespace_changed);
  EXPECT_FALSE(pair.driver.namespace_info().has_value()) << "it is gone";
}

TEST(AdminDriver, ReadsADiscoveryLogInParts) {
  Pair pair({.discovery = true});
  pair.run();
  ASSERT_EQ(pair.driver.state(), State::kReady) << pair.driver.error().message;
  ASSERT_EQ(pair.driver.discovery().size(), 40u);
  EXPECT_EQ(pair.driver.discovery()[39].subnqn, "nqn.entry39");
}

TEST(AdminDriver, ADiscoveryLogThatNeverRestsIsAnError) {
  Pair pair({.discovery = true});
  pair.subsystem.restless = true;
  pair.run(4000);
  ASSERT_EQ(pair.driver.state(), State::kFailed);
  EXPECT_THAT(pair.driver.error().message, HasSubstr("changes faster"));
  EXPECT_LT(pair.subsystem.discovery_reads, 200u);
}

TEST(AdminDriver, RefusalsSayWhatIsWrong) {
  const auto fails = [](AdminOptions options, const std::function<void(FakeSubsystem&)>& change, const char* says,
                        bool final) {
    Pair pair(std::move(options));
    change(pair.subsystem);
    pair.run();
    ASSERT_EQ(pair.driver.state(), State::kFailed) << says;
    EXPECT_THAT(pair.driver.error().message, HasSubstr(says));
    EXPECT_EQ(pair.driver.do_not_retry(), final) << says;
  };
  const auto nothing = [](FakeSubsystem&) {};
  AdminOptions absent{.nsid = 1}, stranger{.nsid = 1};
  absent.session.subnqn = "nqn.absent";
  stranger.session.hostnqn = "nqn.stranger";
  fails(absent, nothing, "there is no subsystem nqn.absent", true);
  fails(stranger, nothing, "this host is not allowed to connect to nqn.sub; its NQN is nqn.stranger", true);
  fails({.nsid = 3}, nothing, "namespace 3 is not there; there are: 1, 2", true);
  fails({.nsid = 1}, [](FakeSubsystem& s) { s.metadata = 8; }, "8 bytes of metadata", true);
  fails(
      {.nsid = 1}, [](FakeSubsystem& s) { s.identity.type = ControllerType::kDiscovery; }, "discovery controller",
      true);
}

TEST(AdminDriver, APeerThatFallsSilentIsAnErrorInTime) {
  for (int rounds = 1; rounds < 14; ++rounds) {  // silent after each of its first answers
    Pair pair({.nsid = 1, .command_timeout_ns = 1'000'000'000});
    pair.run(rounds);
    if (pair.driver.state() == State::kReady) break;
    std::uint64_t now_ns = kStart_ns;
    for (int i = 0; i < 100 && pair.driver.state() == State::kBringingUp; ++i) {
      now_ns += 100'000'000;
      pair.driver.session().tick(now_ns);
      pair.driver.advance(now_ns);
    }
    EXPECT_EQ(pair.driver.state(), State::kFailed) << rounds;
    EXPECT_FALSE(pair.driver.do_not_retry());
  }
}

}  // namespace
}  // namespace dlfs::nvme
