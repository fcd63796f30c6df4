#include "ingest/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "temp_folder.h"

namespace dlfs::ingest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names(const Folder& folder) {
  std::vector<std::string> out;
  for (std::uint64_t i = 0; i < folder.files().count(); ++i) out.push_back(folder.files().at(i).value().name);
  return out;
}

std::vector<std::uint32_t> labels(const Folder& folder) {
  std::vector<std::uint32_t> out;
  for (std::uint64_t i = 0; i < folder.files().count(); ++i) out.push_back(folder.files().at(i).value().label);
  return out;
}

TEST(folder, lists_names_bytewise_and_labels_by_first_level) {
  TempFolder temp;
  temp.write("cat/2.jpg", "aa");
  temp.write("cat/10.jpg", "bbb");
  temp.write("ant/sub/x", "");
  temp.write("cat.old/y", "c");  // '.' sorts before '/': names in order, labels by class name
  const Folder folder = Folder::scan(temp.path(), {}).value();
  EXPECT_THAT(names(folder), ElementsAre("ant/sub/x", "cat.old/y", "cat/10.jpg", "cat/2.jpg"));
  EXPECT_THAT(folder.classes(), ElementsAre("ant", "cat", "cat.old"));
  EXPECT_THAT(labels(folder), ElementsAre(0, 2, 1, 1));
  EXPECT_EQ(folder.files().total_bytes(), 6u);
  EXPECT_EQ(folder.files().at(2).value().size_bytes, 3u);
}

TEST(folder, keeps_the_number_of_a_class_without_files) {
  TempFolder temp;
  temp.make_folder("a");
  temp.write("b/1", "x");
  const Folder folder = Folder::scan(temp.path(), {}).value();
  EXPECT_THAT(folder.classes(), ElementsAre("a", "b"));
  EXPECT_THAT(labels(folder), ElementsAre(1));
}

TEST(folder, takes_any_bytes_as_names) {
  TempFolder temp;
  const std::vector<std::string> expected = {"k/ lead",   "k/-rf", "k/\\x41", "k/a\nb", "k/\xd0\x96\xe7\x8c\xab",
                                             "k/\xff\xfe"};
  for (const std::string& name : expected) temp.write(name, "1");
  EXPECT_EQ(names(Folder::scan(temp.path(), {}).value()), expected);
}

TEST(folder, refuses_a_file_outside_the_classes_unless_labels_are_off) {
  TempFolder temp;
  temp.write("cat/1", "x");
  temp.write("readme", "x");
  temp.write("aaa", "x");
  const auto refused = Folder::scan(temp.path(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message, testing::AllOf(HasSubstr("'aaa'"), HasSubstr("--no-label")));
  ScanOptions options;
  options.labels = false;
  const Folder folder = Folder::scan(temp.path(), options).value();
  EXPECT_THAT(names(folder), ElementsAre("aaa", "cat/1", "readme"));
  EXPECT_TRUE(folder.classes().empty());
}

TEST(folder, follows_links_to_files_only_and_reports_the_rest) {
  TempFolder temp, outside;
  outside.write("real", "12345");
  outside.write("dir/inner", "x");
  temp.write("c/file", "x");
  ASSERT_EQ(symlink(outside.at("real").c_str(), temp.at("c/link").c_str()), 0);
  ASSERT_EQ(symlink(outside.at("dir").c_str(), temp.at("c/dirlink").c_str()), 0);
  ASSERT_EQ(mkfifo(temp.at("c/pipe").c_str(), 0600), 0);
  ScanOptions options;
  std::vector<std::string> left_out;
  options.left_out = [&](const LeftOut& entry) {
    EXPECT_FALSE(entry.failed);
    left_out.push_back(entry.name + " " + entry.why);
  };
  const Folder folder = Folder::scan(temp.path(), options).value();
  EXPECT_THAT(names(folder), ElementsAre("c/file", "c/link"));
  EXPECT_EQ(folder.files().at(1).value().size_bytes, 5u);
  EXPECT_THAT(left_out, testing::UnorderedElementsAre("c/dirlink is a link to a folder", "c/pipe is a named pipe"));
}

TEST(folder, stops_at_a_link_to_nothing_or_leaves_it_out) {
  TempFolder temp;
  temp.write("c/file", "x");
  ASSERT_EQ(symlink("nowhere", temp.at("c/broken").c_str()), 0);
  const auto stopped = Folder::scan(temp.path(), {});
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, Code::kSourceChanged);
  EXPECT_THAT(stopped.error().message, HasSubstr("c/broken"));
  ScanOptions options;
  options.skip_errors = true;
  int failed = 0;
  options.left_out = [&](const LeftOut& entry) { failed += entry.failed && entry.name == "c/broken" ? 1 : 0; };
  EXPECT_THAT(names(Folder::scan(temp.path(), options).value()), ElementsAre("c/file"));
  EXPECT_EQ(failed, 1);
}

TEST(folder, walks_paths_of_4095_bytes_and_refuses_longer_ones) {
  TempFolder temp;
  const std::string level(255, 'd');
  ASSERT_EQ(chdir(temp.path().c_str()), 0);
  std::string name;
  for (int depth = 0; depth < 15; ++depth) {  // 15 * 256 = 3840
    ASSERT_EQ(mkdir(level.c_str(), 0700), 0);
    ASSERT_EQ(chdir(level.c_str()), 0);
    name += level + "/";
  }
  const std::string fits(255, 'f');
  FILE* file = fopen(fits.c_str(), "w");
  ASSERT_NE(file, nullptr);
  fclose(file);
  const auto folder = Folder::scan(temp.path(), {});
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_THAT(names(*folder), ElementsAre(name + fits));
  ASSERT_EQ(mkdir("e", 0700), 0);
  ASSERT_EQ(mkdir((std::string("e/") + level).c_str(), 0700), 0);
  const auto refused = Folder::scan(temp.path(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("4,095"));
  ASSERT_EQ(chdir("/"), 0);
}

TEST(folder, leaves_out_the_volume_that_is_being_replaced) {
  TempFolder temp;
  temp.write("c/1", "x");
  temp.write("old.dlfs", "volume");
  struct stat status{};
  ASSERT_EQ(stat(temp.at("old.dlfs").c_str(), &status), 0);
  ScanOptions options;
  options.exclude = ScanOptions::Identity{status.st_dev, status.st_ino};
  EXPECT_THAT(names(Folder::scan(temp.path(), options).value()), ElementsAre("c/1"));
}

TEST(folder, says_what_is_wrong_with_its_path) {
  TempFolder temp;
  temp.write("file", "x");
  EXPECT_EQ(Folder::scan(temp.at("missing"), {}).error().code, Code::kNotFound);
  EXPECT_THAT(Folder::scan(temp.at("file"), {}).error().message, HasSubstr("not a folder"));
  temp.make_folder("empty");
  EXPECT_THAT(Folder::scan(temp.at("empty"), {}).error().message, HasSubstr("holds no file"));
}

TEST(folder, scan_stops_when_told_to) {
  TempFolder temp;
  for (int i = 0; i < 2000; ++i) temp.write("c/" + std::to_string(i), "");
  ScanOptions options;
  options.progress = [](std::uint64_t) { return false; };
  EXPECT_EQ(Folder::scan(temp.path(), options).error().code, Code::kInterrupted);
}

}  // namespace
}  // namespace dlfs::ingest
