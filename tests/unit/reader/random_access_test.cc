// read_samples: lists of ids, on the caller's thread.
#include <algorithm>
#include <cstring>

#include "support.h"

namespace dlfs::reader::test {
namespace {

class RandomAccessTest : public testing::Test {
 protected:
  void SetUp() override {
    lengths_ = random_lengths(500, 3000, 4);
    lengths_[3] = 0;
    lengths_[100] = 200'000;  // several chunks
    pack(directory_ / "v", lengths_);
    faults_ = std::make_shared<Faults>();
    volume_ = mount(directory_ / "v", faulty_options(faults_));
    ASSERT_NE(volume_, nullptr);
  }
  std::uint64_t place(std::uint32_t id) const {
    return volume_->device_offset(volume_->directory().location(SampleId{id}).address_bytes);
  }

  TemporaryDirectory directory_;
  std::vector<std::uint64_t> lengths_;
  std::shared_ptr<Faults> faults_;
  std::shared_ptr<const volume::Volume> volume_;
};

TEST_F(RandomAccessTest, any_list_comes_back_in_its_own_order) {
  base::Prng prng(2);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::uint32_t> ids(prng.below(200));
    for (auto& id : ids) id = static_cast<std::uint32_t>(prng.below(lengths_.size()));
    if (round % 3 == 0) ids.insert(ids.end(), {100, 3, 100, 3});
    auto batch = read_samples(volume_, ids);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    ASSERT_TRUE(std::ranges::equal((*batch)->ids(), ids));
    expect_contents(**batch, lengths_);
    std::vector<std::uint64_t> offsets(ids.size() + 1);
    EXPECT_EQ((*batch)->gather(1, {}, offsets), ids.size() * 8);
  }
}

TEST_F(RandomAccessTest, an_id_that_is_not_there_is_named) {
  const std::uint32_t ids[] = {1, 500};
  const auto batch = read_samples(volume_, ids);
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.error().code, Code::kNotFound);
  EXPECT_NE(batch.error().message.find("500"), std::string::npos);
}

TEST_F(RandomAccessTest, a_failed_read_costs_only_the_samples_that_it_touches) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 0; id < 500; ++id) ids.push_back(id);
  const std::uint64_t bad = place(42) / 512 * 512;  // a block of the medium is gone
  faults_->set([bad](const block::Request& r) {
    return Verdict{.fail_with = r.offset_bytes <= bad && bad < r.offset_bytes + r.length_bytes ? EIO : 0,
                   .delay = {},
                   .never = false};
  });
  const auto raised = read_samples(volume_, ids);
  ASSERT_FALSE(raised.ok());
  EXPECT_EQ(raised.error().code, Code::kIo);
  const auto skipped = read_samples(volume_, ids, OnError::kSkip);
  ASSERT_TRUE(skipped.ok()) << skipped.error().message;
  EXPECT_LT((*skipped)->size(), 500u);
  EXPECT_GE((*skipped)->size(), 480u);  // the block, or with blocks of 4096 bytes its neighbours
  EXPECT_EQ(std::ranges::count((*skipped)->ids(), 42u), 0);
  expect_contents(**skipped, lengths_);
}

TEST_F(RandomAccessTest, a_device_that_does_not_answer_times_out) {
  volume::MountOptions options = faulty_options(faults_);
  options.timeout = std::chrono::milliseconds(200);
  const auto volume = mount(directory_ / "v", options);
  ASSERT_NE(volume, nullptr);
  const std::uint32_t ids[] = {1, 2, 3};
  faults_->set([](const block::Request&) {
    return Verdict{.fail_with = 0, .delay = std::chrono::milliseconds(400), .never = false};
  });
  const auto batch = read_samples(volume, ids);
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.error().code, Code::kTimedOut);
}

}  // namespace
}  // namespace dlfs::reader::test
