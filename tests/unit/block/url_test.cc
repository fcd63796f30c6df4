#include "block/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dlfs::block {
namespace {

using ::testing::HasSubstr;

void expect_file(std::string_view text, std::string_view path) {
  const auto url = parse_url(text);
  ASSERT_TRUE(url.ok()) << url.error().message;
  EXPECT_EQ(url->scheme, Scheme::kFile);
  EXPECT_EQ(url->path, path);
}

void expect_error(std::string_view text, Code code, std::string_view words) {
  const auto url = parse_url(text);
  ASSERT_FALSE(url.ok()) << text;
  EXPECT_EQ(url.error().code, code) << url.error().message;
  EXPECT_THAT(url.error().message, HasSubstr(words));
}

TEST(Url, a_path_is_a_file) {
  expect_file("train.dlfs", "train.dlfs");
  expect_file("/dev/nvme1n1", "/dev/nvme1n1");
  expect_file("./mem:x", "./mem:x");
  expect_file("a b/c:d", "a b/c:d");
  expect_file("3:x", "3:x");
  expect_file(":x", ":x");
  expect_file("what?size=1", "what?size=1");
  expect_file("\xff\n", "\xff\n");
}

TEST(Url, file_is_taken_literally) {
  expect_file("file:train.dlfs", "train.dlfs");
  expect_file("FILE:/a/b", "/a/b");
  expect_file("file:///a/b", "/a/b");
  expect_file("file:mem:x", "mem:x");
  expect_file("file:a%20b?c=d&e#f", "a%20b?c=d&e#f");
}

TEST(Url, memory_has_a_name_and_a_size) {
  const auto url = parse_url("mem:set-1/a.b_c?size=1GiB&block=4096");
  ASSERT_TRUE(url.ok()) << url.error().message;
  EXPECT_EQ(url->scheme, Scheme::kMemory);
  EXPECT_EQ(url->path, "set-1/a.b_c");
  EXPECT_EQ(url->size_bytes, 1u << 30);
  EXPECT_EQ(url->block_bytes, 4096u);
  const auto bare = parse_url("mem:x");
  ASSERT_TRUE(bare.ok());
  EXPECT_EQ(bare->size_bytes, 0u);
  EXPECT_EQ(bare->block_bytes, 512u);
}

TEST(Url, errors_say_what_to_write) {
  expect_error("", Code::kInvalidArgument, "file:PATH, nvme-tcp://HOST:PORT/NQN, null:1GiB or mem:NAME?size=1GiB");
  expect_error(
      "s3:bucket", Code::kInvalidArgument,
      "unknown scheme 's3:'; give a PATH, file:PATH, nvme-tcp://HOST:PORT/NQN, null:1GiB or mem:NAME?size=1GiB");
  expect_error("s3:bucket", Code::kInvalidArgument, "./s3:bucket");
  EXPECT_EQ(parse_url("nvme-tcp://10.1.0.7:4420/nqn")->scheme, Scheme::kNvmeTcp);
  expect_error("file:", Code::kInvalidArgument, "no path");
  expect_error("file://host/x", Code::kInvalidArgument, "names a host");
  expect_error("mem:", Code::kInvalidArgument, "needs a name");
  expect_error("mem:a b?size=1", Code::kInvalidArgument, "needs a name");
  expect_error("mem:" + std::string(256, 'x'), Code::kInvalidArgument, "needs a name");
  expect_error("mem:x?length=1", Code::kInvalidArgument, "unknown option 'length'");
  expect_error("mem:x?size=much", Code::kInvalidArgument, "'much' is not a size");
  expect_error("mem:x?size", Code::kInvalidArgument, "is not a size");
  expect_error("mem:x?size=1000", Code::kInvalidArgument, "multiple of the block size");
  expect_error("mem:x?size=1MiB&block=768", Code::kInvalidArgument, "power of two");
  expect_error("mem:x?size=1MiB&block=1MiB", Code::kInvalidArgument, "power of two");
  expect_error(std::string_view("a\0b", 3), Code::kInvalidArgument, "NUL");
}

TEST(Url, sizes_have_units_and_limits) {
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("1B"), 1u);
  EXPECT_EQ(*parse_size("64KiB"), 65536u);
  EXPECT_EQ(*parse_size("3MB"), 3'000'000u);
  EXPECT_EQ(*parse_size("2TiB"), 2ull << 40);
  for (const char* bad : {"", "KiB", "1.5GiB", "-1", "+1", "1 GiB", "1gib", "0x10", " 1"}) {
    EXPECT_FALSE(parse_size(bad).ok()) << bad;
  }
  for (const char* bad : {"0", "0GiB", "99999999999999999999", "9223372036854775808", "8388608TiB"}) {
    const auto size = parse_size(bad);
    ASSERT_FALSE(size.ok()) << bad;
    EXPECT_THAT(size.error().message, HasSubstr("out of range"));
  }
  EXPECT_EQ(*parse_size("9223372036854775807"), 9223372036854775807u);
}

}  // namespace
}  // namespace dlfs::block
