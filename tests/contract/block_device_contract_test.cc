// What every BlockDevice keeps, whatever its kind: block/device.h in the form of tests.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "base/mix.h"
#include "block/device.h"
#include "block/file_device.h"
#include "target/server.h"

namespace dlfs::block {
namespace {

constexpr std::uint64_t kDeviceBytes = 8u << 20;

struct Kind {
  const char* name;
  bool file = true;
  bool direct = false;
  EngineChoice engine = EngineChoice::kUring;
  const char* remote = nullptr;  // options of an nvme-tcp: URL: the memory device behind a target in this process
};

std::string unique_name() {
  static std::atomic<int> serial{0};
  return "contract-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
}

// Names one device of a kind, with kDeviceBytes of zeros, and removes it.
class Place {
 public:
  explicit Place(const Kind& kind) : kind_(kind), name_(unique_name()) {
    if (!kind_.file) {
      keeper_ = open_device("mem:" + name_ + "?size=8MiB", OpenOptions{.write = true}).value();
      if (kind_.remote != nullptr) serve();
      return;
    }
    path_ = std::filesystem::temp_directory_path() / name_;
    const int fd = ::open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(ftruncate(fd, kDeviceBytes), 0);
    ::close(fd);
  }
  ~Place() {
    if (kind_.file) std::filesystem::remove(path_);
  }

  std::unique_ptr<BlockDevice> open(OpenOptions options) const {
    options.direct = kind_.direct;
    auto device = kind_.file     ? open_file_device(path_, options, kind_.engine)
                  : kind_.remote ? open_device(server_->urls()[0] + kind_.remote, options)
                                 : open_device("mem:" + name_ + "?size=8MiB", options);
    EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().message);
    return device.ok() ? std::move(device).value() : nullptr;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  void serve() {
    target::ServerOptions options{.listen = {{"127.0.0.1", 0}}, .namespaces = {{.url = "mem:" + name_}}};
    server_ = target::Server::create(std::move(options)).value();
    ASSERT_TRUE(server_->start().ok());
  }

  Kind kind_;
  std::string name_;
  std::filesystem::path path_;
  std::unique_ptr<BlockDevice> keeper_;  // a memory device lives while a handle is open
  std::unique_ptr<target::Server> server_;
};

// Byte i of the device: a misplaced byte names where it came from.
std::byte byte_at(std::uint64_t offset, std::uint64_t salt) {
  return static_cast<std::byte>(base::mix64(offset / 8 ^ salt) >> (offset % 8 * 8));
}

void fill(std::span<std::byte> bytes, std::uint64_t offset, std::uint64_t salt) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(offset + i, salt);
}

bool holds(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t salt) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != byte_at(offset + i, salt)) return false;
  }
  return true;
}

bool readable(int fd, int timeout_ms) {
  pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  int count = 0;
  do {
    count = ::poll(&wait, 1, timeout_ms);
  } while (count < 0 && errno == EINTR && std::chrono::steady_clock::now() < until);
  return count == 1;
}

// Polls until all is done, sleeping on the descriptor; fails after 20 seconds.
std::vector<Completion> finish(BlockDevice& device) {
  std::vector<Completion> all;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (device.in_flight() > 0) {
    Completion some[7];
    const std::size_t count = device.poll(some);
    all.insert(all.end(), some, some + count);
    if (count == 0) readable(device.wait_descriptor(), 100);
    if (std::chrono::steady_clock::now() > until) {
      ADD_FAILURE() << device.in_flight() << " requests never finished";
      std::abort();  // their memory is about to go away
    }
  }
  return all;
}

Completion run_one(BlockDevice& device, const Request& request) {
  EXPECT_EQ(device.submit(std::span(&request, 1)), 1u);
  const auto done = finish(device);
  EXPECT_EQ(done.size(), 1u);
  EXPECT_EQ(done.at(0).user_data, request.user_data);
  return done.at(0);
}

class BlockDeviceContract : public ::testing::TestWithParam<Kind> {
 protected:
  BlockDeviceContract() : place_(GetParam()), arena_(base::Arena::create(24u << 20, false).value()) {}
  void SetUp() override {
    if (!GetParam().file || GetParam().engine != EngineChoice::kUring) return;
    auto probe = open_file_device(place_.path(), {}, EngineChoice::kUring);
    if (!probe.ok()) GTEST_SKIP() << probe.error().message;
  }
  std::byte* memory(std::size_t offset = 0) { return arena_.bytes().data() + offset; }
  std::span<std::byte> memory(std::size_t offset, std::size_t size) { return arena_.bytes().subspan(offset, size); }

