#include "dlfs/latency.h"

#include <gtest/gtest.h>

namespace dlfs::tools {
namespace {

TEST(latency, percentiles_are_within_three_percent) {
  Latency latency;
  for (std::uint64_t us = 1; us <= 100'000; ++us) latency.add(us * 1000);
  EXPECT_NEAR(latency.percentile_ms(0.5), 50, 1.5);
  EXPECT_NEAR(latency.percentile_ms(0.99), 99, 3);
  EXPECT_NEAR(latency.percentile_ms(1), 100, 3);
}

TEST(latency, takes_every_duration) {
  Latency latency;
  EXPECT_EQ(latency.percentile_ms(0.5), 0);
  for (int shift = 0; shift < 64; ++shift) latency.add(std::uint64_t{1} << shift);
  latency.add(0);
  latency.add(~std::uint64_t{0});
  EXPECT_NEAR(latency.percentile_ms(1) / (18446744073709551615.0 / 1e6), 1, 0.03);
}

}  // namespace
}  // namespace dlfs::tools
