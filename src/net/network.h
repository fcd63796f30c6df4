// Byte streams, waiting and time, behind an interface: the system's TCP, or a simulation of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dlfs/result.h"
#include "net/address.h"

namespace dlfs::net {

struct Moved {
  enum class State : std::uint8_t {
    kSome,        // `bytes` were moved, at least one
    kWouldBlock,  // nothing now; wait for readiness
    kClosed,      // receive: the peer closed its side, nothing more will come
    kFailed,      // errno_value says why; the stream is of no more use
  };
  State state = State::kWouldBlock;
  std::size_t bytes = 0;
  int errno_value = 0;
};

// One connection, non-blocking. **Thread**: one at a time. Destruction closes it at once.
class Stream {
 public:
  virtual ~Stream() = default;
  // Fills `first`, then `second` (either may be empty, not both): one system call.
  virtual Moved receive(std::span<std::byte> first, std::span<std::byte> second) noexcept = 0;
  // Sends a prefix of `pieces` (at most kMaxPieces are looked at): one system call. Never raises SIGPIPE.
  static constexpr std::size_t kMaxPieces = 256;
  virtual Moved send(std::span<const std::span<const std::byte>> pieces) noexcept = 0;
  // After connect(): kWouldBlock until the connection stands (writable then), kSome (0 bytes) when it does, kFailed.
  virtual Moved finish_connect() noexcept = 0;
  virtual Address local() const = 0;
  virtual Address peer() const = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // The next waiting connection; null when there is none now. **Errors**: kIo, kOutOfMemory (too many open files): try
  // again later.
  virtual Result<std::unique_ptr<Stream>> accept() = 0;
  virtual Address local() const = 0;  // with the port that was taken
};

// Waits for streams, listeners, one timer and wake(). Level-triggered.
// **Thread**: one at a time, but for wake(). **Lifetime**: what is watched is forgotten before it is destroyed.
class Poller {
 public:
  struct Interest {
    bool readable = true, writable = false;
    bool operator==(const Interest&) const = default;
  };
  struct Ready {
    std::uint64_t tag = 0;
    bool readable = false, writable = false;  // both when the stream failed: the next call on it says how
  };
  virtual ~Poller() = default;
  // Begins or changes; the same interest again costs nothing. The stream or listener is of the same Network.
  virtual Result<void> watch(Stream& stream, std::uint64_t tag, Interest interest) = 0;
  virtual Result<void> watch(Listener& listener, std::uint64_t tag) = 0;
  // Watches a descriptor of someone else's for reading (a BlockDevice's wait_descriptor()).
  virtual Result<void> watch(int descriptor, std::uint64_t tag) = 0;
  virtual void forget(Stream& stream) noexcept = 0;
  virtual void forget(Listener& listener) noexcept = 0;
  virtual void forget(int descriptor) noexcept = 0;
  // When wait() ends though nothing is ready, and descriptor() becomes readable. ~0: never. Stays until it is set
  // again; the same or a later time than that of the last call costs no system call when it can be avoided (waking a
  // little early is allowed).
  virtual void set_timer(std::uint64_t at_ns) noexcept = 0;
  // Readiness, in no order; 0 when the timer is due, wake() was called, a signal came, or `longest` passed (zero: does
  // not sleep).
  virtual std::size_t wait(std::span<Ready> into, std::chrono::nanoseconds longest) noexcept = 0;
  // Readable when wait() would return at once (level-triggered until wait() has been called): may stand in another
  // poll set. -1 in a simulation.
  virtual int descriptor() const noexcept = 0;
  virtual void wake() noexcept = 0;  // **Thread**: any. Also async-signal-safe.
};

// **Thread**: any. The system's network has no state; a simulated one is used by one thread.
class Network {
 public:
  virtual ~Network() = default;
  virtual std::uint64_t now_ns() const noexcept = 0;  // monotonic (CLOCK_MONOTONIC)
  // All addresses of a name, in the system's order of preference. **Blocks** as long as the resolver does.
  // **Errors**: kNotFound (unknown host), kIo, kTimedOut.
  virtual Result<std::vector<Address>> resolve(const Endpoint& endpoint) = 0;
  // Begins to connect; never blocks. TCP_NODELAY is set. **Errors**: kIo.
  virtual Result<std::unique_ptr<Stream>> connect(const Address& to) = 0;
  // **Errors**: kBusy (address in use), kInvalidArgument (not an address of this machine), kIo (EACCES: a
  // port that needs privileges).
  virtual Result<std::unique_ptr<Listener>> listen(const Address& at) = 0;
  virtual Result<std::unique_ptr<Poller>> make_poller() = 0;
};

Network& system_network() noexcept;

}  // namespace dlfs::net
