#include "block/nvme_path.h"

#include <algorithm>
#include <bit>

#include "base/endian.h"
#include "base/error.h"

namespace dlfs::block {
namespace {

constexpr std::uint64_t kLongestRest_ns = 5'000'000'000;
// A target lets a host go after one keep-alive time of silence, or (traffic-based, Base 2.0, 3.9) two, and a grace.
constexpr std::uint64_t kExpiryMargin_ns = 1'500'000'000;
constexpr std::size_t kAdminStageBytes = 16'384;

std::uint64_t ns(std::chrono::milliseconds time) { return static_cast<std::uint64_t>(time.count()) * 1'000'000; }

// The same for the same host and path, so that a simulation repeats; different for others, so that hosts do not come
// back in step.
std::uint64_t seed_of(const NvmeTcpUrl& url, std::size_t index) {
  return base::mix64(base::load_le<std::uint64_t>(url.hostid.data()) ^
                     base::load_le<std::uint64_t>(url.hostid.data() + 8) ^ index);
}

}  // namespace

NvmePath::NvmePath(const NvmeTcpUrl& url, std::size_t index, std::vector<net::Address> addresses, std::uint32_t depth,
                   net::Network& network, net::Poller& poller)
    : url_(url),
      network_(network),
      poller_(poller),
      addresses_(std::move(addresses)),
      wanted_depth_(depth),
      name_(url.paths[index].text()),
      prng_(seed_of(url, index)) {}

nvme::HostOptions NvmePath::session_options() const {
  return {.subnqn = url_.subnqn,
          .hostnqn = url_.hostnqn,
          .hostid = url_.hostid,
          .header_digest = url_.header_digest,
          .data_digest = url_.data_digest,
          .max_r2t = 1,
          .connect_timeout_ns = ns(url_.connect_timeout)};
}

void NvmePath::begin(std::uint64_t now_ns) {
  attempt_until_ns_ = now_ns + ns(url_.connect_timeout);
  nvme::AdminOptions options{.session = session_options(),
                             .nsid = url_.nsid,
                             .io_queues = url_.queues,
                             .command_timeout_ns = ns(url_.connect_timeout)};
  options.session.keep_alive_ms = static_cast<std::uint32_t>(url_.keep_alive.count());
  options.session.stage_bytes = kAdminStageBytes;
  admin_ = std::make_unique<nvme::AdminDriver>(std::move(options));
  admin_connection_ = std::make_unique<NvmeConnection>(network_, poller_, admin_->session());
  const net::Address& address = addresses_[next_address_++ % addresses_.size()];
  state_ = State::kOpening;
  if (auto opened = admin_connection_->open(address); !opened.ok()) rest(std::move(opened).error(), false, now_ns);
}

void NvmePath::turn(std::uint64_t now_ns) {
  switch (state_) {
    case State::kResting:
    case State::kRefused:
      if (now_ns < rest_until_ns_) return;
      begin(now_ns);
      if (state_ == State::kOpening) turn_opening(now_ns);
      return;
    case State::kOpening:
      return turn_opening(now_ns);
    case State::kAdmin:
      return turn_admin(now_ns);
    case State::kQueues:
      turn_admin(now_ns);
      if (state_ == State::kQueues) turn_queues(now_ns);
      return;
    case State::kLive:
      return turn_admin(now_ns);
  }
}

void NvmePath::turn_opening(std::uint64_t now_ns) {
  auto done = admin_connection_->connected();
  if (!done.ok()) return rest(std::move(done).error(), false, now_ns);
  if (!*done) {
    if (now_ns >= attempt_until_ns_) {
      rest(base::make_error(Code::kTimedOut, "no answer within {} ms", url_.connect_timeout.count()), false, now_ns);
    }
    return;
  }
  state_ = State::kAdmin;
  admin_->start(now_ns);
  turn_admin(now_ns);
}

void NvmePath::turn_admin(std::uint64_t now_ns) {
  admin_connection_->receive(now_ns);
  admin_->session().tick(now_ns);
  admin_->advance(now_ns);
  admin_connection_->send();
  admin_->advance(now_ns);  // sending may have found the connection lost
  if (admin_->state() == nvme::AdminDriver::State::kFailed) {
    if (state_ == State::kLive) return;  // failure() says so; the owner takes what is in flight first
    return rest(admin_->error(), admin_->do_not_retry(), now_ns);
  }
  if (state_ == State::kLive) return;
  if (now_ns >= attempt_until_ns_) {
    return rest(base::make_error(Code::kTimedOut, "the controller was not ready for I/O within {} ms",
                                 url_.connect_timeout.count()),
                false, now_ns);
  }
  if (state_ == State::kAdmin && admin_->state() == nvme::AdminDriver::State::kReady) make_queues(now_ns);
}

void NvmePath::make_queues(std::uint64_t now_ns) {
  if (admin_->io_queues() == 0) return rest({Code::kIo, "the controller grants no I/O queue"}, false, now_ns);
  std::uint32_t limit = admin_->queue_entries_limit() - 1;
  if (const std::uint16_t most = admin_->controller().max_commands; most > 0)
    limit = std::min<std::uint32_t>(limit, most);
  depth_in_force_ = std::clamp(wanted_depth_, 1u, std::min<std::uint32_t>(limit, nvme::HostSession::kMaxDepth));
  // Whole blocks of 4 KiB at least, so that pieces stay aligned.
  max_transfer_bytes_ = std::min(admin_->max_transfer_bytes(), 1u << 20);
  nvme::HostOptions options = session_options();
  options.cntlid = admin_->cntlid();
  options.depth = depth_in_force_;
  options.in_capsule_bytes = admin_->in_capsule_bytes();
  state_ = State::kQueues;
  for (std::uint32_t i = 0; i < admin_->io_queues(); ++i) {
    options.qid = static_cast<std::uint16_t>(i + 1);
    queues_.push_back(std::make_unique<Queue>(network_, poller_, options));
    const net::Address& address = addresses_[(next_address_ - 1) % addresses_.size()];
    if (auto opened = queues_.back()->connection.open(address); !opened.ok()) {
      return rest(std::move(opened).error(), false, now_ns);
    }
  }
}

void NvmePath::turn_queues(std::uint64_t now_ns) {
  bool all = true;
  for (auto& queue : queues_) {
    if (!queue->started) {
      auto done = queue->connection.connected();
      if (!done.ok()) return rest(std::move(done).error(), false, now_ns);
      all = false;
      if (!*done) continue;
      queue->started = true;
      queue->session.start(now_ns);
    }
    queue->connection.receive(now_ns);
    queue->session.tick(now_ns);
    queue->connection.send();
    if (queue->session.state() == nvme::SessionState::kFailed) return rest(queue->session.error(), false, now_ns);
    all &= queue->session.state() == nvme::SessionState::kReady;
  }
  if (!all) return;
  state_ = State::kLive;
  attempts_ = 0;
  old_commands_until_ns_ = 0;
}

void NvmePath::tick(std::uint64_t now_ns) {
  for (auto& queue : queues_) queue->session.tick(now_ns);
}

std::uint64_t NvmePath::next_turn_ns() const noexcept {
  switch (state_) {
    case State::kResting:
    case State::kRefused:
      return rest_until_ns_;
    case State::kOpening:
      return attempt_until_ns_;
    case State::kAdmin:
    case State::kQueues:
    case State::kLive:
      break;
  }
  std::uint64_t next_ns = std::min(admin_->next_advance_ns(), admin_->session().next_tick_ns());
  for (const auto& queue : queues_) next_ns = std::min(next_ns, queue->session.next_tick_ns());
  return state_ == State::kLive ? next_ns : std::min(next_ns, attempt_until_ns_);
}

const Error* NvmePath::failure() const noexcept {
  if (state_ != State::kLive) return nullptr;
  for (const auto& queue : queues_) {
    if (queue->session.state() == nvme::SessionState::kFailed) return &queue->session.error();
  }
  return admin_->state() == nvme::AdminDriver::State::kFailed ? &admin_->error() : nullptr;
}

void NvmePath::lose(Error why, std::uint64_t now_ns) {
  bool peer_knows = true;
  for (const auto& queue : queues_) peer_knows &= queue->connection.closed_by_peer();
  const std::uint64_t keep_alive_ns = ns(url_.keep_alive);
  old_commands_until_ns_ = peer_knows || keep_alive_ns == 0 ? 0 : now_ns + 2 * keep_alive_ns + kExpiryMargin_ns;
  rest(std::move(why), false, now_ns);
}

void NvmePath::refuse(Error why, std::uint64_t now_ns) { rest(std::move(why), true, now_ns); }

// Twice as long after each failure, and up to half of it more or less by chance.
void NvmePath::rest(Error why, bool refused, std::uint64_t now_ns) {
  queues_.clear();
  admin_connection_.reset();
  admin_.reset();
  error_ = std::move(why);
  state_ = refused ? State::kRefused : State::kResting;
  const unsigned doublings = std::min(attempts_, 16u);
  ++attempts_;
  std::uint64_t delay_ns = std::min(ns(url_.reconnect_delay) << doublings, kLongestRest_ns);
  if (refused) delay_ns = kLongestRest_ns;
  rest_until_ns_ = now_ns + delay_ns / 2 + prng_.below(delay_ns + 1);
}

void NvmePath::abandon() noexcept {
  for (auto& queue : queues_) queue->connection.abandon();
  if (admin_connection_ != nullptr) admin_connection_->abandon();
}

}  // namespace dlfs::block
