#include "dlfs/export_tree.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

namespace dlfs::tools {
namespace {

namespace fs = std::filesystem;

class ExportTreeTest : public testing::Test {
 protected:
  static Result<void> put(ExportTree& tree, std::string_view name, std::string_view content) {
    auto file = tree.create(name);
    if (!file.ok()) return file.error();
    if (auto written = file->write(std::as_bytes(std::span(content))); !written.ok()) return written;
    return file->close();
  }
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const testing_support::TemporaryDirectory directory_;
  const fs::path base_ = directory_.path(), folder_ = base_ / "out";
};

TEST_F(ExportTreeTest, makes_files_in_folders_in_any_order) {
  auto tree = ExportTree::open(folder_, false).value();
  for (const char* name : {"a/1", "b/c/2", "a/3", "top", "b/4"}) ASSERT_TRUE(put(tree, name, name).ok());
  for (const char* name : {"a/1", "b/c/2", "a/3", "top", "b/4"}) EXPECT_EQ(read(folder_ / name), name);
}

TEST_F(ExportTreeTest, refuses_names_that_are_not_paths_below_the_folder) {
  using std::string_view_literals::operator""sv;
  auto tree = ExportTree::open(folder_, true).value();
  for (const std::string_view name :
       {""sv, "/etc/x"sv, "../x"sv, "a/../../x"sv, "a/.."sv, ".."sv, "."sv, "./x"sv, "a//b"sv, "a/"sv, "a\0b"sv}) {
    const auto refused = put(tree, name, "x");
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << name;
  }
  for (const char* name : {"..x", "x..", "...", "a/..b/c"}) EXPECT_TRUE(put(tree, name, "x").ok()) << name;
  EXPECT_FALSE(fs::exists(base_ / "x"));
}

TEST_F(ExportTreeTest, follows_no_link_that_lies_in_the_folder) {
  fs::create_directories(base_ / "outside");
  fs::create_directories(folder_);
  fs::create_directory_symlink(base_ / "outside", folder_ / "link");
  fs::create_symlink(base_ / "outside" / "target", folder_ / "file");
  std::ofstream(base_ / "outside" / "target") << "untouched";
  auto tree = ExportTree::open(folder_, true).value();
  EXPECT_EQ(put(tree, "link/x", "x").error().code, Code::kExists);
  EXPECT_FALSE(fs::exists(base_ / "outside" / "x"));
  ASSERT_TRUE(put(tree, "file", "new").ok());  // the link is replaced
  EXPECT_EQ(read(base_ / "outside" / "target"), "untouched");
  EXPECT_EQ(read(folder_ / "file"), "new");
}

TEST_F(ExportTreeTest, overwrites_only_when_told_and_never_a_folder) {
  auto tree = ExportTree::open(folder_, false).value();
  ASSERT_TRUE(put(tree, "a/b", "first").ok());
  const auto again = put(tree, "a/b", "second");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::kExists);
  EXPECT_NE(again.error().message.find("--force"), std::string::npos);
  EXPECT_EQ(read(folder_ / "a/b"), "first");
  auto forced = ExportTree::open(folder_, true).value();
  ASSERT_TRUE(put(forced, "a/b", "second").ok());
  EXPECT_EQ(read(folder_ / "a/b"), "second");
  EXPECT_EQ(put(forced, "a", "x").error().code, Code::kExists);      // a folder has this name
  EXPECT_EQ(put(forced, "a/b/c", "x").error().code, Code::kExists);  // a file is in the way
}

}  // namespace
}  // namespace dlfs::tools
