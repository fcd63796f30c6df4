#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "order/order.h"
#include "unit_placement.h"

namespace dlfs::order {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::place;

std::string complaint(const Parameters& parameters, std::uint64_t samples,
                      std::shared_ptr<const Placement> placement = nullptr, Code code = Code::kInvalidArgument) {
  const auto made = Epoch::create(parameters, samples, std::move(placement));
  EXPECT_FALSE(made.ok());
  if (made.ok()) return "";
  EXPECT_EQ(made.error().code, code) << made.error().message;
  return made.error().message;
}

TEST(EpochErrors, name_the_batches_that_ranks_divide) {
  EXPECT_THAT(complaint({.mode = Mode::kFull, .batch = 250, .ranks = 4}, 1000), HasSubstr("248 or 252"));
  EXPECT_THAT(complaint({.mode = Mode::kFull, .batch = 3, .ranks = 4}, 1000), HasSubstr("a batch of 4 samples"));
}

TEST(EpochErrors, name_the_nearest_lanes_that_ranks_divide) {
  EXPECT_THAT(complaint({.batch = 7, .ranks = 7}, 0, place({100})), HasSubstr("238 or 245 lanes"));
  EXPECT_THAT(complaint({.batch = 500, .ranks = 500}, 0, place({1000})), HasSubstr("use 500 lanes"));
}

TEST(EpochErrors, refuse_a_rank_without_samples) {
  EXPECT_THAT(complaint({.mode = Mode::kFull, .batch = 8, .ranks = 8}, 5), HasSubstr("at most 5 ranks"));
  EXPECT_TRUE(Epoch::create({.mode = Mode::kFull, .batch = 8, .ranks = 5 + 3}, 8, nullptr).ok());
  EXPECT_TRUE(Epoch::create({.mode = Mode::kFull, .tail = Tail::kPad, .batch = 8, .ranks = 8}, 5, nullptr).ok());
}

TEST(EpochErrors, refuse_an_epoch_without_a_whole_batch_under_drop) {
  EXPECT_THAT(complaint({.mode = Mode::kFull, .tail = Tail::kDrop, .batch = 8}, 7),
              AllOf(HasSubstr("at most 7"), HasSubstr("'short' or 'pad'")));
  EXPECT_EQ((*Epoch::create({.mode = Mode::kFull, .tail = Tail::kDrop, .batch = 8}, 15, nullptr))->batches(), 1u);
}

TEST(EpochErrors, refuse_senseless_numbers) {
  EXPECT_THAT(complaint({.mode = Mode::kFull, .rank = 4, .ranks = 4}, 1000), HasSubstr("use 0 to 3"));
  EXPECT_THAT(complaint({.mode = Mode::kFull, .batch = 0}, 1000), HasSubstr("at least 1"));
  EXPECT_THAT(complaint({.mode = Mode::kFull, .ranks = 0}, 1000), HasSubstr("at least 1"));
  EXPECT_THAT(complaint({.mode = Mode::kFull}, 0), HasSubstr("no samples"));
  EXPECT_THAT(complaint({.mode = Mode::kFull}, (std::uint64_t{1} << 32) + 1), HasSubstr("4294967296"));
  EXPECT_THAT(complaint({.mode = Mode::kChunk}, 1000), HasSubstr("placement"));
  EXPECT_THAT(complaint({.lanes = 0}, 0, place({10})), HasSubstr("use 1 to 65536"));
  EXPECT_THAT(complaint({.lanes = kMaxLanes + 1}, 0, place({10})), HasSubstr("use 1 to 65536"));
  EXPECT_THAT(complaint({.window = 0}, 0, place({10})), HasSubstr("at least 1"));
  EXPECT_THAT(complaint({.mode = static_cast<Mode>(3)}, 10), HasSubstr("unknown"));
}

// Unit sizes that do not add up, as a damaged index might claim.
class LyingPlacement final : public Placement {
 public:
  LyingPlacement(std::uint64_t samples, std::vector<std::uint64_t> first)
      : samples_(samples), first_(std::move(first)) {}
  std::uint64_t sample_count() const noexcept override { return samples_; }
  std::uint64_t unit_count() const noexcept override { return first_.size() - 1; }
  std::uint64_t first_slot(std::uint64_t unit) const noexcept override { return first_[unit]; }

 private:
  std::uint64_t samples_;
  std::vector<std::uint64_t> first_;
};

TEST(EpochErrors, refuse_a_placement_that_does_not_add_up) {
  const auto lie = [](std::uint64_t samples, std::vector<std::uint64_t> first) {
    return complaint({}, 0, std::make_shared<LyingPlacement>(samples, std::move(first)), Code::kCorrupt);
  };
  EXPECT_THAT(lie(10, {0, 5, 9}), HasSubstr("hold 9 samples, not 10"));
  EXPECT_THAT(lie(10, {0, 5, 11}), HasSubstr("more than are left"));
  EXPECT_THAT(lie(10, {0, 7, 4, 10}), HasSubstr("more than are left"));  // descending: a size that wrapped
  EXPECT_THAT(lie(10, {1, 5, 11}), HasSubstr("do not fit"));
  EXPECT_THAT(lie(10, {0}), HasSubstr("0 units"));
}

}  // namespace
}  // namespace dlfs::order
