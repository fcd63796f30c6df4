#include "ingest/read_ahead.h"

#include <gtest/gtest.h>

#include "temp_folder.h"

namespace dlfs::ingest {
namespace {

std::string content(std::uint64_t i) {
  return std::string(i % 700, static_cast<char>('a' + i % 26)) + std::to_string(i);
}

class ReadAheadTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kFiles = 500;
  ReadAheadTest() {
    for (std::uint64_t i = 0; i < kFiles; ++i) temp_.write("c/" + std::to_string(1000 + i), content(i));
    folder_.emplace(Folder::scan(temp_.path(), {}).value());
  }
  TempFolder temp_;
  std::optional<Folder> folder_;
};

TEST_F(ReadAheadTest, delivers_every_file_in_the_order_asked_whatever_the_limits) {
  const auto order = [](std::uint64_t p) { return (p * 123 + 7) % kFiles; };  // 123 and 500 have no common factor
  for (const unsigned threads : {1u, 5u}) {
    for (const std::size_t files : {2u, 7u, 1024u}) {
      for (const std::size_t memory_bytes : {1u, 40'000u, 64u << 20}) {
        ReadAhead ahead(*folder_, order, {.threads = threads, .memory_bytes = memory_bytes, .files = files});
        for (std::uint64_t p = 0; p < kFiles; ++p) {
          const LoadedFile* loaded = ahead.next();
          ASSERT_NE(loaded, nullptr);
          ASSERT_FALSE(loaded->error.has_value());
          ASSERT_EQ(loaded->index, order(p));
          ASSERT_EQ(loaded->file.name, "c/" + std::to_string(1000 + order(p)));
          ASSERT_TRUE(loaded->whole);
          const std::string expected = content(order(p));
          ASSERT_EQ(std::string(reinterpret_cast<const char*>(loaded->bytes.data()), loaded->bytes.size()), expected);
        }
        ASSERT_EQ(ahead.next(), nullptr);
      }
    }
  }
}

TEST_F(ReadAheadTest, leaves_large_files_to_the_packer) {
  ReadAhead ahead(*folder_, [](std::uint64_t p) { return p; }, {.whole_bytes = 100});
  std::uint64_t large = 0;
  while (const LoadedFile* loaded = ahead.next()) {
    EXPECT_EQ(loaded->whole, loaded->file.size_bytes <= 100);
    if (!loaded->whole) {
      EXPECT_TRUE(loaded->bytes.empty());
      ++large;
    }
  }
  EXPECT_GT(large, 300u);
}

TEST_F(ReadAheadTest, delivers_the_error_of_a_bad_file_in_its_place) {
  std::filesystem::remove(temp_.at("c/1017"));
  ReadAhead ahead(*folder_, [](std::uint64_t p) { return p; });
  std::uint64_t failed = 0;
  while (const LoadedFile* loaded = ahead.next()) {
    if (loaded->error) {
      EXPECT_EQ(loaded->index, 17u);
      EXPECT_EQ(loaded->error->code, Code::kSourceChanged);
      ++failed;
    }
  }
  EXPECT_EQ(failed, 1u);
}

TEST_F(ReadAheadTest, can_be_dropped_half_way) {
  for (int taken = 0; taken < 40; taken += 13) {
    ReadAhead ahead(*folder_, [](std::uint64_t p) { return p; }, {.files = 8});
    for (int i = 0; i < taken; ++i) ASSERT_NE(ahead.next(), nullptr);
  }
}

}  // namespace
}  // namespace dlfs::ingest
