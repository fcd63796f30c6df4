#include "target/poller.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "base/try.h"

namespace dlfs::target {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kSpin_ns = 50'000;  // after the last thing that happened, before going to sleep
constexpr unsigned kTurnsWithoutWait = 8;   // while bytes keep coming, others are looked for now and then only
constexpr auto kLongestSleep = 1s;

}  // namespace

Result<std::unique_ptr<ServerPoller>> ServerPoller::create(Registry& registry, net::Network& network,
                                                           std::size_t memory_bytes, std::function<void()> poke_all) {
  std::unique_ptr<ServerPoller> poller(new ServerPoller(registry, network, std::move(poke_all)));
  DLFS_TRY_ASSIGN(poller->poller_, network.make_poller());
  DLFS_TRY_ASSIGN(poller->backend_, Backend::open(registry, memory_bytes));
  poller->backend_->watch(*poller->poller_, kDeviceTag);
  return poller;
}

ServerPoller::~ServerPoller() {
  abandon();
  join();
  // Without a thread (a simulation): what is at the devices has to come back first.
  while (connection_count_ > 0) turn();
}

Result<void> ServerPoller::listen(std::vector<std::unique_ptr<net::Listener>>& listeners,
                                  std::function<void(std::unique_ptr<net::Stream>)> place) {
  listeners_ = &listeners;
  place_ = std::move(place);
  std::uint64_t tag = 1;
  for (auto& listener : listeners) DLFS_TRY(poller_->watch(*listener, tag++));
  return {};
}

void ServerPoller::adopt(std::unique_ptr<net::Stream> stream) {
  {
    const std::lock_guard lock(mail_mutex_);
    mail_.push_back(std::move(stream));
  }
  ++connection_count_;
  has_mail_ = true;
  poller_->wake();
}

void ServerPoller::poke() noexcept {
  poked_ = true;
  poller_->wake();
}

void ServerPoller::drain() noexcept {
  draining_ = true;
  poke();
}

void ServerPoller::abandon() noexcept {
  abandoned_ = true;
  drain();
}

void ServerPoller::join() {
  if (thread_.joinable()) thread_.join();
}

Result<void> ServerPoller::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return base::make_error(Code::kOutOfMemory,
                            "cannot start a poller's thread: {}; raise the limit of processes and threads",
                            error.what());
  }
  return {};
}

