#include "target/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace dlfs::target {
namespace {

TEST(BufferPool, GivesAlignedMemoryWithinItsLimit) {
  BufferPool pool(64u << 10);
  std::vector<std::byte*> held;
  while (std::byte* buffer = pool.take(4096)) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer) % 4096, 0u);
    std::memset(buffer, 7, 4096);
    held.push_back(buffer);
  }
  EXPECT_EQ(held.size(), 16u);
  EXPECT_EQ(pool.used_bytes(), 64u << 10);
  for (std::byte* buffer : held) pool.give(buffer, 4096);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(BufferPool, SmallBuffersThatAreKeptMakeRoomForLargeOnes) {
  BufferPool pool(1u << 20);
  std::vector<std::byte*> held;
  for (int i = 0; i < 256; ++i) held.push_back(pool.take(512));
  EXPECT_EQ(pool.take(1), nullptr);
  for (std::byte* buffer : held) pool.give(buffer, 512);
  std::byte* large = pool.take(BufferPool::kMaxBytes);
  ASSERT_NE(large, nullptr);
  std::memset(large, 1, BufferPool::kMaxBytes);
  EXPECT_EQ(pool.take(4096), nullptr);
  pool.give(large, BufferPool::kMaxBytes);
  EXPECT_EQ(pool.take(BufferPool::kMaxBytes), large) << "the warm one again";
  pool.give(large, BufferPool::kMaxBytes);
}

}  // namespace
}  // namespace dlfs::target
