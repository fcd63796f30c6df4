// Sizes, counts and times as people write and read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dlfs::tools {

// "65536", "256KiB", "4k", "1.5GiB", "1MB". K, M, G, T, with or without iB, are powers of 1024; KB, MB, GB, TB of 1000;
// any case. Nothing when it is not a size, is not a whole number of bytes, or exceeds 64 bits.
std::optional<std::uint64_t> parse_size(std::string_view text);

// Decimal digits and nothing else: no sign, no fraction, no other base. Nothing when it is not that or exceeds 64 bits.
std::optional<std::uint64_t> parse_count(std::string_view text);
// A finite number above 0 and at most `limit`, such as "2.5".
std::optional<double> parse_seconds(std::string_view text, double limit);

std::string size_text(double bytes);                             // "52.7 MiB"
std::string count_text(std::uint64_t count);                     // "60,000"
std::string plural(std::uint64_t count, std::string_view noun);  // "1 sample", "60,000 samples"
std::string duration_text(double seconds);                       // "1.9 s", "3 min 20 s", "2 h 5 min"

}  // namespace dlfs::tools
