#include "ingest/chunk_size.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace dlfs::ingest {
namespace {

std::uint32_t of_equal(std::uint64_t bytes) { return suit_chunk_bytes(std::vector<std::uint64_t>(4096, bytes)); }

TEST(ChunkSize, small_records_take_the_usual_one) {
  for (const std::uint64_t bytes : {1ull, 544ull, 4128ull, 16416ull}) EXPECT_EQ(of_equal(bytes), 256u << 10) << bytes;
  EXPECT_EQ(suit_chunk_bytes(std::vector<std::uint64_t>()), 256u << 10);
  EXPECT_EQ(of_equal(0), 256u << 10);
}

TEST(ChunkSize, records_of_half_a_chunk_take_a_larger_one) { EXPECT_EQ(of_equal((128u << 10) + 32), 1u << 20); }

TEST(ChunkSize, records_of_many_chunks_take_a_smaller_one) {
  EXPECT_EQ(of_equal((1u << 20) + 32), 64u << 10);
  EXPECT_EQ(of_equal((3u << 20) + 32), 64u << 10);
}

TEST(ChunkSize, photographs_waste_little) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> size(std::log(110.0 * 1024), 0.6);
  std::vector<std::uint64_t> records;
  std::uint64_t total = 0, chunks = 0, left = 0, large = 0;
  for (int i = 0; i < 4096; ++i) total += records.emplace_back(static_cast<std::uint64_t>(size(random)));
  const std::uint64_t chunk = suit_chunk_bytes(records);
  for (const std::uint64_t record : records) {
    if (record > chunk) {
      large += (record + chunk - 1) / chunk;
      continue;
    }
    if (record > left) ++chunks, left = chunk;
    left -= record;
  }
  EXPECT_LT(static_cast<double>((chunks + large) * chunk), 1.15 * static_cast<double>(total)) << chunk;
}

}  // namespace
}  // namespace dlfs::ingest
