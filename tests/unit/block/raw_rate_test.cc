#include "block/raw_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_file.h"

namespace dlfs::block {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

TEST(RawRate, counts_what_it_read) {
  const TemporaryFile file(4u << 20);
  const auto rate = measure_random_reads(
      file.path(), {.request_bytes = 8192, .depth = 7, .total_bytes = 100 * 8192, .duration = 60s});
  ASSERT_TRUE(rate.ok()) << rate.error().message;
  EXPECT_EQ(rate->requests, 100u);
  EXPECT_EQ(rate->bytes, 100u * 8192);
  EXPECT_GT(rate->seconds, 0);
  EXPECT_NEAR(rate->bytes_per_s * rate->seconds, static_cast<double>(rate->bytes), 1);
  EXPECT_NEAR(rate->requests_per_s * rate->seconds, 100, 1e-3);
  EXPECT_NE(rate->engine, "");
}

TEST(RawRate, stops_by_time) {
  const TemporaryFile file(4u << 20);
  const auto rate = measure_random_reads(file.path(), {.request_bytes = 4096, .depth = 4, .duration = 50ms});
  ASSERT_TRUE(rate.ok()) << rate.error().message;
  EXPECT_GE(rate->seconds, 0.02);
  EXPECT_LT(rate->seconds, 10);
  EXPECT_GT(rate->requests, 0u);
  EXPECT_GT(rate->cpu_seconds, 0);
}

TEST(RawRate, stays_within_its_span) {
  const TemporaryFile file(1u << 20);
  // The span's end lies past the file's: only the 16 KiB that exist may be read, else a read fails with EIO.
  const auto rate = measure_random_reads(file.path(), {.request_bytes = 4096,
                                                       .total_bytes = 4u << 20,
                                                       .duration = 60s,
                                                       .first_byte = (1u << 20) - (16u << 10),
                                                       .span_bytes = 1u << 20});
  ASSERT_TRUE(rate.ok()) << rate.error().message;
  EXPECT_EQ(rate->bytes, 4u << 20);
}

TEST(RawRate, refuses_what_does_not_fit) {
  const TemporaryFile file(1u << 20);
  const auto odd = measure_random_reads(file.path(), {.request_bytes = 1000});
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(odd.error().message, HasSubstr("use multiples of"));
  const auto large = measure_random_reads(file.path(), {.request_bytes = 2u << 20});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, Code::kInvalidArgument);
  EXPECT_THAT(large.error().message, HasSubstr("read less at a time"));
  const auto absent = measure_random_reads(TemporaryFile::fresh_path().string(), {});
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace dlfs::block
