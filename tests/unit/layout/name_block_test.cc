#include "layout/name_block.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/endian.h"

namespace dlfs::layout {
namespace {

constexpr std::uint32_t kSalt = 77;

std::vector<std::byte> finished(NameBlockBuilder& builder) {
  std::vector<std::byte> block(kNameBlockBytes, std::byte{0xEE});
  builder.finish(block);
  return block;
}

std::vector<std::byte> block_of(SampleId first, const std::vector<std::string>& names) {
  NameBlockBuilder builder(kSalt);
  for (std::uint32_t i = 0; i < names.size(); ++i) EXPECT_TRUE(builder.add(SampleId{first.value + i}, names[i]));
  return finished(builder);
}

// Makes the sum right again after the test changed a byte.
void reseal(std::vector<std::byte>& block) {
  std::byte salt[4];
  base::store_le<std::uint32_t>(salt, kSalt);
  base::store_le<std::uint32_t>(block.data() + 4, base::crc32c(std::span(block).subspan(8), base::crc32c(salt)));
}

TEST(NameBlock, names_come_back) {
  const std::vector<std::string> names = {"train/cat/1.jpg", "", "with space\nand newline", std::string("\xff\xfe", 2),
                                          std::string(4095, 'x')};
  const auto block = block_of(SampleId{4'294'967'290}, names);
  const auto decoded = NameBlock::decode(block, kSalt);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->first_id().value, 4'294'967'290u);
  ASSERT_EQ(decoded->count(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(decoded->name(i), names[i]);
}

TEST(NameBlock, the_longest_name_always_fits_an_empty_block) {
  NameBlockBuilder builder(kSalt);
  std::uint32_t id = 0;
  while (builder.add(SampleId{id}, std::string(4095, 'n'))) ++id;
  EXPECT_EQ(id, 3u);
  finished(builder);
  EXPECT_TRUE(builder.empty());
  EXPECT_TRUE(builder.add(SampleId{id}, std::string(4095, 'n')));
  EXPECT_EQ(builder.first_id().value, 3u);
}

TEST(NameBlock, holds_thousands_of_empty_names) {
  NameBlockBuilder builder(kSalt);
  std::uint32_t id = 0;
  while (builder.add(SampleId{id}, "")) ++id;
  EXPECT_EQ(id, (kNameBlockBytes - 16) / 2);
  const auto block = finished(builder);
  EXPECT_EQ(NameBlock::decode(block, kSalt)->count(), id);
}

TEST(NameBlock, every_truncation_and_every_flipped_bit_is_found) {
  auto block = block_of(SampleId{3}, {"alpha", "beta", "gamma"});
  for (std::size_t length = 0; length < block.size(); ++length)
    ASSERT_FALSE(NameBlock::decode(std::span(block).first(length), kSalt).ok());
  for (std::size_t bit = 0; bit < 8 * block.size(); ++bit) {
    block[bit / 8] ^= std::byte(1u << bit % 8);
    ASSERT_FALSE(NameBlock::decode(block, kSalt).ok()) << bit;
    block[bit / 8] ^= std::byte(1u << bit % 8);
  }
  EXPECT_TRUE(NameBlock::decode(block, kSalt).ok());
  EXPECT_FALSE(NameBlock::decode(block, kSalt + 1).ok());
}

TEST(NameBlock, impossible_values_under_a_right_sum_are_refused) {
  const auto good = block_of(SampleId{3}, {"alpha", "beta", "gamma"});
  const auto refused = [&](std::size_t at, std::uint16_t value) {
    auto block = good;
    base::store_le<std::uint16_t>(block.data() + at, value);
    reseal(block);
    const auto decoded = NameBlock::decode(block, kSalt);
    return !decoded.ok() && decoded.error().code == Code::kCorrupt;
  };
  EXPECT_TRUE(refused(12, 0));      // no names
  EXPECT_TRUE(refused(12, 8185));   // more than fit
  EXPECT_TRUE(refused(12, 4));      // the fourth end is a piece of a name
  EXPECT_TRUE(refused(14, 1));      // reserved
  EXPECT_TRUE(refused(18, 4));      // ends go back
  EXPECT_TRUE(refused(20, 16384));  // behind the block
  EXPECT_TRUE(refused(20, 9000));   // longer than a name may be
  EXPECT_TRUE(refused(20, 13));     // a byte behind the last name is not zero
  auto wraps = good;
  base::store_le<std::uint32_t>(wraps.data() + 8, 0xFFFFFFFEu);
  reseal(wraps);
  EXPECT_FALSE(NameBlock::decode(wraps, kSalt).ok());
}

TEST(NameBlock, any_names_come_back) {
  const bool ok = rc::check("blocks hold the names in order", [](const std::vector<std::string>& names) {
    NameBlockBuilder builder(kSalt);
    std::vector<std::string> back;
    const auto drain = [&] {
      const auto block = finished(builder);
      const auto decoded = NameBlock::decode(block, kSalt);
      RC_ASSERT(decoded.ok());
      RC_ASSERT(decoded->first_id().value == back.size());
      for (std::size_t i = 0; i < decoded->count(); ++i) back.emplace_back(decoded->name(i));
    };
    for (std::uint32_t id = 0; id < names.size(); ++id) {
      if (builder.add(SampleId{id}, names[id])) continue;
      drain();
      RC_ASSERT(builder.add(SampleId{id}, names[id]));
    }
    if (!builder.empty()) drain();
    RC_ASSERT(back == names);
  });
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace dlfs::layout
