#include "units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace dlfs::tools {
namespace {

constexpr std::string_view kPrefixes = "kmgtp";

// The factor that a suffix such as "KiB" stands for; nothing for an unknown one.
std::optional<double> factor(std::string_view suffix) {
  std::string lower;
  for (const char c : suffix) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.empty() || lower == "b") return 1.0;
  const std::size_t power = kPrefixes.find(lower[0]);
  if (power == std::string_view::npos) return std::nullopt;
  const std::string_view rest = std::string_view(lower).substr(1);
  const double exponent = static_cast<double>(power + 1);
  if (rest.empty() || rest == "ib") return std::pow(1024.0, exponent);
  if (rest == "b") return std::pow(1000.0, exponent);
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t whole = 0, fraction = 0, scale = 1;
  std::size_t at = 0, digits = 0;
  bool in_fraction = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '.' && !in_fraction) {
      in_fraction = true;
    } else if (c < '0' || c > '9') {
      break;
    } else if (++digits > 20 || (in_fraction && scale > 1'000'000'000)) {
      return std::nullopt;
    } else if (in_fraction) {
      fraction = fraction * 10 + static_cast<std::uint64_t>(c - '0');
      scale *= 10;
    } else if (__builtin_mul_overflow(whole, 10, &whole) ||
               __builtin_add_overflow(whole, static_cast<std::uint64_t>(c - '0'), &whole)) {
      return std::nullopt;
    }
  }
  while (at < text.size() && text[at] == ' ') ++at;
  const auto multiplier = factor(text.substr(at));
  if (digits == 0 || !multiplier) return std::nullopt;
  const auto unit = static_cast<std::uint64_t>(*multiplier);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(whole, unit, &bytes)) return std::nullopt;
  const auto part = static_cast<unsigned __int128>(fraction) * unit;
  if (part % scale != 0 || __builtin_add_overflow(bytes, static_cast<std::uint64_t>(part / scale), &bytes))
    return std::nullopt;
  return bytes;
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

std::optional<double> parse_seconds(std::string_view text, double limit) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  const bool in_range = value > 0 && value <= limit;  // false for a NaN
  if (error != std::errc() || stopped != end || !in_range) return std::nullopt;
  return value;
}

std::string size_text(double bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1023.95 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string count_text(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string plural(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count_text(count), noun, count == 1 ? "" : "s");
}

std::string duration_text(double seconds) {
  if (seconds < 0.01) return fmt::format("{:.2f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 0);
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace dlfs::tools