  Place place_;
  base::Arena arena_;
};

TEST_P(BlockDeviceContract, answers_its_geometry) {
  auto device = place_.open({.write = true, .queue_depth = 16});
  const Geometry& g = device->geometry();
  EXPECT_EQ(g.capacity_bytes, kDeviceBytes);
  EXPECT_TRUE(std::has_single_bit(g.block_bytes));
  EXPECT_LE(g.block_bytes, 4096u);
  EXPECT_TRUE(std::has_single_bit(g.memory_alignment_bytes));
  EXPECT_GE(g.preferred_transfer_bytes, g.block_bytes);
  EXPECT_GE(g.max_transfer_bytes, g.preferred_transfer_bytes);
  EXPECT_EQ(g.max_in_flight, 16u);
  EXPECT_FALSE(g.read_only);
  EXPECT_EQ(g.growable, GetParam().file);
  EXPECT_EQ(device->in_flight(), 0u);
  if (!GetParam().direct) {  // where the temporary folder refuses O_DIRECT there is a note
    EXPECT_EQ(device->notes(), "");
  }
}

TEST_P(BlockDeviceContract, its_url_reaches_the_same_bytes) {
  auto device = place_.open({.write = true});
  fill(memory(0, 4096), 0, 1);
  ASSERT_TRUE(write_all(*device, 8192, memory(0, 4096)).ok());
  ASSERT_TRUE(flush(*device).ok());
  auto again = open_device(device->url());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ((*again)->url(), device->url());
  ASSERT_TRUE(read_all(**again, 8192, memory(4096, 4096)).ok());
  EXPECT_TRUE(holds(memory(4096, 4096), 0, 1));
}

TEST_P(BlockDeviceContract, random_writes_with_many_in_flight_read_back) {
  auto device = place_.open({.write = true, .queue_depth = 32});
  constexpr std::uint32_t kUnit = 4096;
  constexpr std::uint64_t kUnits = kDeviceBytes / kUnit;
  fill(memory(0, kDeviceBytes), 0, 7);
  // A walk through all units in a scattered order; the stride is odd, so every unit comes once.
  const auto unit = [](std::uint64_t i) { return i * 769 % kUnits; };
  for (const Op op : {Op::kWrite, Op::kRead}) {
    if (op == Op::kRead) std::fill_n(memory(), kDeviceBytes, std::byte{0});
    std::set<std::uint64_t> seen;
    std::size_t deepest = 0;
    for (std::uint64_t next = 0; next < kUnits || device->in_flight() > 0;) {
      std::vector<Request> batch;
      for (std::uint64_t i = next; i < std::min(next + 12, kUnits); ++i) {
        batch.push_back({op, memory(unit(i) * kUnit), kUnit, unit(i) * kUnit, unit(i)});
      }
      next += device->submit(batch);
      deepest = std::max(deepest, device->in_flight());
      Completion done[5];
      const std::size_t count = device->poll(done);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(done[i].errno_value, 0);
        ASSERT_EQ(done[i].length_bytes, kUnit);
        ASSERT_TRUE(seen.insert(done[i].user_data).second) << "completed twice";
        if (op == Op::kRead) {
          ASSERT_TRUE(holds(memory(done[i].user_data * kUnit, kUnit), done[i].user_data * kUnit, 7));
        }
      }
      if (count == 0 && device->in_flight() > 0) readable(device->wait_descriptor(), 1000);
    }
    EXPECT_EQ(seen.size(), kUnits);
    EXPECT_GT(deepest, 8u);
    ASSERT_TRUE(flush(*device).ok());
  }
}

