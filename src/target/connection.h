// One connection of a host: a stream, a controller session, and what its requests hold.
#pragma once

#include <memory>
#include <vector>

#include "nvme/controller_session.h"
#include "target/subsystem.h"

namespace dlfs::target {

class Backend;

// **Thread**: its poller's.
class Connection {
 public:
  Connection(Registry& registry, Backend& backend, std::unique_ptr<net::Stream> stream, std::uint64_t now_ns);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  net::Stream& stream() noexcept { return *stream_; }
  // Receives what is there, starts the requests in it; true when anything came. Sends nothing.
  bool pump(std::uint64_t now_ns);
  bool flush();  // sends what can be sent; true when anything went
  // Time, the controller's end or reset by other connections, and events for the host.
  void attend(std::uint64_t now_ns);
  std::uint64_t next_tick_ns() const noexcept { return session_.next_tick_ns(); }
  bool wants_to_write() const noexcept { return blocked_; }
  // No more commands are read; what was read is answered, then it closes.
  void drain() noexcept { draining_ = true; }
  void close(std::string_view why);
  bool finished() const noexcept;  // may be destroyed
  // The controller's other connections have something to look at. Once.
  bool take_poke() noexcept { return std::exchange(poke_, false); }

  // ---- by the backend ----
  enum class Hold : std::uint8_t { kNothing, kMemory, kHost, kDevice, kSending };  // who has the request
  struct Held {
    Hold hold = Hold::kNothing;
    std::byte* buffer = nullptr;  // of the pool
    std::uint32_t length = 0;     // of the buffer
    nvme::IoRequest request{};
  };
  Held& held(std::uint32_t id);
  nvme::ControllerSession& session() noexcept { return session_; }
  void complete(std::uint32_t id, const nvme::Status& status, nvme::ConstBytes data = {});
  std::size_t held_bytes() const noexcept { return held_bytes_; }
  void attach(Held& held, std::byte* buffer, std::uint32_t length) noexcept;
  bool queued = false;    // in the backend's list of connections that have something to send
  std::uint64_t tag = 0;  // the poller's number for it
  bool ended() const noexcept { return ended_; }

 private:
  void start_requests();
  void release(Held& held) noexcept;
  void release_sent();
  void after_end();
  void follow_controller();
  bool outlived(std::uint64_t now_ns) const noexcept;

  Registry& registry_;
  Backend& backend_;
  std::unique_ptr<net::Stream> stream_;
  ConnectionSubsystem subsystem_;
  nvme::ControllerSession session_;
  std::vector<Held> held_;  // by request id
  std::size_t held_bytes_ = 0;
  bool blocked_ = false, draining_ = false, ended_ = false, poke_ = false, gone_ = false;
  bool was_enabled_ = false;
};

}  // namespace dlfs::target
