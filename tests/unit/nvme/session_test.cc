// Host session against controller session, joined in memory.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "session_pair.h"

namespace dlfs::nvme {
namespace {

using test::carry;
using test::Pair;
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint32_t kBlock = test::MemorySubsystem::kBlockBytes;

std::byte pattern(std::uint64_t stream, std::uint64_t i) {
  return static_cast<std::byte>(base::mix64(stream << 32 | i));
}
std::vector<std::byte> patterned(std::uint64_t stream, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = pattern(stream, i);
  return bytes;
}

// Submits one command, lets everything settle, and returns its completion.
Completion run(Pair& pair, const HostCommand& command) {
  EXPECT_TRUE(pair.host.submit(command, pair.now_ns));
  pair.settle();
  Completion completions[2];
  EXPECT_EQ(pair.host.take(completions), 1u);
  return completions[0];
}

Sqe io(Opcode opcode, std::uint64_t lba, std::uint32_t blocks, std::uint32_t nsid = 1) {
  return ReadWrite{.opcode = opcode, .nsid = nsid, .lba = lba, .blocks = blocks}.to_sqe();
}

void enable(Pair& pair) {
  const PropertySet set{.offset = kConfigurationOffset, .value = encode(Configuration{.enable = true})};
  EXPECT_TRUE(run(pair, {.sqe = set.to_sqe()}).status.ok());
}

TEST(nvme_session, queue_connects_and_tells_the_controllers_id) {
  Pair pair({}, {}, 64, 1);
  EXPECT_EQ(pair.host.state(), SessionState::kHandshake);
  pair.settle();
  ASSERT_EQ(pair.host.state(), SessionState::kReady);
  EXPECT_EQ(pair.controller.state(), ControllerSession::State::kReady);
  EXPECT_EQ(pair.host.cntlid(), 7);
  EXPECT_EQ(pair.controller.hostnqn(), test::kHostnqn);
}

TEST(nvme_session, refused_connect_is_an_error_with_its_status) {
  Pair pair({.hostnqn = "nqn.2026-01.io.example:stranger"}, {}, 64, 1);
  pair.settle();
  ASSERT_EQ(pair.host.state(), SessionState::kFailed);
  EXPECT_EQ(pair.host.error().nvme_status & 0x7FF, static_cast<int>(StatusCode::kConnectInvalidHost));
  EXPECT_NE(pair.host.error().message.find("Connect Invalid Host"), std::string::npos) << pair.host.error().message;
}

TEST(nvme_session, digest_that_the_controller_does_not_offer_ends_the_handshake) {
  Pair pair({.data_digest = true}, {.allow_data_digest = false}, 64, 1);
  pair.settle();
  EXPECT_EQ(pair.host.state(), SessionState::kFailed);
  EXPECT_EQ(pair.controller.state(), ControllerSession::State::kFailed);
  EXPECT_NE(pair.controller.error().message.find("unsupported parameter"), std::string::npos)
      << pair.controller.error().message;
}

TEST(nvme_session, controller_is_enabled_by_properties_before_admin_commands) {
  Pair pair({}, {}, 64, 1);
  pair.settle();
  std::vector<std::byte> page(kIdentifyBytes);
  EXPECT_EQ(run(pair, {.sqe = Identify{}.to_sqe(), .read_into = page}).status.code, StatusCode::kCommandSequenceError);
  const Completion cap = run(pair, {.sqe = PropertyGet{.offset = kCapOffset, .wide = true}.to_sqe()});
  EXPECT_EQ(decode_capabilities(cap.result).max_queue_entries, 128u);
  EXPECT_EQ(run(pair, {.sqe = PropertyGet{.offset = kVersionOffset}.to_sqe()}).result, kVersion14);
  EXPECT_EQ(run(pair, {.sqe = PropertyGet{.offset = 0x30}.to_sqe()}).status.code, StatusCode::kInvalidField);
  enable(pair);
  const auto status = [&] {
    return decode_controller_status(
        static_cast<std::uint32_t>(run(pair, {.sqe = PropertyGet{.offset = kControllerStatusOffset}.to_sqe()}).result));
  };
  EXPECT_TRUE(status().ready);
  ASSERT_TRUE(run(pair, {.sqe = Identify{}.to_sqe(), .read_into = page}).status.ok());
  const ControllerIdentity identity = decode_controller_identity(std::span<const std::byte, kIdentifyBytes>(page));
  EXPECT_EQ(identity.serial_number, "MEMORY");
  EXPECT_EQ(identity.cntlid, 7);
  EXPECT_EQ(identity.io_command_capsule_bytes, 64u + 8192u);
  const Configuration off{.enable = true, .shutdown = Shutdown::kNormal};
  run(pair, {.sqe = PropertySet{.offset = kConfigurationOffset, .value = encode(off)}.to_sqe()});
  EXPECT_EQ(status().shutdown, ShutdownState::kComplete);
  run(pair, {.sqe = PropertySet{.offset = kConfigurationOffset, .value = 0}.to_sqe()});
  EXPECT_FALSE(status().ready);
}

TEST(nvme_session, configuration_that_is_not_offered_is_a_fatal_status) {
  Pair pair({}, {}, 64, 1);
  pair.settle();
  run(pair, {.sqe = PropertySet{.offset = kConfigurationOffset,
                                .value = encode(Configuration{.enable = true, .page_bytes = 8192})}
                        .to_sqe()});
  EXPECT_TRUE(pair.controller.controller_status().fatal);
  EXPECT_FALSE(pair.controller.controller_status().ready);
}

TEST(nvme_session, namespaces_are_identified) {
  Pair pair({}, {}, 64, 1);
  pair.settle();
  enable(pair);
  std::vector<std::byte> page(kIdentifyBytes);
  const auto identify = [&](Cns cns, std::uint32_t nsid) {
    return run(pair, {.sqe = Identify{.cns = cns, .nsid = nsid}.to_sqe(), .read_into = page}).status.code;
  };
  const std::span<const std::byte, kIdentifyBytes> view(page);
  EXPECT_EQ(identify(Cns::kActiveNamespaces, 0), StatusCode::kSuccess);
  EXPECT_EQ(decode_namespace_list(view), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(identify(Cns::kActiveNamespaces, 1), StatusCode::kSuccess);
  EXPECT_EQ(decode_namespace_list(view), (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(identify(Cns::kNamespace, 1), StatusCode::kSuccess);
  EXPECT_EQ(decode_namespace_identity(view)->blocks, 64u);
  EXPECT_EQ(identify(Cns::kNamespace, 3), StatusCode::kSuccess);  // may exist, is not active
  EXPECT_EQ(decode_namespace_identity(view)->blocks, 0u);
  EXPECT_EQ(identify(Cns::kNamespace, 5), StatusCode::kInvalidNamespace);
  EXPECT_EQ(identify(Cns::kDescriptors, 2), StatusCode::kSuccess);
  EXPECT_EQ(decode_namespace_ids(view)->command_set, 0);
  EXPECT_EQ(identify(Cns::kDescriptors, 3), StatusCode::kInvalidNamespace);
  EXPECT_EQ(identify(static_cast<Cns>(0x1F), 1), StatusCode::kInvalidField);
}

TEST(nvme_session, features_and_log_pages_are_answered) {
  Pair pair({}, {}, 64, 1);
  pair.settle();
  enable(pair);
  const Completion queues = run(pair, {.sqe = SetFeatures{.value = encode(QueueCounts{8, 2})}.to_sqe()});
  EXPECT_EQ(decode_queue_counts(static_cast<std::uint32_t>(queues.result)), (QueueCounts{4, 2}));
  EXPECT_TRUE(
      run(pair, {.sqe = SetFeatures{.feature = FeatureId::kKeepAliveTimer, .value = 9000}.to_sqe()}).status.ok());
  EXPECT_EQ(run(pair, {.sqe = GetFeatures{.feature = FeatureId::kKeepAliveTimer}.to_sqe()}).result, 9000u);
  EXPECT_EQ(run(pair, {.sqe = SetFeatures{.feature = static_cast<FeatureId>(0x77)}.to_sqe()}).status.code,
            StatusCode::kInvalidField);
  EXPECT_EQ(run(pair, {.sqe = SetFeatures{.save = true}.to_sqe()}).status.code, StatusCode::kFeatureNotSaveable);
  EXPECT_TRUE(run(pair, {.sqe = keep_alive()}).status.ok());
  std::vector<std::byte> page(600, std::byte{0xEE});
  const GetLogPage get{.page = LogPage::kSmart, .length_bytes = page.size()};
  EXPECT_TRUE(run(pair, {.sqe = get.to_sqe(), .read_into = page}).status.ok());
  EXPECT_EQ(page.back(), std::byte{0});  // behind the page's end
  EXPECT_EQ(run(pair, {.sqe = GetLogPage{.page = LogPage::kDiscovery, .length_bytes = 600}.to_sqe(), .read_into = page})
                .status.code,
            StatusCode::kInvalidLogPage);
  EXPECT_EQ(run(pair, {.sqe = GetLogPage{.page = LogPage::kSmart, .length_bytes = 600, .offset_bytes = 516}.to_sqe(),
                       .read_into = page})
                .status.code,
            StatusCode::kInvalidField);
  EXPECT_EQ(run(pair, {.sqe = GetLogPage{.page = LogPage::kSmart, .length_bytes = 512}.to_sqe(), .read_into = page})
                .status.code,
            StatusCode::kDataSglLengthInvalid);
}

TEST(nvme_session, events_wait_for_a_request_and_requests_for_an_event) {
  Pair pair({}, {.async_events = 2}, 64, 1);
  pair.settle();
  enable(pair);
  const AsyncEvent changed{.type = AsyncEvent::kNotice, .info = AsyncEvent::kNamespaceChanged, .log_page = 4};
  pair.controller.notify(changed);  // not asked for: lost
  run(pair, {.sqe = SetFeatures{.feature = FeatureId::kAsyncEventConfiguration,
                                .value = encode(AsyncEventConfig{.namespace_attribute = true})}
                        .to_sqe()});
  ASSERT_TRUE(pair.host.submit({.sqe = async_event_request(), .tag = 5}, 0));
  pair.settle();
  Completion completions[4];
  EXPECT_EQ(pair.host.take(completions), 0u);
  pair.controller.notify(changed);
  pair.controller.notify(changed);  // waits for another request, and once only
  pair.controller.notify(changed);
  pair.settle();
  ASSERT_EQ(pair.host.take(completions), 1u);
  EXPECT_EQ(decode_async_event(completions[0].result), changed);
  EXPECT_EQ(decode_async_event(run(pair, {.sqe = async_event_request()}).result), changed);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pair.host.submit({.sqe = async_event_request()}, 0));
  pair.settle();
  ASSERT_EQ(pair.host.take(completions), 1u);
  EXPECT_EQ(completions[0].status.code, StatusCode::kAsyncEventLimitExceeded);
}

TEST(nvme_session, aborting_ends_a_request_for_events_and_nothing_else) {
  Pair pair({}, {}, 64, 1);
  pair.record = true;
  pair.settle();
  enable(pair);
  pair.sent_by_host.clear();
  ASSERT_TRUE(pair.host.submit({.sqe = async_event_request(), .tag = 5}, 0));
  pair.settle();
  const std::uint16_t cid = decode_capsule(pair.sent_by_host.data()).cid;
  ASSERT_TRUE(pair.host.submit({.sqe = Abort{.sqid = 0, .cid = cid}.to_sqe(), .tag = 6}, 0));
  pair.settle();
  Completion completions[4];
  ASSERT_EQ(pair.host.take(completions), 2u);
  for (const Completion& completion : std::span(completions).first(2)) {
    EXPECT_EQ(completion.status.code, completion.tag == 5 ? StatusCode::kAbortRequested : StatusCode::kSuccess);
    EXPECT_EQ(completion.result, 0u);
  }
  EXPECT_EQ(run(pair, {.sqe = Abort{.sqid = 1, .cid = 3}.to_sqe()}).result, 1u);
}

Pair io_pair(ControllerOptions options = {}) { return Pair({.qid = 1, .cntlid = 7}, options, 1024, 3); }

TEST(nvme_session, io_that_the_namespace_does_not_allow_fails_alone) {
  Pair pair = io_pair();
  pair.settle();
  std::vector<std::byte> data(8 * kBlock), big(64 * kBlock);
  const auto code = [&](const HostCommand& command) { return run(pair, command).status.code; };
  EXPECT_EQ(code({.sqe = io(Opcode::kRead, 0, 8, 3), .read_into = data}), StatusCode::kInvalidNamespace);
  EXPECT_EQ(code({.sqe = io(Opcode::kRead, 1017, 8), .read_into = data}), StatusCode::kLbaOutOfRange);
  EXPECT_EQ(code({.sqe = io(Opcode::kRead, ~0ull, 8), .read_into = data}), StatusCode::kLbaOutOfRange);
  EXPECT_EQ(code({.sqe = io(Opcode::kRead, 0, 7), .read_into = data}), StatusCode::kDataSglLengthInvalid);
  EXPECT_EQ(code({.sqe = io(Opcode::kWrite, 0, 8, 2), .write_from = data}), StatusCode::kNamespaceWriteProtected);
  EXPECT_EQ(code({.sqe = io(Opcode::kWrite, 0, 64, 2), .write_from = big}), StatusCode::kNamespaceWriteProtected);
  EXPECT_EQ(code({.sqe = io(static_cast<Opcode>(0x15), 0, 8)}), StatusCode::kInvalidOpcode);
  EXPECT_EQ(code({.sqe = PropertyGet{}.to_sqe()}), StatusCode::kInvalidField);  // of the Admin Queue
  EXPECT_EQ(code({.sqe = io(Opcode::kRead, 1016, 8), .read_into = data}), StatusCode::kSuccess);
  EXPECT_EQ(code({.sqe = flush(1)}), StatusCode::kSuccess);
  EXPECT_EQ(code({.sqe = flush(kAllNamespaces)}), StatusCode::kSuccess);
  EXPECT_EQ(code({.sqe = Disconnect{}.to_sqe()}), StatusCode::kSuccess);
}

TEST(nvme_session, zeroes_and_ranges_reach_the_subsystem) {
  Pair pair = io_pair();
  pair.settle();
  std::ranges::fill(pair.subsystem.bytes, std::byte{1});
  EXPECT_TRUE(run(pair, {.sqe = io(Opcode::kWriteZeroes, 2, 3)}).status.ok());
  EXPECT_EQ(std::ranges::count(pair.subsystem.bytes, std::byte{0}), 3 * kBlock);
  std::vector<std::byte> ranges(2 * kDsmRangeBytes);
  EXPECT_TRUE(
      run(pair, {.sqe = DatasetManagement{.nsid = 1, .ranges = 2, .deallocate = true}.to_sqe(), .write_from = ranges})
          .status.ok());
  EXPECT_EQ(run(pair, {.sqe = DatasetManagement{.nsid = 1, .ranges = 3}.to_sqe(), .write_from = ranges}).status.code,
            StatusCode::kDataSglLengthInvalid);
}

TEST(nvme_session, depth_bounds_what_is_in_flight_and_finished) {
  Pair pair({.qid = 1, .cntlid = 7, .depth = 2}, {}, 64, 1);
  pair.settle();
  std::vector<std::byte> data(kBlock);
  const HostCommand read{.sqe = io(Opcode::kRead, 0, 1), .read_into = data};
  EXPECT_TRUE(pair.host.submit(read, 0) && pair.host.submit(read, 0));
  EXPECT_FALSE(pair.host.submit(read, 0));
  pair.settle();
  EXPECT_EQ(pair.host.in_flight(), 0u);
  EXPECT_FALSE(pair.host.submit(read, 0));  // two completions wait
  Completion completion[1];
  EXPECT_EQ(pair.host.take(completion), 1u);
  EXPECT_TRUE(pair.host.submit(read, 0));
}

TEST(nvme_session, many_capsules_are_one_piece_to_send) {
  Pair pair({.qid = 1, .cntlid = 7, .depth = 64}, {}, 64, 1);
  pair.settle();
  std::vector<std::byte> data(kBlock);
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(pair.host.submit({.sqe = io(Opcode::kRead, 0, 1), .read_into = data}, 0));
  ConstBytes pieces[8];
  ASSERT_LE(pair.host.gather(pieces), 2u);  // one, or two around the ring's end
  EXPECT_GT(pieces[0].size() + pieces[1].size(), 63 * kCapsuleCmdBytes);
}

TEST(nvme_session, large_read_goes_straight_to_its_place) {
  Pair pair({.qid = 1, .cntlid = 7}, {}, 1024, 1);
  pair.settle();
  pair.subsystem.bytes = patterned(1, pair.subsystem.bytes.size());
  std::vector<std::byte> data(256 * kBlock);
  ASSERT_TRUE(pair.host.submit({.sqe = io(Opcode::kRead, 0, 256), .read_into = data}, 0));
  const auto quiet = [](std::vector<std::byte>&) {};
  while (carry(pair.host, pair.controller, 1 << 20, 0, quiet) > 0) {
  }
  while (pair.executor.step() && pair.controller.in_flight() > 0) {
  }
  EXPECT_EQ(pair.host.want().size(), kDataPduBytes);  // no further than the header
  EXPECT_EQ(carry(pair.controller, pair.host, 1 << 20, 0, quiet), kDataPduBytes);
  const Want want = pair.host.want();
  EXPECT_EQ(want.direct.data(), data.data());
  EXPECT_EQ(want.direct.size(), data.size());
  while (carry(pair.controller, pair.host, 1 << 20, 0, quiet) > 0) {
  }
  EXPECT_TRUE(std::ranges::equal(data, std::span(pair.subsystem.bytes).first(data.size())));
}

TEST(nvme_session, large_write_goes_straight_to_its_buffer_and_the_stage_is_whole_again) {
  Pair pair({.qid = 1, .cntlid = 7}, {}, 1024, 1);
  pair.settle();
  const std::size_t stage = pair.controller.want().size();
  const std::vector<std::byte> data = patterned(1, 256 * kBlock);
  ASSERT_TRUE(pair.host.submit({.sqe = io(Opcode::kWrite, 0, 256), .write_from = data}, 0));
  const auto quiet = [](std::vector<std::byte>&) {};
  while (carry(pair.host, pair.controller, 1 << 20, 0, quiet) > 0) {
  }
  IoRequest request[2];
  ASSERT_EQ(pair.controller.take(request), 1u);
  std::vector<std::byte> buffer(request[0].length_bytes);
  pair.controller.provide(request[0].id, buffer);
  while (carry(pair.controller, pair.host, 1 << 20, 0, quiet) > 0) {
  }
  EXPECT_EQ(carry(pair.host, pair.controller, 1 << 20, 0, quiet), kDataPduBytes);
  EXPECT_EQ(pair.controller.want().direct.data(), buffer.data());
  while (carry(pair.host, pair.controller, 1 << 20, 0, quiet) > 0) {
  }
  EXPECT_EQ(pair.controller.want().size(), stage);
  ASSERT_EQ(pair.controller.take(request), 1u);
  EXPECT_FALSE(request[0].needs_buffer);
  EXPECT_EQ(request[0].data.data(), buffer.data());
  EXPECT_EQ(buffer, data);
}

TEST(nvme_session, damaged_read_is_a_failed_command_and_the_queue_lives) {
  Pair pair({.qid = 1, .cntlid = 7, .data_digest = true}, {}, 64, 1);
  pair.settle();
  std::vector<std::byte> data(8 * kBlock);
  ASSERT_TRUE(pair.host.submit({.sqe = io(Opcode::kRead, 0, 8), .read_into = data, .tag = 9}, 0));
  const auto quiet = [](std::vector<std::byte>&) {};
  while (carry(pair.host, pair.controller, 1 << 20, 0, quiet) > 0) {
  }
  while (pair.executor.step() && pair.controller.in_flight() > 0) {
  }
  carry(pair.controller, pair.host, 1 << 20, 0, [](std::vector<std::byte>& bytes) { bytes[100] ^= std::byte{4}; });
  pair.settle();
  Completion completions[2];
  ASSERT_EQ(pair.host.take(completions), 1u);
  EXPECT_EQ(completions[0].status.code, StatusCode::kTransientTransportError);
  EXPECT_FALSE(completions[0].from_controller);
  EXPECT_EQ(completions[0].tag, 9u);
  EXPECT_TRUE(run(pair, {.sqe = io(Opcode::kRead, 0, 8), .read_into = data}).status.ok());
}

TEST(nvme_session, damaged_write_is_failed_by_the_controller_and_not_written) {
  for (const std::uint32_t blocks : {1u, 64u}) {  // in the capsule; behind an R2T
    Pair pair({.qid = 1, .cntlid = 7, .data_digest = true}, {}, 64, 1);
    pair.settle();
    std::vector<std::byte> data(blocks * kBlock, std::byte{0x77});
    ASSERT_TRUE(pair.host.submit({.sqe = io(Opcode::kWrite, 0, blocks), .write_from = data}, 0));
    bool flipped = false;
    for (bool busy = true; busy;) {
      busy = carry(pair.host, pair.controller, 1 << 20, 0, [&](std::vector<std::byte>& bytes) {
               if (bytes.size() < 200) return;  // the capsule alone
               if (!std::exchange(flipped, true)) bytes[150] ^= std::byte{1};
             }) > 0;
      busy = pair.executor.step() || busy;
      busy = carry(pair.controller, pair.host, 1 << 20, 0, [](std::vector<std::byte>&) {}) > 0 || busy;
    }
    EXPECT_TRUE(flipped);
    Completion completions[2];
    ASSERT_EQ(pair.host.take(completions), 1u);
    EXPECT_EQ(completions[0].status.code, StatusCode::kTransientTransportError);
    EXPECT_TRUE(completions[0].from_controller);
    EXPECT_EQ(std::ranges::count(pair.subsystem.bytes, std::byte{0}), 64 * kBlock);
  }
}

TEST(nvme_session, silent_controller_fails_the_handshake_in_time) {
  HostSession host(Pair::named({.connect_timeout_ns = 100 * kMs}));
  host.start(1000);
  EXPECT_EQ(host.next_tick_ns(), 1000 + 100 * kMs);
  host.tick(100 * kMs);
  EXPECT_EQ(host.state(), SessionState::kHandshake);
  host.tick(1000 + 100 * kMs);
  ASSERT_EQ(host.state(), SessionState::kFailed);
  EXPECT_EQ(host.error().code, Code::kTimedOut);
  EXPECT_EQ(host.want().size(), 0u);
}

TEST(nvme_session, silent_host_fails_the_handshake_in_time) {
  test::MemorySubsystem subsystem(8);
  ControllerSession controller({.connect_timeout_ns = 100 * kMs}, subsystem, 0);
  controller.tick(99 * kMs);
  EXPECT_EQ(controller.state(), ControllerSession::State::kAwaitIcReq);
  controller.tick(controller.next_tick_ns());
  EXPECT_EQ(controller.error().code, Code::kTimedOut);
}

TEST(nvme_session, late_command_fails_the_session_and_every_command_once) {
  Pair pair({.qid = 1, .cntlid = 7}, {}, 64, 1);
  pair.settle();
  std::vector<std::byte> data(kBlock);
  ASSERT_TRUE(
      pair.host.submit({.sqe = io(Opcode::kRead, 0, 1), .read_into = data, .tag = 1, .timeout_ns = 50 * kMs}, 0));
  ASSERT_TRUE(pair.host.submit({.sqe = io(Opcode::kRead, 0, 1), .read_into = data, .tag = 2}, 0));
  EXPECT_EQ(pair.host.next_tick_ns(), 50 * kMs);
  pair.host.tick(50 * kMs);
  EXPECT_EQ(pair.host.error().code, Code::kTimedOut);
  Completion completions[4];
  ASSERT_EQ(pair.host.take(completions), 2u);
  EXPECT_EQ(completions[0].tag + completions[1].tag, 3u);
  EXPECT_EQ(completions[0].status.code, StatusCode::kHostPathingError);
  EXPECT_FALSE(pair.host.submit({.sqe = io(Opcode::kRead, 0, 1), .read_into = data}, 0));
}

TEST(nvme_session, lost_connection_fails_every_command_once) {
  Pair pair({.qid = 1, .cntlid = 7}, {}, 64, 1);
  pair.settle();
  std::vector<std::byte> data(32 * kBlock);
  for (std::uint64_t tag = 0; tag < 8; ++tag)
    ASSERT_TRUE(pair.host.submit({.sqe = io(Opcode::kWrite, 0, 32), .write_from = data, .tag = tag}, 0));
  for (int i = 0; i < 5; ++i) pair.step();
  pair.host.disconnected("reset by peer");
  pair.controller.disconnected("reset by peer");
  pair.executor.step();
  EXPECT_EQ(pair.controller.in_flight(), 0u);
  Completion completions[16];
  EXPECT_EQ(pair.host.take(completions), 8u);
  EXPECT_EQ(pair.host.error().code, Code::kDeviceLost);
}

TEST(nvme_session, keep_alives_are_sent_and_their_silence_is_noticed) {
  Pair pair({.keep_alive_ms = 1000}, {}, 64, 1);
  pair.settle();
  enable(pair);
  for (; pair.now_ns < 10'000 * kMs; pair.now_ns += 100 * kMs) {  // both sides stay content for ten seconds
    pair.host.tick(pair.now_ns);
    pair.controller.tick(pair.now_ns);
    pair.settle();
  }
  EXPECT_EQ(pair.host.state(), SessionState::kReady);
  EXPECT_EQ(pair.controller.state(), ControllerSession::State::kReady);
  const std::uint64_t frozen_ns = pair.now_ns;
  while (pair.host.state() == SessionState::kReady) {
    pair.now_ns = pair.host.next_tick_ns();
    ASSERT_LE(pair.now_ns, frozen_ns + 2000 * kMs);
    pair.host.tick(pair.now_ns);
  }
  EXPECT_EQ(pair.host.error().code, Code::kTimedOut);
  while (pair.controller.state() == ControllerSession::State::kReady) {
    ASSERT_LE(pair.controller.next_tick_ns(), frozen_ns + 3000 * kMs);
    pair.controller.tick(pair.controller.next_tick_ns());
  }
  EXPECT_EQ(pair.controller.error().code, Code::kTimedOut);
}

// One read or write in each of several regions at a time; every read must give what was last written to its region.
class Workload {
 public:
  static constexpr std::uint32_t kRegionBlocks = 96;
  Workload(Pair& pair, std::uint64_t seed, std::size_t regions) : pair_(pair), prng_(seed), regions_(regions) {}

  void run(std::size_t operations) {
    std::size_t started = 0, finished = 0, idle = 0;
    while (finished < operations) {
      while (started < operations && start_one()) ++started;
      idle = pair_.step() ? 0 : idle + 1;
      RC_ASSERT(idle < 100u);
      Completion completions[4];
      const std::size_t count = pair_.host.take(completions);
      for (std::size_t i = 0; i < count; ++i) finish(completions[i]);
      finished += count;
      RC_ASSERT(pair_.host.state() == SessionState::kReady);
    }
    RC_ASSERT(pair_.host.in_flight() == 0u);
  }

 private:
  struct Region {
    bool busy = false, write = false;
    std::uint32_t first = 0;
    std::vector<std::byte> data, model = std::vector<std::byte>(kRegionBlocks * kBlock);
  };

  bool start_one() {
    const std::size_t index = prng_.below(regions_.size());
    Region& region = regions_[index];
    if (region.busy) return false;
    region.first = static_cast<std::uint32_t>(prng_.below(kRegionBlocks));
    const auto blocks = static_cast<std::uint32_t>(1 + prng_.below(kRegionBlocks - region.first));
    region.write = prng_.below(2) == 0;
    region.data =
        region.write ? patterned(++stream_, blocks * kBlock) : std::vector<std::byte>(blocks * kBlock, std::byte{0xEE});
    HostCommand command{
        .sqe = io(region.write ? Opcode::kWrite : Opcode::kRead, index * kRegionBlocks + region.first, blocks),
        .tag = index};
    if (region.write) {
      command.write_from = region.data;
      std::ranges::copy(region.data, region.model.begin() + region.first * kBlock);
    } else {
      command.read_into = region.data;
    }
    region.busy = pair_.host.submit(command, 0);
    RC_ASSERT(region.busy || pair_.host.in_flight() > 0u);
    return region.busy;
  }

  void finish(const Completion& completion) {
    Region& region = regions_[completion.tag];
    RC_ASSERT(region.busy);
    RC_ASSERT(completion.status.ok());
    region.busy = false;
    if (!region.write)
      RC_ASSERT(
          std::ranges::equal(region.data, std::span(region.model).subspan(region.first * kBlock, region.data.size())));
  }

  Pair& pair_;
  base::Prng prng_;
  std::vector<Region> regions_;
  std::uint64_t stream_ = 0;
};

TEST(nvme_session, any_fragmentation_carries_all_data_to_their_places) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    base::Prng prng(seed);
    const auto regions = static_cast<std::uint32_t>(1 + prng.below(12));
    HostOptions host{.qid = 1, .cntlid = 7, .depth = regions};
    host.header_digest = prng.below(2) == 0;
    host.data_digest = prng.below(2) == 0;
    host.disable_sq_flow_control = prng.below(2) == 0;
    host.alignment_bytes = static_cast<std::uint32_t>(4 * (1 + prng.below(32)));
    host.in_capsule_bytes = static_cast<std::uint32_t>(prng.below(3) * 4096);
    host.stage_bytes = prng.below(2) == 0 ? 1024 : 65'536;
    host.large_read_bytes = prng.below(2) == 0 ? 0 : 16'384;
    ControllerOptions controller;
    controller.alignment_bytes = static_cast<std::uint32_t>(4 * (1 + prng.below(32)));
    controller.max_h2c_data_bytes = static_cast<std::uint32_t>(4096 * (1 + prng.below(8)));
    controller.max_queue_entries = std::max(regions + 1, 2u);
    controller.stage_bytes = prng.below(2) == 0 ? 1024 : 65'536;
    Pair pair(host, controller, regions * Workload::kRegionBlocks, seed);
    pair.most_bytes = prng.below(2) == 0 ? 300 : 60'000;
    pair.settle();
    RC_ASSERT(pair.host.state() == SessionState::kReady);
    Workload(pair, seed + 1, regions).run(60);
  }));
}

}  // namespace
}  // namespace dlfs::nvme
