// Poller over epoll, a timerfd and an eventfd.
#pragma once

#include <memory>

#include "net/network.h"

namespace dlfs::net {

// A Stream or Listener of the system's network.
class HasDescriptor {
 public:
  virtual int descriptor() const noexcept = 0;

 protected:
  ~HasDescriptor() = default;
};

Result<std::unique_ptr<Poller>> make_system_poller();

// CLOCK_MONOTONIC, in nanoseconds.
std::uint64_t monotonic_ns() noexcept;

}  // namespace dlfs::net
