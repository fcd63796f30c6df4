#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/error.h"
#include "base/fork_guard.h"
#include "base/mix.h"
#include "base/try.h"

namespace dlfs::base {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, matches_the_published_vectors) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  // RFC 3720 B.4
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43u);
  std::vector<std::byte> ascending(32), descending(32);
  for (int i = 0; i < 32; ++i) ascending[i] = std::byte(i), descending[i] = std::byte(31 - i);
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
  EXPECT_EQ(crc32c(descending), 0x113FDB5Cu);
}

TEST(Crc32c, continues_over_any_cut) {
  const std::string text = "the quick brown fox jumps over the lazy dog, and then some more to make it long";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc32c(bytes_of(text.substr(cut)), crc32c(bytes_of(text.substr(0, cut)))), crc32c(bytes_of(text)));
  }
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Endian, is_little_at_any_alignment) {
  std::byte raw[9] = {};
  store_le<std::uint32_t>(raw + 1, 0x01020304u);
  EXPECT_EQ(raw[1], std::byte{4});
  EXPECT_EQ(raw[4], std::byte{1});
  EXPECT_EQ(load_le<std::uint32_t>(raw + 1), 0x01020304u);
}

TEST(Mix, is_pinned) {
  Prng prng(0);  // the published first outputs of SplitMix64 seeded with 0
  EXPECT_EQ(prng.next(), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(prng.next(), 0x6E789E6AA1B965F4u);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(prng.below(7), 7u);
}

TEST(Escape, keeps_text_and_hides_the_rest) {
  EXPECT_EQ(escape("train/猫/1.jpg"), "train/猫/1.jpg");
  EXPECT_EQ(escape("a\nb\\c"), "a\\x0ab\\x5cc");
  EXPECT_EQ(escape("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(escape("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(escape("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(escape("\xc2\x9b"), "\\xc2\\x9b");  // a C1 control
}

TEST(Error, maps_errno_to_codes) {
  EXPECT_EQ(errno_error(ENOSPC, "x").code, Code::kNoSpace);
  EXPECT_EQ(errno_error(ENOENT, "cannot open y").message, "cannot open y: No such file or directory");
  EXPECT_EQ(errno_error(EIO, "x").errno_value, EIO);
}

Result<int> half(int x) {
  if (x % 2) return make_error(Code::kInvalidArgument, "{} is odd", x);
  return x / 2;
}
Result<int> quarter(int x) {
  DLFS_TRY_ASSIGN(const int h, half(x));
  return half(h);
}
TEST(Result, returns_early) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
}

TEST(Arena, is_aligned_zero_and_says_its_pages) {
  for (std::size_t size : {std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
    auto arena = Arena::create(size);
    ASSERT_TRUE(arena.ok());
    EXPECT_GE(arena->bytes().size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->bytes().data()) % 4096, 0u);
    for (std::byte b : arena->bytes()) ASSERT_EQ(b, std::byte{0});
    std::memset(arena->bytes().data(), 1, arena->bytes().size());
    EXPECT_STRNE(page_kind_name(arena->page_kind()), "unknown");
  }
  EXPECT_EQ(Arena::create(~std::size_t{0}).error().code, Code::kOutOfMemory);
}

TEST(ForkGuard, sees_the_child) {
  ForkGuard guard;
  EXPECT_FALSE(guard.forked());
  const pid_t child = fork();
  if (child == 0) {
    const bool seen = guard.forked();
    guard.rearm();
    _exit(seen && !guard.forked() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(guard.forked());
}

}  // namespace
}  // namespace dlfs::base
