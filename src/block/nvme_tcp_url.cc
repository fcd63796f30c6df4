// nvme-tcp:// URLs, and who this host says that it is.
#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <set>
#include <type_traits>

#include "base/error.h"
#include "base/mix.h"
#include "base/try.h"
#include "block/nvme_tcp.h"

namespace dlfs::block {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kScheme = "nvme-tcp://";
constexpr std::size_t kMaxPaths = 16, kMaxUrlBytes = 8192;
constexpr std::uint64_t kMaxMilliseconds = 24ull * 3600 * 1000;

template <class... Args>
Error wrong(std::string_view text, fmt::format_string<Args...> format, Args&&... args) {
  return base::make_error(Code::kInvalidArgument, "device URL '{}': {}", base::shorten(text),
                          fmt::format(format, std::forward<Args>(args)...));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// %XX undone. The error is for the caller to word.
std::optional<std::string> unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size() || hex_digit(text[i + 1]) < 0 || hex_digit(text[i + 2]) < 0) return std::nullopt;
    plain.push_back(static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])));
    i += 2;
  }
  return plain;
}

std::string escape_url(std::string_view plain) {
  std::string text;
  for (const char c : plain) {
    const bool safe = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      std::string_view("-._~:").find(c) != std::string_view::npos;
    if (safe) {
      text.push_back(c);
    } else {
      text += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return text;
}

// Base 2.0, 4.5 (NVMe Qualified Names): UTF-8 of 1 to 223 bytes; control characters would only be trouble.
bool is_nqn(std::string_view name) {
  return !name.empty() && name.size() <= nvme::kMaxNqnBytes && std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x21 || c == 0x7F;
  });
}

std::optional<std::array<std::byte, 16>> parse_uuid(std::string_view text) {
  std::array<std::byte, 16> uuid{};
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == '-') continue;
    const int digit = hex_digit(c);
    if (digit < 0 || digits == 32) return std::nullopt;
    uuid[digits / 2] = static_cast<std::byte>(std::to_integer<int>(uuid[digits / 2]) << 4 | digit);
    ++digits;
  }
  return digits == 32 ? std::optional(uuid) : std::nullopt;
}

std::string uuid_text(const std::array<std::byte, 16>& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text.push_back('-');
    text += fmt::format("{:02x}", std::to_integer<unsigned>(uuid[i]));
  }
  return text;
}

Result<std::uint64_t> parse_number(std::string_view text, std::string_view key, std::string_view value,
                                   std::uint64_t low, std::uint64_t high) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (value.empty() || status != std::errc() || end != value.data() + value.size() || number < low || number > high) {
    return wrong(text, "{} must be a whole number from {} to {}, not '{}'", key, low, high, base::shorten(value));
  }
  return number;
}

// "500ms", "10s", "2min"; a plain number is seconds. `zero` allows 0.
Result<milliseconds> parse_time(std::string_view text, std::string_view key, std::string_view value, bool zero) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
  const std::string_view unit = value.substr(static_cast<std::size_t>(end - value.data()));
  const std::uint64_t factor = unit == "ms" ? 1 : unit == "s" || unit.empty() ? 1000 : unit == "min" ? 60'000 : 0;
  if (value.empty() || status != std::errc() || factor == 0 || number > kMaxMilliseconds / factor ||
      (number == 0 && !zero)) {
    return wrong(text, "{} must be a time such as 500ms, 10s or 2min{}, not '{}'", key, zero ? " (0: none)" : "",
                 base::shorten(value));
  }
  return milliseconds(number * factor);
}

Result<bool> parse_switch(std::string_view text, std::string_view key, std::string_view value) {
  if (value == "1" || value == "on" || value == "true" || value.empty()) return true;
  if (value == "0" || value == "off" || value == "false") return false;
  return wrong(text, "{} must be on or off, not '{}'", key, base::shorten(value));
}

