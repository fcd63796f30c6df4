#include "target/connection.h"

#include <array>

#include "base/check.h"
#include "base/error.h"
#include "target/backend.h"

namespace dlfs::target {
namespace {

constexpr int kReceiveRounds = 16;  // then others have their turn
// Commands that are answered together. One send for all of a deep queue would leave each side idle while the other
// works.
constexpr std::size_t kTogether = 32;
constexpr std::size_t kStageBytes = 64u << 10;  // commands are small; data in capsules at most 4 KiB each
constexpr std::uint32_t kInCapsuleBytes = 4096;

nvme::ControllerOptions session_options(const ServerOptions& options) {
  return {.allow_header_digest = options.allow_header_digest,
          .allow_data_digest = options.allow_data_digest,
          .max_queue_entries = options.max_queue_entries,
          .in_capsule_bytes = kInCapsuleBytes,
          .stage_bytes = kStageBytes};
}

}  // namespace

Connection::Connection(Registry& registry, Backend& backend, std::unique_ptr<net::Stream> stream, std::uint64_t now_ns)
    : registry_(registry),
      backend_(backend),
      stream_(std::move(stream)),
      subsystem_(registry, stream_->local()),
      session_(session_options(registry.options()), subsystem_, now_ns) {}

Connection::~Connection() { DLFS_CHECK(held_bytes_ == 0); }

bool Connection::pump(std::uint64_t now_ns) {
  if (outlived(now_ns)) {
    close("its controller was reset or has gone");
    return false;
  }
  bool moved = false;
  for (int round = 0; round < kReceiveRounds && !draining_; ++round) {
    const nvme::Want want = session_.want();
    if (want.size() == 0) break;
    const net::Moved got = stream_->receive(want.direct, want.stage);
    if (got.state == net::Moved::State::kWouldBlock) break;
    if (got.state != net::Moved::State::kSome) {
      gone_ = true;
      close(got.state == net::Moved::State::kClosed ? "it closed the connection" : "the connection broke");
      break;
    }
    moved = true;
    session_.received(got.bytes, now_ns);
    start_requests();
    if (got.bytes < want.size()) break;
  }
  if (moved) follow_controller();
  if (session_.state() == nvme::ControllerSession::State::kFailed) after_end();
  return moved;
}

// An I/O queue whose controller is not what it was. After a standstill of this process it must be noticed before a byte
// is read: the host has sent its writes again elsewhere, and they must not be executed here, late.
bool Connection::outlived(std::uint64_t now_ns) const noexcept {
  const auto& controller = subsystem_.controller();
  if (controller == nullptr || session_.state() != nvme::ControllerSession::State::kReady || session_.qid() == 0)
    return false;
  return controller->generation != subsystem_.generation() || now_ns >= controller->expires_ns;
}

void Connection::start_requests() {
  std::array<nvme::IoRequest, kTogether> requests;
  while (const std::size_t count = session_.take(requests)) {
    for (std::size_t i = 0; i < count; ++i) backend_.start(*this, requests[i]);
    if (count == requests.size() && session_.anything_to_send()) flush();
  }
}

// What the host did to its controller on the Admin Queue, for the I/O queues and Connect.
void Connection::follow_controller() {
  if (subsystem_.controller() == nullptr || session_.state() != nvme::ControllerSession::State::kReady ||
      session_.qid() != 0)
    return;
  Controller& controller = *subsystem_.controller();
  controller.expires_ns = session_.expires_ns();
  const nvme::ControllerStatus& status = session_.controller_status();
  const bool enabled = status.ready && status.shutdown == nvme::ShutdownState::kNormal;
  if (enabled == was_enabled_) return;
  was_enabled_ = enabled;
  controller.enabled = enabled;
  if (enabled && !controller.discovery)
    registry_.log(
        fmt::format("host {} is connected (controller {})", base::escape(controller.hostnqn), controller.cntlid));
  if (enabled) return;
  ++controller.generation;
  poke_ = true;
}

bool Connection::flush() {
  bool moved = false;
  std::array<nvme::ConstBytes, net::Stream::kMaxPieces> pieces;
  blocked_ = false;
  while (!gone_) {
    const std::size_t count = session_.gather(pieces);
    if (count == 0) break;
    const net::Moved gone = stream_->send(std::span(pieces).first(count));
    session_.sent(gone.bytes);
    if (gone.state == net::Moved::State::kSome) {
      moved = true;
      continue;
    }
    blocked_ = gone.state == net::Moved::State::kWouldBlock;
    if (!blocked_) {
      gone_ = true;
      close("the connection broke");
    }
    break;
  }
  release_sent();
  return moved;
}

void Connection::release_sent() {
  std::array<std::uint32_t, 64> ids;
  while (const std::size_t count = session_.take_released(ids)) {
    for (std::size_t i = 0; i < count; ++i) release(held_[ids[i]]);
  }
}

void Connection::attend(std::uint64_t now_ns) {
  session_.tick(now_ns);
  const auto& controller = subsystem_.controller();
  if (controller != nullptr && session_.state() == nvme::ControllerSession::State::kReady) {
    if (session_.qid() == 0) {
      const std::uint32_t events = controller->events.exchange(0);
      if ((events & Controller::kEventNamespace) != 0) {
        session_.notify({nvme::AsyncEvent::kNotice, nvme::AsyncEvent::kNamespaceChanged,
                         static_cast<std::uint8_t>(nvme::LogPage::kChangedNamespaces)});
      }
      if ((events & Controller::kEventAna) != 0) {
        session_.notify(
            {nvme::AsyncEvent::kNotice, nvme::AsyncEvent::kAnaChanged, static_cast<std::uint8_t>(nvme::LogPage::kAna)});
      }
    } else if (outlived(now_ns)) {
      close("its controller was reset or has gone");
    }
  }
  if (session_.state() == nvme::ControllerSession::State::kFailed) after_end();
}

void Connection::close(std::string_view why) {
  session_.disconnected(why);
  after_end();
}

// The session failed: requests that are nowhere else come back at once; those at a device come back from there.
void Connection::after_end() {
  if (ended_) return;
  ended_ = true;
  backend_.forget(*this);
  for (std::uint32_t id = 0; id < held_.size(); ++id) {
    Held& held = held_[id];
    if (held.hold != Hold::kMemory && held.hold != Hold::kHost) continue;
    session_.complete(id, nvme::StatusCode::kInternalError);
    release(held);
  }
  release_sent();
  const auto& controller = subsystem_.controller();
  if (controller == nullptr) return;
  const bool admin = session_.qid() == 0;
  if (admin && !controller->discovery) {
    registry_.log(fmt::format("host {} has gone (controller {}): {}", base::escape(controller->hostnqn),
                              controller->cntlid, session_.error().message));
  }
  registry_.leave(*controller, session_.qid());
  poke_ = admin;
}

bool Connection::finished() const noexcept {
  if (session_.in_flight() > 0 || held_bytes_ > 0) return false;
  if (ended_) return gone_ || !session_.anything_to_send() || blocked_;
  return draining_ && !session_.anything_to_send();
}

Connection::Held& Connection::held(std::uint32_t id) {
  if (id >= held_.size()) held_.resize(id + 1);
  return held_[id];
}

void Connection::attach(Held& held, std::byte* buffer, std::uint32_t length) noexcept {
  held.buffer = buffer;
  held.length = length;
  held_bytes_ += length;
}

void Connection::complete(std::uint32_t id, const nvme::Status& status, nvme::ConstBytes data) {
  Held& held = held_[id];
  const bool sends = status.ok() && !data.empty() && session_.state() != nvme::ControllerSession::State::kFailed;
  session_.complete(id, status, status.ok() ? data : nvme::ConstBytes{});
  if (sends && held.buffer != nullptr) {
    held.hold = Hold::kSending;
  } else {
    release(held);
  }
}

void Connection::release(Held& held) noexcept {
  held.hold = Hold::kNothing;
  if (held.buffer == nullptr) return;
  held_bytes_ -= held.length;
  backend_.give_buffer(std::exchange(held.buffer, nullptr), held.length);
}

}  // namespace dlfs::target