TEST_P(BlockDeviceContract, a_full_queue_takes_a_prefix) {
  auto device = place_.open({.write = true, .queue_depth = 8});
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 20; ++i) requests.push_back({Op::kRead, memory(i * 4096), 4096, i * 4096, i});
  EXPECT_EQ(device->submit(requests), 8u);
  EXPECT_EQ(device->in_flight(), 8u);
  EXPECT_EQ(device->submit(requests), 0u);
  std::set<std::uint64_t> ids;
  for (const Completion& c : finish(*device)) ids.insert(c.user_data);
  EXPECT_EQ(ids, (std::set<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(device->submit(std::span(requests).subspan(8)), 8u);
  finish(*device);
}

TEST_P(BlockDeviceContract, misaligned_requests_complete_with_einval) {
  auto device = place_.open({.write = true});
  const Geometry& g = device->geometry();
  for (const Op op : {Op::kRead, Op::kWrite}) {
    EXPECT_EQ(run_one(*device, {op, memory(), g.block_bytes, 1, 3}).errno_value, EINVAL);
    EXPECT_EQ(run_one(*device, {op, memory(), g.block_bytes + 1, 0, 4}).errno_value, EINVAL);
    EXPECT_EQ(run_one(*device, {op, nullptr, g.block_bytes, 0, 5}).errno_value, EINVAL);
    if (g.memory_alignment_bytes > 1) {
      EXPECT_EQ(run_one(*device, {op, memory(1), g.block_bytes, 0, 6}).errno_value, EINVAL);
    }
  }
  const auto error = read_all(*device, 1, memory(0, g.block_bytes));
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().code, Code::kInvalidArgument);
  EXPECT_NE(error.error().message.find("multiples of " + std::to_string(g.block_bytes)), std::string::npos);
}

TEST_P(BlockDeviceContract, reads_past_the_end_fail) {
  auto device = place_.open({});
  const std::uint32_t block = device->geometry().block_bytes;
  EXPECT_EQ(run_one(*device, {Op::kRead, memory(), block, kDeviceBytes - block, 1}).errno_value, 0);
  for (const std::uint64_t offset : {kDeviceBytes, kDeviceBytes - block, kDeviceBytes + (1u << 30),
                                     0 - std::uint64_t{block}, (std::uint64_t{1} << 63) - block}) {
    const std::uint32_t length = offset == kDeviceBytes ? block : 2 * block;
    EXPECT_EQ(run_one(*device, {Op::kRead, memory(), length, offset, 2}).errno_value, EIO) << offset;
  }
  const auto error = read_all(*device, kDeviceBytes, memory(0, 4096));
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().code, Code::kIo);
  EXPECT_NE(error.error().message.find("ends at 8388608"), std::string::npos) << error.error().message;
}

TEST_P(BlockDeviceContract, writes_through_a_reading_handle_fail) {
  auto device = place_.open({});
  EXPECT_TRUE(device->geometry().read_only);
  EXPECT_EQ(run_one(*device, {Op::kWrite, memory(), 4096, 0, 1}).errno_value, EROFS);
  const auto error = write_all(*device, 0, memory(0, 4096));
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().code, Code::kReadOnly);
}

