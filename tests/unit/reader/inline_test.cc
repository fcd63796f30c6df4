// A reader without a thread, on a device that brings its own clock: the same batches, deadlines in that clock's time,
// and no moment of real waiting.
#include <algorithm>
#include <deque>

#include "support.h"

namespace dlfs::reader::test {
namespace {

using order::Mode;
using namespace std::chrono_literals;
constexpr Mode kModes[] = {Mode::kSequential, Mode::kFull, Mode::kChunk};

struct Time {
  std::chrono::steady_clock::time_point now{1s};
  std::chrono::nanoseconds latency = 100us;
  bool silent = false;  // requests are taken and never answered
};

// Requests take `latency`; only waiting moves the clock.
class TimedDevice final : public block::BlockDevice {
 public:
  TimedDevice(std::unique_ptr<block::BlockDevice> inner, std::shared_ptr<Time> time)
      : inner_(std::move(inner)), time_(std::move(time)) {}
  const block::Geometry& geometry() const noexcept override { return inner_->geometry(); }
  const std::string& url() const noexcept override { return inner_->url(); }
  const std::string& notes() const noexcept override { return inner_->notes(); }
  const char* engine() const noexcept override { return "timed"; }
  int wait_descriptor() const noexcept override { return -1; }
  std::size_t in_flight() const noexcept override { return held_.size(); }
  void register_memory(std::span<std::byte>) noexcept override {}
  std::chrono::steady_clock::time_point now() const noexcept override { return time_->now; }

  std::size_t submit(std::span<const block::Request> requests) noexcept override {
    for (const block::Request& request : requests) held_.push_back({request, time_->now + time_->latency});
    return requests.size();
  }

  std::size_t poll(std::span<block::Completion> completions) noexcept override {
    std::size_t count = 0;
    while (count < completions.size() && !held_.empty() && !time_->silent && held_.front().due <= time_->now) {
      EXPECT_EQ(inner_->submit({&held_.front().request, 1}), 1u);
      while (inner_->poll(completions.subspan(count, 1)) == 0) inner_->wait(1s);
      held_.pop_front();
      ++count;
    }
    return count;
  }

  void wait(std::chrono::nanoseconds longest, int) noexcept override {
    EXPECT_LT(longest, 24h) << "a sleep without an end";
    auto until = time_->now + longest;
    if (!time_->silent && !held_.empty()) until = std::min(until, std::max(time_->now, held_.front().due));
    time_->now = until;
  }

 private:
  struct Held {
    block::Request request;
    std::chrono::steady_clock::time_point due;
  };
  std::unique_ptr<block::BlockDevice> inner_;
  std::shared_ptr<Time> time_;
  std::deque<Held> held_;
};

class InlineTest : public testing::Test {
 protected:
  void SetUp() override {
    lengths_ = random_lengths(2000, 3000, 3);
    lengths_[77] = 300'000;
    pack(directory_ / "a.dlfs", lengths_);
    volume::MountOptions options;
    options.timeout = 5s;
    options.open_device = [time = time_](
                              std::string_view url,
                              const block::OpenOptions& open) -> Result<std::unique_ptr<block::BlockDevice>> {
      auto device = block::open_device(url, open);
      if (!device.ok()) return std::move(device).error();
      return std::unique_ptr<block::BlockDevice>(std::make_unique<TimedDevice>(std::move(*device), time));
    };
    volume_ = mount(directory_ / "a.dlfs", options);
    ASSERT_NE(volume_, nullptr);
  }

  static Options options(Mode mode) {
    Options o;
    o.order.mode = mode;
    o.order.seed = 9;
    o.order.batch = 48;
    o.order.lanes = 12;
    o.order.window = 2;
    o.threaded = false;
    return o;
  }

