#include "dlfs/units.h"

#include <gtest/gtest.h>

namespace dlfs::tools {
namespace {

TEST(units, parses_sizes_as_people_write_them) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("65536"), 65536u);
  EXPECT_EQ(parse_size("12B"), 12u);
  EXPECT_EQ(parse_size("4k"), 4096u);
  EXPECT_EQ(parse_size("256KiB"), 256u << 10);
  EXPECT_EQ(parse_size("256 kib"), 256u << 10);
  EXPECT_EQ(parse_size("1GiB"), 1u << 30);
  EXPECT_EQ(parse_size("1GB"), 1'000'000'000u);
  EXPECT_EQ(parse_size("1.5K"), 1536u);
  EXPECT_EQ(parse_size("64T"), std::uint64_t{64} << 40);
  EXPECT_EQ(parse_size("18446744073709551615"), ~std::uint64_t{0});
}

TEST(units, refuses_what_is_not_a_whole_size) {
  for (const char* text : {"", "k", "x", "1x", "1KiBs", "-1", "+1", "1e3", "0x10", "1.2.3", ".", "1.3",
                           "18446744073709551616", "16777216T", "999999999999999999999", "1 2"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(units, reads_counts_as_decimal_digits_only) {
  EXPECT_EQ(parse_count("0"), 0u);
  EXPECT_EQ(parse_count("010"), 10u);
  EXPECT_EQ(parse_count("18446744073709551615"), ~std::uint64_t{0});
  for (const char* text : {"", "-1", "+1", "1.5", "1e3", "0x10", " 1", "1 ", "18446744073709551616"}) {
    EXPECT_EQ(parse_count(text), std::nullopt) << text;
  }
}

TEST(units, reads_seconds_that_are_finite_and_above_0) {
  EXPECT_EQ(parse_seconds("2.5", 10), 2.5);
  EXPECT_EQ(parse_seconds("10", 10), 10);
  for (const char* text : {"", "0", "-1", "10.1", "nan", "inf", "1e99", "1s", "x"}) {
    EXPECT_EQ(parse_seconds(text, 10), std::nullopt) << text;
  }
}

TEST(units, writes_sizes_counts_and_durations) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1.0 KiB");
  EXPECT_EQ(size_text(1048575), "1.0 MiB");
  EXPECT_EQ(size_text(55250913), "52.7 MiB");
  EXPECT_EQ(count_text(7), "7");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(60000), "60,000");
  EXPECT_EQ(count_text(1234567890), "1,234,567,890");
  EXPECT_EQ(plural(1, "sample"), "1 sample");
  EXPECT_EQ(plural(60000, "sample"), "60,000 samples");
  EXPECT_EQ(duration_text(0.0005), "0.50 ms");
  EXPECT_EQ(duration_text(1.9), "1.90 s");
  EXPECT_EQ(duration_text(42.3), "42 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
}

}  // namespace
}  // namespace dlfs::tools