struct TimeOption {
  std::string_view key;
  milliseconds NvmeTcpUrl::* member;
  bool zero;
};
constexpr std::array kTimes{
    TimeOption{"connect_timeout", &NvmeTcpUrl::connect_timeout, false},
    TimeOption{"keep_alive", &NvmeTcpUrl::keep_alive, true},
    TimeOption{"io_timeout", &NvmeTcpUrl::io_timeout, false},
    TimeOption{"ctrl_loss_timeout", &NvmeTcpUrl::ctrl_loss_timeout, true},
    TimeOption{"reconnect_delay", &NvmeTcpUrl::reconnect_delay, false},
};
constexpr std::string_view kOptions =
    "nsid, hostnqn, hostid, header_digest, data_digest, queues, queue_depth, connect_timeout, keep_alive, io_timeout, "
    "ctrl_loss_timeout and reconnect_delay";

Result<void> parse_option(std::string_view text, std::string_view key, const std::string& value, NvmeTcpUrl& url) {
  for (const TimeOption& time : kTimes) {
    if (time.key != key) continue;
    DLFS_TRY_ASSIGN(url.*time.member, parse_time(text, key, value, time.zero));
    return {};
  }
  const auto number = [&](std::uint32_t& into, std::uint64_t low, std::uint64_t high) -> Result<void> {
    DLFS_TRY_ASSIGN(const std::uint64_t parsed, parse_number(text, key, value, low, high));
    into = static_cast<std::uint32_t>(parsed);
    return {};
  };
  if (key == "nsid") return number(url.nsid, 1, nvme::kMaxNsid);
  if (key == "queues") return number(url.queues, 1, 64);
  if (key == "queue_depth") return number(url.queue_depth, 1, nvme::HostSession::kMaxDepth);
  if (key == "header_digest" || key == "data_digest") {
    DLFS_TRY_ASSIGN((key == "header_digest" ? url.header_digest : url.data_digest), parse_switch(text, key, value));
    return {};
  }
  if (key == "hostnqn") {
    if (!is_nqn(value)) return wrong(text, "hostnqn must be 1 to {} printable characters", nvme::kMaxNqnBytes);
    url.hostnqn = value;
    return {};
  }
  if (key == "hostid") {
    const auto uuid = parse_uuid(value);
    if (!uuid || *uuid == std::array<std::byte, 16>{}) {
      return wrong(text, "hostid must be a UUID such as 2cd2c43b-a90a-45c1-a8cd-86b33ab273b5 that is not zero");
    }
    url.hostid = *uuid;
    return {};
  }
  return wrong(text, "unknown option '{}'; there are {}", base::shorten(key), kOptions);
}

Result<void> parse_query(std::string_view text, std::string_view query, NvmeTcpUrl& url) {
  std::set<std::string_view> seen;
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view option = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    const std::size_t equals = option.find('=');
    const std::string_view key = option.substr(0, equals);
    if (!seen.insert(key).second) return wrong(text, "option '{}' is given twice", base::shorten(key));
    const auto value = unescape(equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1));
    if (!value) return wrong(text, "the value of '{}' has a '%' without two hexadecimal digits", base::shorten(key));
    DLFS_TRY(parse_option(text, key, *value, url));
  }
  return {};
}

Result<void> parse_paths(std::string_view text, std::string_view authority, NvmeTcpUrl& url) {
  while (true) {
    const std::size_t comma = authority.find(',');
    auto endpoint = net::parse_endpoint(authority.substr(0, comma), kNvmeTcpPort);
    if (!endpoint.ok()) return wrong(text, "{}", endpoint.error().message);
    if (endpoint->port == 0) return wrong(text, "port 0 is no port to connect to");
    if (url.paths.size() == kMaxPaths) return wrong(text, "more than {} paths", kMaxPaths);
    if (std::find(url.paths.begin(), url.paths.end(), *endpoint) != url.paths.end()) {
      return wrong(text, "the path {} is given twice", endpoint->text());
    }
    url.paths.push_back(*std::move(endpoint));
    if (comma == std::string_view::npos) return {};
    authority.remove_prefix(comma + 1);
  }
}

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word.size() <= nvme::kMaxNqnBytes ? word : std::string();
}