TEST_P(BlockDeviceContract, writes_past_the_end_extend_a_file_and_fail_elsewhere) {
  auto device = place_.open({.write = true});
  fill(memory(0, 8192), 0, 3);
  const auto result = write_all(*device, kDeviceBytes + 4096, memory(0, 8192));
  if (!device->geometry().growable) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kNoSpace);
    return;
  }
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(device->geometry().capacity_bytes, kDeviceBytes + 12288);
  EXPECT_EQ(std::filesystem::file_size(place_.path()), kDeviceBytes + 12288);
  ASSERT_TRUE(read_all(*device, kDeviceBytes, memory(16384, 12288)).ok());
  EXPECT_TRUE(holds(memory(16384 + 4096, 8192), 0, 3));
  EXPECT_TRUE(std::all_of(memory(16384), memory(16384 + 4096), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_P(BlockDeviceContract, a_reader_sees_what_another_handle_appended) {
  if (!GetParam().file) GTEST_SKIP() << "only files grow";
  auto reader = place_.open({});
  auto writer = place_.open({.write = true});
  fill(memory(0, 4096), 0, 5);
  ASSERT_TRUE(write_all(*writer, kDeviceBytes, memory(0, 4096)).ok());
  ASSERT_TRUE(read_all(*reader, kDeviceBytes, memory(4096, 4096)).ok());
  EXPECT_TRUE(holds(memory(4096, 4096), 0, 5));
}

TEST_P(BlockDeviceContract, the_odd_tail_of_a_file_reads_with_zeros_behind_it) {
  if (!GetParam().file) GTEST_SKIP() << "only files have odd lengths";
  const std::uint64_t size = (1u << 20) + 1234;
  auto writer = place_.open({.write = true});
  fill(memory(0, 2u << 20), 0, 9);
  ASSERT_TRUE(write_all(*writer, 0, memory(0, 2u << 20)).ok());
  writer.reset();
  ASSERT_EQ(truncate(place_.path().c_str(), static_cast<off_t>(size)), 0);

  auto device = place_.open({});
  EXPECT_EQ(device->geometry().capacity_bytes, size);
  const std::uint64_t block = device->geometry().block_bytes;
  const std::uint64_t rounded = (size + block - 1) / block * block;
  std::fill_n(memory(4u << 20), rounded, std::byte{0xEE});
  ASSERT_TRUE(read_all(*device, 0, memory(4u << 20, rounded)).ok());
  EXPECT_TRUE(holds(memory(4u << 20, size), 0, 9));
  const auto tail = memory((4u << 20) + size, rounded - size);
  EXPECT_TRUE(std::all_of(tail.begin(), tail.end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(run_one(*device, {Op::kRead, memory(), static_cast<std::uint32_t>(block), rounded, 1}).errno_value, EIO);
}

TEST_P(BlockDeviceContract, a_file_that_shrank_is_an_error_not_a_short_success) {
  if (!GetParam().file) GTEST_SKIP() << "only files shrink";
  auto device = place_.open({});
  ASSERT_EQ(truncate(place_.path().c_str(), 1u << 20), 0);
  EXPECT_EQ(run_one(*device, {Op::kRead, memory(), 8192, (1u << 20) - 4096, 1}).errno_value, EIO);
  EXPECT_EQ(run_one(*device, {Op::kRead, memory(), 4096, 2u << 20, 1}).errno_value, EIO);
}

TEST_P(BlockDeviceContract, transfers_above_the_maximum_are_split) {
  auto device = place_.open({.write = true});
  ASSERT_LT(device->geometry().max_transfer_bytes, kDeviceBytes);
  fill(memory(0, kDeviceBytes), 0, 11);
  const auto length = static_cast<std::uint32_t>(kDeviceBytes);
  Completion done = run_one(*device, {Op::kWrite, memory(), length, 0, 1});
  EXPECT_EQ(done.errno_value, 0);
  EXPECT_EQ(done.length_bytes, length);
  done = run_one(*device, {Op::kRead, memory(12u << 20), length, 0, 2});
  EXPECT_EQ(done.errno_value, 0);
  EXPECT_EQ(done.length_bytes, length);
  EXPECT_TRUE(holds(memory(12u << 20, kDeviceBytes), 0, 11));
}

TEST_P(BlockDeviceContract, empty_transfers_and_flushes_complete) {
  auto device = place_.open({.write = true});
  EXPECT_EQ(run_one(*device, {Op::kRead, nullptr, 0, 0, 1}).errno_value, 0);
  EXPECT_EQ(run_one(*device, {Op::kFlush, nullptr, 0, 0, 2}).errno_value, 0);
  EXPECT_TRUE(read_all(*device, 0, {}).ok());
  Completion none;
  EXPECT_EQ(device->poll(std::span(&none, 1)), 0u);
  EXPECT_EQ(device->submit({}), 0u);
}

TEST_P(BlockDeviceContract, the_descriptor_tells_of_completions_and_goes_quiet) {
  auto device = place_.open({.write = true});
  const int fd = device->wait_descriptor();
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(readable(fd, 0));
    const Request requests[] = {{Op::kRead, memory(), 4096, 0, 1},
                                {Op::kRead, memory(4096), 4096, 4096, 2},
                                {Op::kRead, memory(8192), 4096, 1, 3}};  // one refused at once
    ASSERT_EQ(device->submit(requests), 3u);
    std::size_t got = 0;
    while (got < 3) {
      ASSERT_TRUE(readable(fd, 10'000));
      Completion one;
      got += device->poll(std::span(&one, 1));
    }
    EXPECT_FALSE(readable(fd, 20));
  }
}

TEST_P(BlockDeviceContract, destruction_waits_for_what_is_in_flight) {
  fill(memory(0, kDeviceBytes), 0, 13);
  {
    auto device = place_.open({.write = true, .queue_depth = 64});
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 64; ++i) requests.push_back({Op::kWrite, memory(i << 17), 1u << 17, i << 17, i});
    ASSERT_EQ(device->submit(requests), 64u);
  }
  std::fill_n(memory(), kDeviceBytes, std::byte{0});  // nobody reads this memory any more
  auto device = place_.open({});
  ASSERT_TRUE(read_all(*device, 0, memory(12u << 20, kDeviceBytes)).ok());
  EXPECT_TRUE(holds(memory(12u << 20, kDeviceBytes), 0, 13));
}

TEST_P(BlockDeviceContract, registered_memory_reads_and_writes_the_same) {
  auto device = place_.open({.write = true});
  const auto round_trips = [&](std::uint64_t salt) {
    // Inside the first region, inside the second, in neither, across the first one's end.
    for (const std::size_t at : {0u, 2u << 20, 4u << 20, (1u << 20) - 4096}) {
      fill(memory(at, 8192), at, salt);
      ASSERT_TRUE(write_all(*device, at, memory(at, 8192)).ok());
      std::fill_n(memory(at), 8192, std::byte{0});
      ASSERT_TRUE(read_all(*device, at, memory(at, 8192)).ok());
      EXPECT_TRUE(holds(memory(at, 8192), at, salt));
    }
  };
  device->register_memory(memory(0, 1u << 20));
  device->register_memory(memory(2u << 20, 1u << 20));
  round_trips(17);
  device->register_memory({});
  round_trips(18);
}

TEST_P(BlockDeviceContract, memory_that_was_forgotten_may_be_mapped_anew) {
  auto device = place_.open({.write = true});
  auto old_memory = base::Arena::create(1u << 20, false).value();
  std::byte* const address = old_memory.bytes().data();
  device->register_memory(old_memory.bytes());
  ASSERT_TRUE(read_all(*device, 0, old_memory.bytes()).ok());
  device->register_memory({});
  // Other pages at the same address, as an allocator may do it.
  ASSERT_EQ(mmap(address, 1u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), address);
  fill(old_memory.bytes(), 0, 23);
  ASSERT_TRUE(write_all(*device, 0, old_memory.bytes()).ok());
  ASSERT_TRUE(read_all(*device, 0, memory(0, 1u << 20)).ok());
  EXPECT_TRUE(holds(memory(0, 1u << 20), 0, 23));
}

TEST_P(BlockDeviceContract, handles_on_different_threads_do_not_disturb_each_other) {
  fill(memory(0, kDeviceBytes), 0, 19);
  ASSERT_TRUE(write_all(*place_.open({.write = true}), 0, memory(0, kDeviceBytes)).ok());
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      auto device = place_.open({});
      auto mine = base::Arena::create(1u << 20, false).value();
      for (std::uint64_t i = 0; i < 8; ++i) {
        const std::uint64_t at = (i + static_cast<std::uint64_t>(t)) % 8 << 20;
        if (read_all(*device, at, mine.bytes()).ok() && holds(mine.bytes(), at, 19)) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 24);
}

TEST_P(BlockDeviceContract, conveniences_refuse_a_device_with_requests_in_flight) {
  auto device = place_.open({});
  const Request request{Op::kRead, memory(), 4096, 0, 1};
  ASSERT_EQ(device->submit(std::span(&request, 1)), 1u);
  const auto result = read_all(*device, 0, memory(4096, 4096));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kBusy);
  EXPECT_EQ(finish(*device).size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BlockDeviceContract,
    ::testing::Values(Kind{.name = "file_uring_direct", .direct = true}, Kind{.name = "file_uring_buffered"},
                      Kind{.name = "file_threads_direct", .direct = true, .engine = EngineChoice::kThreads},
                      Kind{.name = "file_threads_buffered", .engine = EngineChoice::kThreads},
                      Kind{.name = "memory", .file = false}, Kind{.name = "nvme_tcp", .file = false, .remote = ""},
                      Kind{.name = "nvme_tcp_digests", .file = false, .remote = "&header_digest=on&data_digest=on"},
                      Kind{.name = "nvme_tcp_queues", .file = false, .remote = "&queues=3"}),
    [](const ::testing::TestParamInfo<Kind>& kind) { return kind.param.name; });

}  // namespace
}  // namespace dlfs::block
