#include "net/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace dlfs::net {
namespace {

Error not_an_endpoint(std::string_view text) {
  return base::make_error(Code::kInvalidArgument,
                          "'{}' is not a HOST:PORT; write for example 10.1.0.7:4420, [fe80::1]:4420 or stor1:4420",
                          base::shorten(text));
}

constexpr std::size_t kMaxHostBytes = 253;  // of a name in the DNS; numbers are shorter

bool host_character(char c) {
  const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return alphanumeric || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
}

}  // namespace

std::string Endpoint::text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", host, brackets ? "]" : "", port);
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  Endpoint endpoint{.host = {}, .port = default_port};
  std::string_view rest = text;
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos) return not_an_endpoint(text);
    endpoint.host = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    if (endpoint.host.find(':') == std::string::npos) return not_an_endpoint(text);
  } else {
    const std::size_t colon = rest.find(':');
    if (colon != std::string_view::npos && rest.find(':', colon + 1) != std::string_view::npos) {
      return base::make_error(Code::kInvalidArgument,
                              "'{}' has more than one colon; write an IPv6 address in brackets: [{}]:{}",
                              base::shorten(text), base::shorten(text), default_port == 0 ? 4420 : default_port);
    }
    endpoint.host = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon);
  }
  if (endpoint.host.empty() || endpoint.host.size() > kMaxHostBytes ||
      !std::all_of(endpoint.host.begin(), endpoint.host.end(), host_character)) {
    return not_an_endpoint(text);
  }
  if (rest.empty()) return endpoint;
  if (!rest.starts_with(':')) return not_an_endpoint(text);
  rest.remove_prefix(1);
  const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), endpoint.port);
  if (rest.empty() || status != std::errc() || end != rest.data() + rest.size()) {
    return base::make_error(Code::kInvalidArgument, "'{}' has no port number from 0 to 65535 behind the colon",
                            base::shorten(text));
  }
  return endpoint;
}

Address::Address(const sockaddr* address, socklen_t length) noexcept
    : length_(std::min<socklen_t>(length, sizeof storage_)) {
  std::memcpy(&storage_, address, length_);
}

Result<Address> Address::from_number(std::string_view host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string name(host);
  if (getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return base::make_error(Code::kInvalidArgument, "'{}' is not an IPv4 or IPv6 address", base::shorten(host));
  }
  Address address(found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

std::string Address::host() const {
  char text[NI_MAXHOST] = "?";
  if (length_ > 0) getnameinfo(get(), length_, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::uint16_t Address::port() const noexcept {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return 0;
}

std::string Address::text() const { return Endpoint{host(), port()}.text(); }

bool Address::loopback() const noexcept {
  if (family() == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24 == 127;
  }
  if (family() != AF_INET6) return false;
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

bool Address::operator==(const Address& other) const noexcept {
  if (family() != other.family() || port() != other.port()) return false;
  if (family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(&other.storage_)->sin_addr.s_addr;
  }
  if (family() != AF_INET6) return length_ == other.length_;
  const auto* a = reinterpret_cast<const sockaddr_in6*>(&storage_);
  const auto* b = reinterpret_cast<const sockaddr_in6*>(&other.storage_);
  return std::memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr) == 0 && a->sin6_scope_id == b->sin6_scope_id;
}

}  // namespace dlfs::net