// Deterministic, so that a target sees the same host every time: from the machine's id, and the same bytes in all
// processes.
std::array<std::byte, 16> machine_uuid(std::string_view etc) {
  const std::string id = first_word(std::string(etc) + "/machine-id");
  std::uint64_t a = 0x646C'6673'2068'6F73, b = 0x7420'6964'656E'7469;
  for (const char c : id) {
    a = base::mix64(a ^ static_cast<unsigned char>(c));
    b = base::mix64(b + static_cast<unsigned char>(c));
  }
  std::array<std::byte, 16> uuid;
  for (std::size_t i = 0; i < 8; ++i) {
    uuid[i] = static_cast<std::byte>(a >> (8 * i));
    uuid[8 + i] = static_cast<std::byte>(b >> (8 * i));
  }
  uuid[6] = (uuid[6] & std::byte{0x0F}) | std::byte{0x80};  // RFC 9562: version 8, free form
  uuid[8] = (uuid[8] & std::byte{0x3F}) | std::byte{0x80};
  return uuid;
}

}  // namespace

Result<NvmeTcpUrl> parse_nvme_tcp_url(std::string_view text) {
  if (!text.starts_with(kScheme)) {
    return wrong(text, "write nvme-tcp://HOST:PORT/NQN?nsid=1");
  }
  if (text.size() > kMaxUrlBytes) return wrong(text, "longer than {} bytes", kMaxUrlBytes);
  std::string_view rest = text.substr(kScheme.size());
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) {
    return wrong(text, "no '/NQN' behind the host; `dlfs discover {}` lists the NQNs that are there",
                 base::shorten(rest.substr(0, rest.find('?'))));
  }
  NvmeTcpUrl url;
  DLFS_TRY(parse_paths(text, rest.substr(0, slash), url));
  rest.remove_prefix(slash + 1);
  const std::size_t mark = rest.find('?');
  const auto subnqn = unescape(rest.substr(0, mark));
  if (!subnqn || !is_nqn(*subnqn)) {
    return wrong(text, "the NQN behind the host must be 1 to {} printable characters ('%' is written %25, '?' %3F)",
                 nvme::kMaxNqnBytes);
  }
  url.subnqn = *subnqn;
  if (mark != std::string_view::npos) DLFS_TRY(parse_query(text, rest.substr(mark + 1), url));
  return url;
}

std::string NvmeTcpUrl::canonical() const {
  const NvmeTcpUrl defaults;
  std::string text(kScheme);
  for (std::size_t i = 0; i < paths.size(); ++i) text += (i > 0 ? "," : "") + paths[i].text();
  text += fmt::format("/{}?nsid={}", escape_url(subnqn), nsid);
  if (!hostnqn.empty()) text += "&hostnqn=" + escape_url(hostnqn);
  if (hostid != defaults.hostid) text += "&hostid=" + uuid_text(hostid);
  if (header_digest) text += "&header_digest=on";
  if (data_digest) text += "&data_digest=on";
  if (queues != defaults.queues) text += fmt::format("&queues={}", queues);
  if (queue_depth != defaults.queue_depth) text += fmt::format("&queue_depth={}", queue_depth);
  for (const TimeOption& time : kTimes) {
    if (this->*time.member != defaults.*time.member)
      text += fmt::format("&{}={}ms", time.key, (this->*time.member).count());
  }
  return text;
}

void fill_host_identity(NvmeTcpUrl& url, std::string_view etc) {
  const std::array<std::byte, 16> none{};
  if (url.hostnqn.empty()) {
    const std::string configured = first_word(std::string(etc) + "/nvme/hostnqn");
    if (is_nqn(configured)) {
      url.hostnqn = configured;
      const auto id = parse_uuid(first_word(std::string(etc) + "/nvme/hostid"));
      if (url.hostid == none && id) url.hostid = *id;
    }
  }
  if (url.hostid == none) {
    const std::size_t colon = url.hostnqn.rfind("uuid:");
    const auto id =
        colon == std::string::npos ? std::nullopt : parse_uuid(std::string_view(url.hostnqn).substr(colon + 5));
    url.hostid = id && *id != none ? *id : machine_uuid(etc);
  }
  if (url.hostnqn.empty()) url.hostnqn = "nqn.2014-08.org.nvmexpress:uuid:" + uuid_text(url.hostid);
}

}  // namespace dlfs::block
