// Bad media and bad devices: what is wrong is named or left out, the rest is delivered, and nothing hangs.
#include <algorithm>
#include <fstream>
#include <set>
#include <thread>

#include "support.h"

namespace dlfs::reader::test {
namespace {

using order::Mode;
using std::chrono::milliseconds;
constexpr Mode kModes[] = {Mode::kSequential, Mode::kFull, Mode::kChunk};

class FaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    lengths_ = random_lengths(1000, 3000, 6);
    lengths_[321] = 200'000;  // a large sample, in chunks of its own
    pack(path_, lengths_);
    faults_ = std::make_shared<Faults>();
  }

  void mount_with(milliseconds timeout = milliseconds(30'000)) {
    volume::MountOptions options = faulty_options(faults_);
    options.timeout = timeout;
    volume_ = mount(path_, options);
    ASSERT_NE(volume_, nullptr);
  }
  Options options(Mode mode, OnError on_error) const {
    Options o;
    o.order.mode = mode;
    o.order.batch = 32;
    o.order.lanes = 8;
    o.on_error = on_error;
    return o;
  }
  std::uint64_t place(std::uint32_t id) const {
    return volume_->device_offset(volume_->directory().location(SampleId{id}).address_bytes);
  }
  void flip(std::uint64_t offset) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }
  // Reads everything, expects only the `lost` to be missing each epoch, and every other byte right.
  void expect_all_but(const Options& o, const std::set<std::uint32_t>& lost) {
    auto reader = Reader::open(volume_, o);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (std::uint64_t e = 0; e < o.epochs; ++e) {
      order::Parameters parameters = o.order;
      parameters.epoch += e;
      for (auto ids : expected_batches(volume_, parameters)) {
        std::erase_if(ids, [&](std::uint32_t id) { return lost.contains(id); });
        auto batch = (*reader)->next(kLong);
        ASSERT_TRUE(batch.ok()) << batch.error().message;
        ASSERT_NE(*batch, nullptr);
        ASSERT_TRUE(std::ranges::equal((*batch)->ids(), ids));
        expect_contents(**batch, lengths_);
      }
    }
    EXPECT_EQ((*reader)->statistics().skipped, lost.size() * o.epochs);
  }
  // The first error, after the batches before it; it must come again.
  Error first_error(const Options& o, std::uint64_t* batches = nullptr) {
    auto reader = Reader::open(volume_, o);
    if (!reader.ok()) return reader.error();
    for (std::uint64_t g = 0;; ++g) {
      auto batch = (*reader)->next(kLong);
      if (batch.ok() && *batch != nullptr) continue;
      if (batch.ok()) {
        ADD_FAILURE() << "no error came";
        return {};
      }
      if (batches != nullptr) *batches = g;
      EXPECT_EQ((*reader)->next(kLong).error().message, batch.error().message);
      return batch.error();
    }
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "v.dlfs";
  std::vector<std::uint64_t> lengths_;
  std::shared_ptr<Faults> faults_;
  std::shared_ptr<const volume::Volume> volume_;
};

Verdict fail_range(const block::Request& r, std::uint64_t begin, std::uint64_t end) {
  return {.fail_with = r.offset_bytes < end && begin < r.offset_bytes + r.length_bytes ? EIO : 0,
          .delay = {},
          .never = false};
}

TEST_F(FaultsTest, a_corrupt_sample_is_named_after_the_batches_before_it) {
  mount_with();
  for (const std::uint32_t id : {17u, 321u}) flip(place(id) + 20);
  for (const Mode mode : kModes) {
    const Options o = options(mode, OnError::kRaise);
    std::uint64_t batches = 0;
    const Error error = first_error(o, &batches);
    EXPECT_EQ(error.code, Code::kCorrupt) << error.message;
    const auto expected = expected_batches(volume_, o.order);
    const auto holds = [&](std::uint32_t id) {
      return std::ranges::find(expected[batches], id) != expected[batches].end();
    };
    ASSERT_LT(batches, expected.size());
    ASSERT_TRUE(holds(17) || holds(321));
    const std::string id = holds(17) ? "17" : "321";
    EXPECT_NE(error.message.find("sample " + id), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("train/" + id + ".jpg"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("v.dlfs"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find(std::to_string(place(static_cast<std::uint32_t>(std::stoul(id))))), std::string::npos)
        << error.message;
  }
}

TEST_F(FaultsTest, a_corrupt_sample_is_skipped_and_counted_when_asked) {
  mount_with();
  for (const std::uint32_t id : {17u, 321u, 999u}) flip(place(id) + 20);
  for (const Mode mode : kModes) {
    for (const std::uint64_t cache : {1u << 20, 64u << 20}) {
      SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << " cache " << cache);
      Options o = options(mode, OnError::kSkip);
      o.cache_bytes = cache;
      o.epochs = 2;
      expect_all_but(o, {17, 321, 999});
    }
  }
}

TEST_F(FaultsTest, what_was_read_ahead_does_not_count_as_skipped_yet) {
  mount_with();
  for (const std::uint32_t id : {17u, 321u, 999u}) flip(place(id) + 20);
  Options o = options(Mode::kSequential, OnError::kSkip);
  o.order.batch = 100;
  auto reader = Reader::open(volume_, o);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  for (const std::uint64_t expected : {1u, 1u, 1u, 2u, 2u}) {
    ASSERT_TRUE((*reader)->next(std::chrono::seconds(60)).ok());
    EXPECT_EQ((*reader)->statistics().skipped, expected);
  }
}

TEST_F(FaultsTest, an_unreadable_block_costs_the_samples_in_it_and_no_others) {
  mount_with();
  const std::uint64_t begin = place(17) / 4096 * 4096, end = begin + 4096;
  std::set<std::uint32_t> lost;  // a read of such a sample covers the block
  for (std::uint32_t id = 0; id < lengths_.size(); ++id) {
    const layout::Location at = volume_->directory().location(SampleId{id});
    const std::uint64_t from = volume_->device_offset(at.address_bytes) / 4096 * 4096;
    if (from < end && begin < place(id) + at.length_bytes) lost.insert(id);
  }
  faults_->set([=](const block::Request& r) { return fail_range(r, begin, end); });
  for (const Mode mode : kModes) {
    for (const std::uint64_t cache : {1u << 20, 64u << 20}) {
      SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << " cache " << cache);
      Options o = options(mode, OnError::kSkip);
      o.cache_bytes = cache;
      expect_all_but(o, lost);
    }
    const Error error = first_error(options(mode, OnError::kRaise));
    EXPECT_EQ(error.code, Code::kIo) << error.message;
    EXPECT_NE(error.message.find("sample "), std::string::npos) << error.message;
  }
}

TEST_F(FaultsTest, part_of_a_large_sample_that_cannot_be_read_costs_that_sample) {
  mount_with();
  const std::uint64_t begin = place(321) + (128u << 10);
  faults_->set([=](const block::Request& r) { return fail_range(r, begin, begin + 512); });
  for (const Mode mode : kModes) expect_all_but(options(mode, OnError::kSkip), {321});
}

TEST_F(FaultsTest, a_read_that_works_again_is_delivered_in_the_next_epoch) {
  mount_with();
  const std::uint64_t begin = place(17);
  std::atomic<int> failures{0};
  faults_->set([&, begin](const block::Request& r) {
    Verdict verdict = fail_range(r, begin, begin + 8);
    if (verdict.fail_with != 0 && failures.fetch_add(1) >= 2) verdict.fail_with = 0;  // the read and its repetition
    return verdict;
  });
  Options o = options(Mode::kFull, OnError::kSkip);
  o.epochs = 2;
  auto reader = Reader::open(volume_, o);
  ASSERT_TRUE(reader.ok());
  std::vector<int> seen(2);
  while (true) {
    auto batch = (*reader)->next(kLong);
    ASSERT_TRUE(batch.ok());
    if (*batch == nullptr) break;
    for (const std::uint32_t id : (*batch)->ids()) seen[(*batch)->epoch()] += id == 17 ? 1 : 0;
    expect_contents(**batch, lengths_);
  }
  EXPECT_EQ(seen[1], 1);
  EXPECT_LE((*reader)->statistics().skipped, 2u);
}

TEST_F(FaultsTest, slow_and_reordered_completions_change_nothing) {
  mount_with();
  std::atomic<std::uint64_t> count{0};
  faults_->set([&](const block::Request&) {
    return Verdict{.fail_with = 0, .delay = milliseconds(base::mix64(count.fetch_add(1)) % 8), .never = false};
  });
  for (const Mode mode : kModes) {
    Options o = options(mode, OnError::kRaise);
    o.cache_bytes = 2u << 20;
    expect_all_but(o, {});
  }
}

TEST_F(FaultsTest, a_request_that_never_returns_is_an_error_within_the_deadline_and_the_end_is_bounded) {
  mount_with(milliseconds(300));
  for (const Mode mode : kModes) {
    std::atomic<int> count{0};
    faults_->set(
        [&](const block::Request&) { return Verdict{.fail_with = 0, .delay = {}, .never = count.fetch_add(1) == 5}; });
    Options o = options(mode, OnError::kRaise);
    o.cache_bytes = 1u << 20;
    const auto begin = std::chrono::steady_clock::now();
    const Error error = first_error(o);  // the reader is destroyed with the request still stuck
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(error.code, Code::kTimedOut) << error.message;
    EXPECT_NE(error.message.find("v.dlfs"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("sample "), std::string::npos) << error.message;
    EXPECT_LT(took, std::chrono::seconds(10));
  }
  faults_->set(nullptr);
  faults_->release_stuck();
  for (int i = 0; i < 1000 && volume_.use_count() > 1; ++i) usleep(10'000);  // the threads that were left behind end
  EXPECT_EQ(volume_.use_count(), 1);
}

TEST_F(FaultsTest, what_never_returns_is_skipped_when_asked_and_the_rest_is_delivered) {
  mount_with(milliseconds(300));
  std::atomic<int> count{0};
  faults_->set(
      [&](const block::Request&) { return Verdict{.fail_with = 0, .delay = {}, .never = count.fetch_add(1) == 5}; });
  Options o = options(Mode::kFull, OnError::kSkip);
  o.cache_bytes = 1u << 20;
  {
    auto reader = Reader::open(volume_, o);
    ASSERT_TRUE(reader.ok());
    std::size_t samples = 0;
    while (true) {
      auto batch = (*reader)->next(kLong);
      ASSERT_TRUE(batch.ok()) << batch.error().message;
      if (*batch == nullptr) break;
      expect_contents(**batch, lengths_);
      samples += (*batch)->size();
    }
    EXPECT_LT(samples, 1000u);
    EXPECT_EQ(samples + (*reader)->statistics().skipped, 1000u);
    faults_->release_stuck();
  }
  for (int i = 0; i < 1000 && volume_.use_count() > 1; ++i) usleep(10'000);
  EXPECT_EQ(volume_.use_count(), 1);
}

TEST_F(FaultsTest, a_device_that_swallows_everything_ends_in_an_error) {
  mount_with(milliseconds(200));
  faults_->set([&](const block::Request& r) {
    return Verdict{.fail_with = 0, .delay = {}, .never = r.offset_bytes > (128u << 10)};
  });
  const Error error = first_error(options(Mode::kChunk, OnError::kRaise));
  EXPECT_TRUE(error.code == Code::kTimedOut || error.code == Code::kDeviceLost) << error.message;
  faults_->release_stuck();
  for (int i = 0; i < 1000 && volume_.use_count() > 1; ++i) usleep(10'000);
  EXPECT_EQ(volume_.use_count(), 1);
}

TEST_F(FaultsTest, a_device_that_is_gone_is_said_to_be_gone) {
  mount_with();
  faults_->set([](const block::Request& r) {
    return Verdict{.fail_with = r.offset_bytes > (128u << 10) ? ENODEV : 0, .delay = {}, .never = false};
  });
  for (const Mode mode : kModes) {
    const Error error = first_error(options(mode, OnError::kRaise));
    EXPECT_EQ(error.code, Code::kDeviceLost) << error.message;
  }
}

}  // namespace
}  // namespace dlfs::reader::test
