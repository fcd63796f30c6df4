#include "dlfs/suggest.h"

#include <gtest/gtest.h>

namespace dlfs::tools {
namespace {

TEST(suggest, finds_the_word_that_was_meant) {
  const std::vector<std::string> known = {"pack", "stat", "ls", "cat", "export", "verify", "order", "bench"};
  EXPECT_EQ(suggest("pakc", known), "pack");
  EXPECT_EQ(suggest("packk", known), "pack");
  EXPECT_EQ(suggest("verfiy", known), "verify");
  EXPECT_EQ(suggest("exprot", known), "export");
  EXPECT_EQ(suggest("staat", known), "stat");
  EXPECT_EQ(suggest("mount", known), "");
  EXPECT_EQ(suggest("", known), "");
  EXPECT_EQ(suggest(std::string(100'000, 'x'), known), "");
}

}  // namespace
}  // namespace dlfs::tools