  TemporaryDirectory directory_;
  std::vector<std::uint64_t> lengths_;
  std::shared_ptr<Time> time_ = std::make_shared<Time>();
  std::shared_ptr<const volume::Volume> volume_;
};

TEST_F(InlineTest, delivers_the_order_and_the_bytes) {
  for (const Mode mode : kModes) {
    SCOPED_TRACE(static_cast<int>(mode));
    Options o = options(mode);
    o.epochs = 2;
    const Statistics s = expect_run(volume_, o, lengths_);
    EXPECT_EQ(s.samples, 2 * lengths_.size());
    EXPECT_EQ(s.poller_cpu_s, 0);
  }
}

TEST_F(InlineTest, waits_in_the_time_of_the_device) {
  const auto begin = time_->now;
  time_->latency = 1s;
  auto reader = Reader::open(volume_, options(Mode::kFull));
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  auto batch = (*reader)->next(kLong);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  expect_contents(**batch, lengths_);
  EXPECT_GE(time_->now - begin, 1s);
}

TEST_F(InlineTest, next_returns_at_its_timeout_and_can_be_called_again) {
  auto reader = Reader::open(volume_, options(Mode::kFull));
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  time_->silent = true;
  const auto begin = time_->now;
  for (int i = 1; i <= 3; ++i) {
    auto batch = (*reader)->next(200ms);
    ASSERT_FALSE(batch.ok());
    EXPECT_EQ(batch.error().code, Code::kTimedOut);
    EXPECT_EQ(time_->now - begin, i * 200ms);
  }
  time_->silent = false;
  auto batch = (*reader)->next(kLong);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  expect_contents(**batch, lengths_);
}

TEST_F(InlineTest, a_device_that_falls_silent_is_an_error_after_its_timeout) {
  auto reader = Reader::open(volume_, options(Mode::kFull));
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  time_->silent = true;
  const auto begin = time_->now;
  auto batch = (*reader)->next(kLong);
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.error().code, Code::kTimedOut);
  EXPECT_NE(batch.error().message.find("did not answer within 5000 ms"), std::string::npos) << batch.error().message;
  EXPECT_EQ(time_->now - begin, 5s);
  reader->reset();  // gives the device another five seconds, then leaves it the memory
  EXPECT_EQ(time_->now - begin, 10s);
}

TEST_F(InlineTest, time_in_which_the_consumer_was_away_is_not_counted_against_the_device) {
  auto reader = Reader::open(volume_, options(Mode::kFull));
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  time_->latency = 62s;
  ASSERT_EQ((*reader)->next(100ms).error().code, Code::kTimedOut);
  time_->now += 60s;  // requests are in flight, and nobody looks
  time_->latency = 100us;
  auto batch = (*reader)->next(kLong);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  expect_contents(**batch, lengths_);
}

TEST_F(InlineTest, held_batches_that_leave_no_memory_are_an_error_at_once) {
  Options o = options(Mode::kFull);
  o.cache_bytes = 1u << 20;
  auto reader = Reader::open(volume_, o);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  std::vector<std::unique_ptr<Batch>> held;
  bool starved = false;
  while (!starved) {
    auto batch = (*reader)->next(kLong);
    starved = !batch.ok();
    if (starved) {
      EXPECT_EQ(batch.error().code, Code::kOutOfMemory) << batch.error().message;
    } else {
      ASSERT_NE(*batch, nullptr);
      held.push_back(std::move(*batch));
    }
  }
  EXPECT_FALSE(held.empty());
  held.clear();
  auto batch = (*reader)->next(kLong);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  expect_contents(**batch, lengths_);
}

TEST_F(InlineTest, random_access_waits_in_the_time_of_the_device) {
  const auto begin = time_->now;
  const std::vector<std::uint32_t> ids{5, 77, 1999};
  auto batch = read_samples(volume_, ids);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  expect_contents(**batch, lengths_);
  EXPECT_GT(time_->now, begin);
  time_->silent = true;
  const auto silent_since = time_->now;
  auto lost = read_samples(volume_, ids);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, Code::kTimedOut);
  EXPECT_GE(time_->now - silent_since, 5s);
  time_->silent = false;
}

}  // namespace
}  // namespace dlfs::reader::test
