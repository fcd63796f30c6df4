// Internet addresses: as people write them, and as the system takes them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dlfs/result.h"

namespace dlfs::net {

// A host and a port as written: "10.1.0.7:4420", "[fe80::1%eth0]:4420", "stor1.example:4420".
struct Endpoint {
  std::string host;  // without brackets; a name, an IPv4 or an IPv6 address
  std::uint16_t port = 0;
  std::string text() const;  // brackets around IPv6
  bool operator==(const Endpoint&) const = default;
};
// `default_port` when none is written. **Errors**: kInvalidArgument.
Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port);

// One resolved address: a value. Equality is of family, bytes, scope and port.
class Address {
 public:
  Address() = default;  // none: length() == 0
  Address(const sockaddr* address, socklen_t length) noexcept;
  // A number only, never a name ("127.0.0.1", "::1"). **Errors**: kInvalidArgument.
  static Result<Address> from_number(std::string_view host, std::uint16_t port);

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const noexcept { return length_; }
  int family() const noexcept { return storage_.ss_family; }  // AF_INET or AF_INET6
  std::string host() const;                                   // numeric, without brackets
  std::uint16_t port() const noexcept;
  std::string text() const;  // "127.0.0.1:4420", "[::1]:4420"
  bool loopback() const noexcept;
  bool operator==(const Address& other) const noexcept;

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

}  // namespace dlfs::net