void ServerPoller::run() {
  pthread_setname_np(pthread_self(), "dlfs-target");
  std::uint64_t last_moved_ns = network_.now_ns();
  while (!draining_ || connection_count_ > 0) {
    const bool moved = turn();
    const std::uint64_t now_ns = network_.now_ns();
    if (moved) last_moved_ns = now_ns;
    if (moved || now_ns - last_moved_ns < kSpin_ns) continue;
    const std::uint64_t next_ns = next_turn_ns();
    const std::uint64_t sleep_ns = next_ns <= now_ns ? 0 : next_ns - now_ns;
    // One entry is enough to wake up; turn() asks again.
    std::array<net::Poller::Ready, 1> ready;
    const auto longest = std::min<std::chrono::nanoseconds>(
        kLongestSleep, std::chrono::nanoseconds(std::min<std::uint64_t>(sleep_ns, 1'000'000'000)));
    if (!poked_ && !has_mail_) poller_->wait(ready, longest);
    turns_since_wait_ = kTurnsWithoutWait;
  }
}

std::uint64_t ServerPoller::next_turn_ns() const noexcept { return next_tick_ns_; }

bool ServerPoller::turn() {
  const std::uint64_t now_ns = network_.now_ns();
  bool moved = false;
  if (has_mail_.exchange(false)) take_mail();
  if (poked_.exchange(false) || now_ns >= next_tick_ns_) attend_all(now_ns);

  std::vector<std::pair<std::uint64_t, Connection*>> hot;
  hot.swap(hot_);
  for (auto& [tag, connection] : hot) {
    if (!connection->pump(now_ns)) continue;
    moved = true;
    hot_.emplace_back(tag, connection);
    backend_->note(*connection);
  }
  if (hot_.empty() || ++turns_since_wait_ >= kTurnsWithoutWait) moved |= ready_ones(now_ns);
  moved |= backend_->submit();
  moved |= backend_->poll();
  moved |= flush_answered();
  if (may_reap_) reap();
  hot.clear();
  return moved;
}

bool ServerPoller::ready_ones(std::uint64_t now_ns) {
  turns_since_wait_ = 0;
  bool moved = false;
  std::array<net::Poller::Ready, 64> ready;
  const std::size_t count = poller_->wait(ready, 0ns);
  for (std::size_t i = 0; i < count; ++i) {
    if (ready[i].tag < kFirstTag) {
      if (ready[i].tag != kDeviceTag) {
        accept_all();
        moved = true;
      }
      continue;
    }
    const auto found = connections_.find(ready[i].tag);
    if (found == connections_.end()) continue;
    Connection& connection = *found->second;
    const bool hot = std::any_of(hot_.begin(), hot_.end(), [&](const auto& one) { return one.second == &connection; });
    if (ready[i].readable && !hot && connection.pump(now_ns)) {
      moved = true;
      hot_.emplace_back(ready[i].tag, &connection);
    }
    backend_->note(connection);
  }
  return moved;
}

void ServerPoller::accept_all() {
  for (auto& listener : *listeners_) {
    while (true) {
      auto stream = listener->accept();
      if (!stream.ok()) {
        registry_.log(stream.error().message);
        break;
      }
      if (*stream == nullptr) break;
      if (draining_) continue;
      place_(std::move(stream).value());
    }
  }
}

void ServerPoller::take_mail() {
  std::vector<std::unique_ptr<net::Stream>> mail;
  {
    const std::lock_guard lock(mail_mutex_);
    mail.swap(mail_);
  }
  const std::uint64_t now_ns = network_.now_ns();
  for (auto& stream : mail) {
    const std::uint64_t tag = next_tag_++;
    auto connection = std::make_unique<Connection>(registry_, *backend_, std::move(stream), now_ns);
    connection->tag = tag;
    if (!poller_->watch(connection->stream(), tag, {}).ok()) {
      registry_.log("a connection was closed: it cannot be watched (raise the limit of open files: ulimit -n)");
      --connection_count_;
      registry_.counters().connections.fetch_sub(1, std::memory_order_relaxed);
      continue;
    }
    next_tick_ns_ = std::min(next_tick_ns_, connection->next_tick_ns());
    poller_->set_timer(next_tick_ns_);
    connections_.emplace(tag, std::move(connection));
  }
}

// Clocks, resets, events, and the end.
void ServerPoller::attend_all(std::uint64_t now_ns) {
  next_tick_ns_ = kNever;
  for (auto& [tag, connection] : connections_) {
    connection->attend(now_ns);
    if (draining_) connection->drain();
    if (abandoned_) connection->close("the target stops");
    next_tick_ns_ = std::min(next_tick_ns_, connection->next_tick_ns());
    backend_->note(*connection);
  }
  poller_->set_timer(next_tick_ns_);
  may_reap_ = true;
}

bool ServerPoller::flush_answered() {
  bool moved = false;
  auto& answered = backend_->answered();
  // Flushing may end a connection, which notes nothing new; the list only grows by other connections' completions.
  for (std::size_t i = 0; i < answered.size(); ++i) {
    Connection& connection = *answered[i];
    connection.queued = false;
    moved |= connection.flush();
    settle(connection);
  }
  answered.clear();
  return moved;
}

void ServerPoller::settle(Connection& connection) {
  if (connection.take_poke()) poke_all_();
  next_tick_ns_ = std::min(next_tick_ns_, connection.next_tick_ns());
  poller_->set_timer(next_tick_ns_);
  (void)poller_->watch(connection.stream(), connection.tag,
                       {.readable = true, .writable = connection.wants_to_write()});
  may_reap_ |= connection.finished();
}

void ServerPoller::reap() {
  may_reap_ = false;
  for (auto each = connections_.begin(); each != connections_.end();) {
    Connection& connection = *each->second;
    if (!connection.finished()) {
      may_reap_ |= connection.ended();
      ++each;
      continue;
    }
    connection.close("the target stops");  // one that was drained tells the registry now
    if (connection.take_poke()) poke_all_();
    poller_->forget(connection.stream());
    std::erase_if(hot_, [&](const auto& one) { return one.second == &connection; });
    each = connections_.erase(each);
    --connection_count_;
    registry_.counters().connections.fetch_sub(1, std::memory_order_relaxed);
  }
}

}  // namespace dlfs::target
