#include "ingest/source_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "temp_folder.h"

namespace dlfs::ingest {
namespace {

using testing::HasSubstr;

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class SourceReaderTest : public testing::Test {
 protected:
  SourceReaderTest() { temp_.write("c/f", "hello"); }
  void scan() {
    folder_.emplace(Folder::scan(temp_.path(), {}).value());
    file_ = folder_->files().at(0).value();
  }
  // The same size and another content, with the time of change set by hand: time stamps may be coarse.
  void touch(const std::string& name, time_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, temp_.at(name).c_str(), times, 0), 0);
  }
  void expect_changed(std::string_view why) {
    std::vector<std::byte> bytes;
    const auto read = read_whole(*folder_, file_, bytes);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kSourceChanged);
    EXPECT_THAT(read.error().message, testing::AllOf(HasSubstr("'c/f'"), HasSubstr(std::string(why))));
  }
  TempFolder temp_;
  std::optional<Folder> folder_;
  SourceFile file_;
};

TEST_F(SourceReaderTest, reads_a_file_as_listed) {
  scan();
  std::vector<std::byte> bytes;
  ASSERT_TRUE(read_whole(*folder_, file_, bytes).ok());
  EXPECT_EQ(text(bytes), "hello");
}

TEST_F(SourceReaderTest, notices_another_size) {
  scan();
  temp_.write("c/f", "hello!");
  expect_changed("6");
}

TEST_F(SourceReaderTest, notices_another_content_of_the_same_size) {
  touch("c/f", 1000);
  scan();
  temp_.write("c/f", "HELLO");
  touch("c/f", 2000);
  expect_changed("written to");
}

TEST_F(SourceReaderTest, notices_a_file_that_vanished) {
  scan();
  std::filesystem::remove(temp_.at("c/f"));
  expect_changed("vanished");
}

TEST_F(SourceReaderTest, does_not_hang_on_a_pipe_in_the_files_place) {
  scan();
  std::filesystem::remove(temp_.at("c/f"));
  ASSERT_EQ(mkfifo(temp_.at("c/f").c_str(), 0600), 0);
  expect_changed("regular");
}

TEST_F(SourceReaderTest, notices_a_change_while_it_reads) {
  scan();
  auto reader = SourceReader::open(*folder_, file_).value();
  std::byte part[2];
  ASSERT_TRUE(reader.read(part).ok());
  std::filesystem::resize_file(temp_.at("c/f"), 3);
  std::byte rest[3];
  const auto cut = reader.read(rest);
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().message, HasSubstr("ends at byte 3 of 5"));

  temp_.write("c/f", "hello");
  scan();
  auto second = SourceReader::open(*folder_, file_).value();
  std::byte whole[5];
  ASSERT_TRUE(second.read(whole).ok());
  temp_.write("c/f", "hello and more");
  EXPECT_THAT(second.finish().error().message, HasSubstr("grew"));
}

TEST_F(SourceReaderTest, copies_a_large_file_once_it_is_known_to_be_good) {
  std::string large(3'000'001, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31 >> 3);
  temp_.write("c/f", large);
  scan();
  const auto copy = MappedCopy::make(*folder_, file_, temp_.path()).value();
  EXPECT_TRUE(text(copy.bytes()) == large);
  std::filesystem::resize_file(temp_.at("c/f"), 10);
  EXPECT_EQ(MappedCopy::make(*folder_, file_, temp_.path()).error().code, Code::kSourceChanged);
}

}  // namespace
}  // namespace dlfs::ingest
