#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "block/device.h"

namespace dlfs::block {
namespace {

using ::testing::HasSubstr;

std::string name(const char* suffix) { return "mem:unit-" + std::to_string(getpid()) + "-" + suffix; }

TEST(MemoryDevice, handles_of_one_name_share_bytes_until_the_last_closes) {
  const std::string url = name("shared");
  std::vector<std::byte> block(512, std::byte{42});
  {
    auto first = open_device(url + "?size=64KiB", {.write = true});
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ((*first)->url(), url);
    auto second = open_device(url);
    ASSERT_TRUE(second.ok()) << second.error().message;
    ASSERT_TRUE(write_all(**first, 512, block).ok());
    first->reset();
    std::vector<std::byte> read(512);
    ASSERT_TRUE(read_all(**second, 512, read).ok());
    EXPECT_EQ(read, block);
  }
  const auto gone = open_device(url);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, Code::kNotFound);
  EXPECT_THAT(gone.error().message, HasSubstr("?size=1GiB to make it"));
}

TEST(MemoryDevice, another_size_is_refused_while_it_is_open) {
  const std::string url = name("size");
  auto device = open_device(url + "?size=64KiB", {.write = true});
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE(open_device(url + "?size=65536").ok());
  const auto other = open_device(url + "?size=128KiB");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Code::kInvalidArgument);
  EXPECT_THAT(other.error().message, HasSubstr("is open with 65536 bytes"));
}

TEST(MemoryDevice, has_the_block_size_that_was_asked_for) {
  auto device = open_device(name("block") + "?size=64KiB&block=4096", {.write = true});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->geometry().block_bytes, 4096u);
  std::vector<std::byte> half(512);
  const auto result = write_all(**device, 0, half);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("multiples of 4096"));
}

TEST(MemoryDevice, completes_out_of_order) {
  auto device = open_device(name("order") + "?size=64KiB", {});
  ASSERT_TRUE(device.ok());
  std::vector<std::byte> memory(64 * 512);
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 64; ++i) requests.push_back({Op::kRead, memory.data() + i * 512, 512, i * 512, i});
  ASSERT_EQ((*device)->submit(requests), 64u);
  std::vector<Completion> done(64);
  ASSERT_EQ((*device)->poll(done), 64u);
  const auto earlier = [](const Completion& a, const Completion& b) { return a.user_data < b.user_data; };
  EXPECT_FALSE(std::is_sorted(done.begin(), done.end(), earlier));
}

TEST(MemoryDevice, a_size_beyond_memory_is_an_error) {
  const auto device = open_device(name("huge") + "?size=4194304TiB");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, Code::kOutOfMemory);
}

}  // namespace
}  // namespace dlfs::block
