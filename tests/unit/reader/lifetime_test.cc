// Batches that are held, returned elsewhere or kept longer than their reader; readers that end early; forked children.
#include <sys/wait.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "support.h"

namespace dlfs::reader::test {
namespace {

using order::Mode;
using std::chrono::milliseconds;
constexpr Mode kModes[] = {Mode::kSequential, Mode::kFull, Mode::kChunk};

class LifetimeTest : public testing::Test {
 protected:
  void SetUp() override {
    lengths_ = random_lengths(2000, 2000, 8);
    pack(directory_ / "v", lengths_);
    volume_ = mount(directory_ / "v");
    ASSERT_NE(volume_, nullptr);
  }
  Options options(Mode mode, std::uint64_t cache = 64u << 20) const {
    Options o;
    o.order.mode = mode;
    o.order.batch = 40;
    o.order.lanes = 8;
    o.cache_bytes = cache;
    return o;
  }
  std::unique_ptr<Reader> open(const Options& o) const {
    auto reader = Reader::open(volume_, o);
    EXPECT_TRUE(reader.ok()) << (reader.ok() ? "" : reader.error().message);
    return reader.ok() ? std::move(*reader) : nullptr;
  }

  TemporaryDirectory directory_;
  std::vector<std::uint64_t> lengths_;
  std::shared_ptr<const volume::Volume> volume_;
};

TEST_F(LifetimeTest, a_consumer_that_always_holds_the_last_batches_is_served) {
  for (const Mode mode : kModes) {
    for (const std::uint64_t cache : {1u << 20, 1300u << 10, 2u << 20, 64u << 20}) {
      SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << " cache " << cache);
      Options o = options(mode, cache);
      o.epochs = 2;
      const auto reader = open(o);
      ASSERT_NE(reader, nullptr);
      std::deque<std::unique_ptr<Batch>> held;
      for (int g = 0; g < 100; ++g) {
        auto batch = reader->next(kLong);
        ASSERT_TRUE(batch.ok()) << g << ": " << batch.error().message;
        ASSERT_NE(*batch, nullptr);
        held.push_back(std::move(*batch));
        if (held.size() > 2) held.pop_front();
        for (const auto& b : held) expect_contents(*b, lengths_);
      }
      EXPECT_LE(reader->statistics().memory_peak_bytes, cache);
    }
  }
}

TEST_F(LifetimeTest, holding_too_much_is_an_error_that_releasing_cures) {
  for (const Mode mode : kModes) {
    SCOPED_TRACE(static_cast<int>(mode));
    const auto reader = open(options(mode, 1u << 20));
    ASSERT_NE(reader, nullptr);
    std::deque<std::unique_ptr<Batch>> held;
    std::uint64_t next = 0;
    bool refused = false;
    const auto expected = expected_batches(volume_, options(mode).order);
    while (next < expected.size()) {
      auto batch = reader->next(kLong);
      if (!batch.ok()) {
        ASSERT_EQ(batch.error().code, Code::kOutOfMemory) << batch.error().message;
        EXPECT_NE(batch.error().message.find("release"), std::string::npos);
        ASSERT_FALSE(held.empty());
        for (const auto& b : held) expect_contents(*b, lengths_);
        held.clear();
        refused = true;
        continue;
      }
      ASSERT_NE(*batch, nullptr);
      ASSERT_TRUE(std::ranges::equal((*batch)->ids(), expected[next]));
      ++next;
      if (!refused) {
        held.push_back(std::move(*batch));
      }
    }
    EXPECT_TRUE(refused);
    EXPECT_LE(reader->statistics().memory_peak_bytes, 1u << 20);
  }
}

TEST_F(LifetimeTest, a_batch_given_back_by_another_thread_in_time_is_no_error) {
  const auto reader = open(options(Mode::kFull, 1u << 20));
  ASSERT_NE(reader, nullptr);
  std::vector<std::thread> threads;
  for (int g = 0; g < 50; ++g) {
    auto batch = reader->next(kLong);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    threads.emplace_back([this, held = std::move(*batch)]() mutable {
      usleep(20'000);
      expect_contents(*held, lengths_);
      held.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LifetimeTest, a_batch_outlives_its_reader_and_its_volume_handle) {
  for (const Mode mode : kModes) {
    std::vector<std::unique_ptr<Batch>> kept;
    {
      const auto reader = open(options(mode));
      ASSERT_NE(reader, nullptr);
      for (int g = 0; g < 5; ++g) {
        auto batch = reader->next(kLong);
        ASSERT_TRUE(batch.ok());
        kept.push_back(std::move(*batch));
      }
    }
    for (const auto& batch : kept) expect_contents(*batch, lengths_);
    std::thread([&kept] { kept.clear(); }).join();
  }
}

TEST_F(LifetimeTest, readers_end_at_any_point) {
  base::Prng prng(3);
  for (int round = 0; round < 60; ++round) {
    Options o = options(kModes[round % 3], round % 2 == 0 ? 1u << 20 : 8u << 20);
    o.epochs = 0;
    const auto reader = open(o);
    ASSERT_NE(reader, nullptr);
    for (std::uint64_t left = prng.below(120); left > 0; --left) {
      auto batch = reader->next(kLong);
      ASSERT_TRUE(batch.ok() && *batch != nullptr);
    }
    if (prng.below(2) == 0) usleep(static_cast<useconds_t>(prng.below(2000)));
  }
}

TEST_F(LifetimeTest, two_readers_do_not_disturb_each_other) {
  std::vector<std::thread> threads;
  for (const Mode mode : {Mode::kFull, Mode::kChunk}) {
    threads.emplace_back([this, mode] {
      Options o = options(mode, 2u << 20);
      o.epochs = 2;
      expect_run(volume_, o, lengths_);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LifetimeTest, a_wait_ends_at_its_timeout_and_can_be_taken_up_again) {
  const auto faults = std::make_shared<Faults>();
  const auto volume = mount(directory_ / "v", faulty_options(faults));
  ASSERT_NE(volume, nullptr);
  auto reader = Reader::open(volume, [&] {
    faults->set([](const block::Request& r) {
      return Verdict{.fail_with = 0, .delay = milliseconds(r.offset_bytes > (128u << 10) ? 300 : 0), .never = false};
    });
    return options(Mode::kFull);
  }());
  ASSERT_TRUE(reader.ok());
  const auto begin = std::chrono::steady_clock::now();
  const auto early = (*reader)->next(milliseconds(30));
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, Code::kTimedOut);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(250));
  const auto late = (*reader)->next(kLong);
  ASSERT_TRUE(late.ok()) << late.error().message;
  expect_contents(**late, lengths_);
}

TEST_F(LifetimeTest, a_forked_child_is_told_so_and_leaves_the_parent_alone) {
  Options o = options(Mode::kChunk, 2u << 20);
  o.epochs = 3;
  auto reader = open(o);
  ASSERT_NE(reader, nullptr);
  auto first = reader->next(kLong);
  ASSERT_TRUE(first.ok());
  const pid_t child = fork();
  if (child == 0) {
    const auto refused = reader->next(milliseconds(1000));
    bool good = !refused.ok() && refused.error().code == Code::kForked && !refused.error().message.empty();
    first->reset();
    reader.reset();
#ifndef __SANITIZE_THREAD__  // that sanitizer allows no thread in a child of a process with threads
    Options own = options(Mode::kFull);
    auto fresh = Reader::open(volume_, own);  // the volume works in the child, with a reader of its own
    good = good && fresh.ok();
    if (good) {
      auto batch = (*fresh)->next(kLong);
      good = batch.ok() && *batch != nullptr && (*batch)->size() == 40;
    }
#endif
    _exit(good ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  expect_contents(**first, lengths_);
  for (int g = 1; g < 150; ++g) {
    auto batch = reader->next(kLong);
    ASSERT_TRUE(batch.ok() && *batch != nullptr);
    expect_contents(**batch, lengths_);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace dlfs::reader::test
