// The system's TCP.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "net/network.h"
#include "net/system_poller.h"

namespace dlfs::net {
namespace {

Address address_of(int fd, int (*get)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (get(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

Moved failed(int error) noexcept {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return {.state = Moved::State::kWouldBlock};
  return {.state = Moved::State::kFailed, .errno_value = error};
}

void set_option(int fd, int level, int option, int value) noexcept {
  setsockopt(fd, level, option, &value, sizeof value);  // each only makes things better
}

// Within one machine there is no congestion, and a congestion control that paces (BBR, the default of some systems)
// halves the rate of large reads: docs/performance.md. Reno is in every kernel and open to every user.
void use_reno(int fd) noexcept {
  static constexpr std::string_view kName = "reno";
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kName.data(), kName.size());
}

class SystemStream final : public Stream, public HasDescriptor {
 public:
  SystemStream(int fd, const Address& peer) noexcept : fd_(fd) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (peer.loopback()) use_reno(fd);
  }
  ~SystemStream() override { close(fd_); }
  int descriptor() const noexcept override { return fd_; }

  Moved receive(std::span<std::byte> first, std::span<std::byte> second) noexcept override {
    ssize_t got = 0;
    if (first.empty() || second.empty()) {
      const auto only = first.empty() ? second : first;
      got = recv(fd_, only.data(), only.size(), MSG_DONTWAIT);
    } else {
      std::array<iovec, 2> parts{iovec{first.data(), first.size()}, iovec{second.data(), second.size()}};
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = parts.size();
      got = recvmsg(fd_, &message, MSG_DONTWAIT);
    }
    if (got > 0) return {.state = Moved::State::kSome, .bytes = static_cast<std::size_t>(got)};
    return got == 0 ? Moved{.state = Moved::State::kClosed} : failed(errno);
  }

  Moved send(std::span<const std::span<const std::byte>> pieces) noexcept override {
    std::array<iovec, kMaxPieces> parts;
    const std::size_t count = std::min(pieces.size(), kMaxPieces);
    for (std::size_t i = 0; i < count; ++i) {
      parts[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};  // sendmsg only reads
    }
    ssize_t gone = 0;
    if (count == 1) {
      gone = ::send(fd_, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = count;
      gone = sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (gone < 0) return failed(errno);
    return {.state = gone > 0 ? Moved::State::kSome : Moved::State::kWouldBlock,
            .bytes = static_cast<std::size_t>(gone)};
  }

  Moved finish_connect() noexcept override {
    pollfd state{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&state, 1, 0) <= 0) return {};
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return {.state = Moved::State::kFailed, .errno_value = error};
    return {.state = Moved::State::kSome};
  }

  Address local() const override { return address_of(fd_, getsockname); }
  Address peer() const override { return address_of(fd_, getpeername); }

 private:
  int fd_;
};

class SystemListener final : public Listener, public HasDescriptor {
 public:
  explicit SystemListener(int fd) noexcept : fd_(fd) {}
  ~SystemListener() override { close(fd_); }
  int descriptor() const noexcept override { return fd_; }
  Address local() const override { return address_of(fd_, getsockname); }

  Result<std::unique_ptr<Stream>> accept() override {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return std::unique_ptr<Stream>(std::make_unique<SystemStream>(fd, address_of(fd, getpeername)));
    switch (errno) {
      case EMFILE:
      case ENFILE:
        return base::errno_error(errno, "cannot accept a connection (raise the limit of open files: ulimit -n)");
      case ENOMEM:
      case ENOBUFS:
        return base::errno_error(errno, "cannot accept a connection");
      default:  // nobody waits, or the one who waited has gone (accept(2): errors of the network come through here)
        return std::unique_ptr<Stream>();
    }
  }

 private:
  int fd_;
};

class SystemNetwork final : public Network {
 public:
  std::uint64_t now_ns() const noexcept override { return monotonic_ns(); }

  Result<std::vector<Address>> resolve(const Endpoint& endpoint) override {
    if (auto number = Address::from_number(endpoint.host, endpoint.port); number.ok()) return std::vector{*number};
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int status = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
    const int error = errno;
    if (status == EAI_SYSTEM)
      return base::errno_error(error, fmt::format("cannot look up host {}", base::escape(endpoint.host)));
    if (status == EAI_AGAIN) {
      return base::make_error(Code::kTimedOut, "cannot look up host {}: {}; try again, or give its address",
                              base::escape(endpoint.host), gai_strerror(status));
    }
    if (status != 0) {
      return base::make_error(Code::kNotFound, "cannot look up host {}: {}", base::escape(endpoint.host),
                              gai_strerror(status));
    }
    std::vector<Address> addresses;
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      addresses.emplace_back(each->ai_addr, each->ai_addrlen);
    }
    freeaddrinfo(found);
    return addresses;
  }

  Result<std::unique_ptr<Stream>> connect(const Address& to) override {
    const int fd = socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return base::errno_error(errno, "cannot make a socket");
    auto stream = std::make_unique<SystemStream>(fd, to);
    if (::connect(fd, to.get(), to.length()) != 0 && errno != EINPROGRESS) {
      const int error = errno;
      return base::errno_error(error, fmt::format("cannot connect to {}", to.text()));
    }
    return std::unique_ptr<Stream>(std::move(stream));
  }

  Result<std::unique_ptr<Listener>> listen(const Address& at) override {
    const int fd = socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return base::errno_error(errno, "cannot make a socket");
    auto listener = std::make_unique<SystemListener>(fd);
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (at.family() == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (bind(fd, at.get(), at.length()) != 0 || ::listen(fd, SOMAXCONN) != 0) {
      const int error = errno;
      if (error == EADDRINUSE) {
        return base::make_error(
            Code::kBusy, "another program listens on {}; choose another port, or port 0 for a free one", at.text());
      }
      if (error == EADDRNOTAVAIL) {
        return base::make_error(Code::kInvalidArgument, "{} is not an address of this machine", at.host());
      }
      return base::errno_error(error, fmt::format("cannot listen on {}", at.text()));
    }
    return std::unique_ptr<Listener>(std::move(listener));
  }

  Result<std::unique_ptr<Poller>> make_poller() override { return make_system_poller(); }
};

}  // namespace

Network& system_network() noexcept {
  static SystemNetwork network;  // without state
  return network;
}

}  // namespace dlfs::net
