#include "api_support.h"

namespace dlfs {
namespace {

using api_test::must;

class ApiBatch : public ::testing::Test {
 protected:
  api_test::PackedVolume packed_{40};
  Volume volume_ = packed_.mount();
  const std::vector<std::uint32_t> ids_ = {3, 11, 2, 39};  // 11 has an empty image
  Batch batch_ = must(volume_.read(ids_));
};

TEST_F(ApiBatch, gather_puts_values_back_to_back_with_their_offsets) {
  std::vector<std::byte> expected;
  std::vector<std::uint64_t> expected_offsets = {0};
  for (const std::uint32_t id : ids_) {
    const auto image = api_test::image_of(id);
    expected.insert(expected.end(), image.begin(), image.end());
    expected_offsets.push_back(expected.size());
  }
  std::vector<std::byte> into(expected.size() + 5, std::byte{0xEE});
  std::vector<std::uint64_t> offsets(ids_.size() + 1);
  EXPECT_EQ(batch_.gather(0, into, offsets), expected.size());
  EXPECT_EQ(offsets, expected_offsets);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), into.begin()));
  for (std::size_t i = expected.size(); i < into.size(); ++i) EXPECT_EQ(into[i], std::byte{0xEE});
}

TEST_F(ApiBatch, gather_into_too_small_a_buffer_copies_nothing_and_says_what_it_needs) {
  const std::uint64_t needed = batch_.gather(0, {});
  std::vector<std::byte> small(needed - 1, std::byte{0xEE});
  std::vector<std::uint64_t> offsets(ids_.size() + 1, 99);
  EXPECT_EQ(batch_.gather(0, small, offsets), needed);
  EXPECT_EQ(offsets.back(), needed);
  EXPECT_EQ(small, std::vector<std::byte>(needed - 1, std::byte{0xEE}));
}

TEST_F(ApiBatch, gather_of_a_fixed_field_is_an_array) {
  std::vector<std::int64_t> labels(ids_.size());
  EXPECT_EQ(batch_.gather(1, std::as_writable_bytes(std::span(labels))), 8 * ids_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i) EXPECT_EQ(labels[i], api_test::label_of(ids_[i]));
}

TEST_F(ApiBatch, views_survive_the_move_of_their_batch) {
  const Bytes view = batch_.field(0, 0);
  const Batch moved = std::move(batch_);
  EXPECT_EQ(api_test::bytes_of(view), api_test::image_of(3));
  EXPECT_EQ(moved.field(0, 0).data(), view.data());
}

}  // namespace
}  // namespace dlfs
