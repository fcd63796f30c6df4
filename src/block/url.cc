#include "block/url.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/try.h"

namespace dlfs::block {
namespace {

constexpr std::string_view kKnown = "a PATH, file:PATH, nvme-tcp://HOST:PORT/NQN, null:1GiB or mem:NAME?size=1GiB";
constexpr std::size_t kMaxNameBytes = 255;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The scheme in lower case, or empty when `text` is a plain path.
std::string scheme_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || !is_letter(text[0])) return {};
  std::string scheme(text.substr(0, colon));
  for (char& c : scheme) {
    if (!is_letter(c) && !is_digit(c) && c != '+' && c != '-' && c != '.') return {};
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return scheme;
}

Result<Url> parse_file(std::string_view text, std::string_view path) {
  if (path.starts_with("//")) {
    if (!path.starts_with("///")) {
      return base::make_error(Code::kInvalidArgument, "device URL '{}' names a host; write file:/PATH for a local file",
                              base::shorten(text));
    }
    path.remove_prefix(2);
  }
  if (path.empty()) {
    return base::make_error(Code::kInvalidArgument, "device URL '{}' has no path; write file:PATH", base::shorten(text));
  }
  return Url{.scheme = Scheme::kFile, .path = std::string(path)};
}

Result<std::uint64_t> size_option(std::string_view text, std::string_view value) {
  auto number = parse_size(value);
  if (number.ok()) return number;
  return base::make_error(Code::kInvalidArgument, "device URL '{}': {}", base::shorten(text), number.error().message);
}

Result<void> parse_block(std::string_view text, std::string_view value, Url& url) {
  DLFS_TRY_ASSIGN(const std::uint64_t number, size_option(text, value));
  if (!std::has_single_bit(number) || number > 65536) {
    return base::make_error(Code::kInvalidArgument, "device URL '{}': block must be a power of two up to 64KiB",
                            base::shorten(text));
  }
  url.block_bytes = static_cast<std::uint32_t>(number);
  return {};
}

// The options behind '?' of mem: and null:, and that the size fits the blocks.
Result<void> parse_options(std::string_view text, std::string_view query, Url& url) {
  const bool memory = url.scheme == Scheme::kMemory;
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view option = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    const std::size_t equals = option.find('=');
    const std::string_view key = option.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
    if (key == "block") {
      DLFS_TRY(parse_block(text, value, url));
    } else if (key == "size" && memory) {
      DLFS_TRY_ASSIGN(url.size_bytes, size_option(text, value));
    } else {
      return base::make_error(Code::kInvalidArgument, "device URL '{}' has an unknown option '{}'; {}",
                              base::shorten(text), base::shorten(key),
                              memory ? "mem: takes size and block" : "null: takes block");
    }
  }
  if (url.size_bytes % url.block_bytes != 0) {
    return base::make_error(Code::kInvalidArgument,
                            "device URL '{}': the size must be a multiple of the block size, {} bytes",
                            base::shorten(text), url.block_bytes);
  }
  return {};
}

std::pair<std::string_view, std::string_view> split_query(std::string_view rest) {
  const std::size_t mark = rest.find('?');
  return {rest.substr(0, mark), mark == std::string_view::npos ? std::string_view() : rest.substr(mark + 1)};
}

Result<Url> parse_memory(std::string_view text, std::string_view rest) {
  const auto [name, query] = split_query(rest);
  const auto plain = [](char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '_' || c == '-' || c == '/'; };
  if (name.empty() || name.size() > kMaxNameBytes || !std::all_of(name.begin(), name.end(), plain)) {
    return base::make_error(Code::kInvalidArgument,
                            "device URL '{}' needs a name of 1 to {} letters, digits, '.', '_', '-' or '/'; write "
                            "mem:NAME?size=1GiB",
                            base::shorten(text), kMaxNameBytes);
  }
  Url url{.scheme = Scheme::kMemory, .path = std::string(name)};
  DLFS_TRY(parse_options(text, query, url));
  return url;
}

Result<Url> parse_null(std::string_view text, std::string_view rest) {
  const auto [size, query] = split_query(rest);
  Url url{.scheme = Scheme::kNull, .path = std::string(rest)};
  DLFS_TRY_ASSIGN(url.size_bytes, size_option(text, size));
  DLFS_TRY(parse_options(text, query, url));
  return url;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  if (text.empty()) return base::make_error(Code::kInvalidArgument, "the device URL is empty; give {}", kKnown);
  if (text.find('\0') != std::string_view::npos) {
    return base::make_error(Code::kInvalidArgument, "device URL '{}' holds a NUL byte; no file has such a name",
                            base::shorten(text));
  }
  const std::string scheme = scheme_of(text);
  if (scheme.empty()) return Url{.scheme = Scheme::kFile, .path = std::string(text)};
  const std::string_view rest = text.substr(scheme.size() + 1);
  if (scheme == "file") return parse_file(text, rest);
  if (scheme == "mem") return parse_memory(text, rest);
  if (scheme == "null") return parse_null(text, rest);
  if (scheme == "nvme-tcp") return Url{.scheme = Scheme::kNvmeTcp, .path = std::string(text)};
  return base::make_error(Code::kInvalidArgument,
                          "device URL '{}' has the unknown scheme '{}:'; give {} (a file of that name is written ./{})",
                          base::shorten(text), base::shorten(scheme), kKnown, base::shorten(text));
}

Result<std::uint64_t> parse_size(std::string_view text) {
  struct Unit {
    std::string_view name;
    std::uint64_t factor;
  };
  constexpr std::array kUnits{Unit{"", 1},
                              Unit{"B", 1},
                              Unit{"KiB", 1ull << 10},
                              Unit{"MiB", 1ull << 20},
                              Unit{"GiB", 1ull << 30},
                              Unit{"TiB", 1ull << 40},
                              Unit{"kB", 1000},
                              Unit{"MB", 1000'000},
                              Unit{"GB", 1000'000'000},
                              Unit{"TB", 1000'000'000'000}};
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  const auto* unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == suffix; });
  if (status == std::errc::invalid_argument || (status == std::errc() && unit == kUnits.end())) {
    return base::make_error(Code::kInvalidArgument,
                            "'{}' is not a size; write a whole number with KiB, MiB, GiB or TiB", base::shorten(text));
  }
  if (status != std::errc() || number > std::numeric_limits<std::int64_t>::max() / unit->factor || number == 0) {
    return base::make_error(Code::kInvalidArgument, "the size '{}' is out of range; it must be from 1 byte to 8 EiB",
                            base::shorten(text));
  }
  return number * unit->factor;
}

}  // namespace dlfs::block
