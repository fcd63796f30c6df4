#include "reader/channel.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/check.h"
#include "base/error.h"

namespace dlfs::reader {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
              std::atomic<std::uint32_t>::is_always_lock_free);

timespec to_timespec(std::chrono::nanoseconds duration) {
  const auto ns = std::max<std::int64_t>(duration.count(), 0);
  return {.tv_sec = static_cast<time_t>(ns / 1'000'000'000), .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds longest) noexcept {
  const timespec timeout = to_timespec(longest);
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

Result<std::shared_ptr<Channel>> Channel::create(std::size_t capacity, std::uint64_t limit_bytes,
                                                 std::uint64_t slab_floor_bytes) {
  std::shared_ptr<Channel> channel(new Channel(capacity, limit_bytes, slab_floor_bytes));
  channel->eventfd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (channel->eventfd_ < 0) return base::errno_error(errno, "cannot make an eventfd for the reader");
  return channel;
}

Channel::Channel(std::size_t capacity, std::uint64_t limit_bytes, std::uint64_t slab_floor_bytes)
    : pool_(limit_bytes, slab_floor_bytes), ring_(std::bit_ceil(capacity)) {}

Channel::~Channel() {
  if (eventfd_ >= 0) close(eventfd_);
}

BatchBody* Channel::new_body() {
  if (spare_.empty()) {
    bodies_.push_back(std::make_unique<BatchBody>());
    spare_.reserve(bodies_.size());
    return bodies_.back().get();
  }
  BatchBody* body = spare_.back();
  spare_.pop_back();
  return body;
}

void Channel::recycle(BatchBody* body) {
  body->ids.clear();
  body->records.clear();
  body->fields.clear();
  body->draws.clear();
  body->places.clear();
  body->missing.clear();
  body->sources.clear();
  body->buffers.clear();
  body->located = body->planned = body->flawed = false;
  body->padding = body->waiting = 0;
  body->payload_bytes = 0;
  body->skipped = 0;
  body->resolved = 0;
  spare_.push_back(body);
}

std::size_t Channel::ready() const noexcept {
  return tail_.load(std::memory_order_seq_cst) - head_.load(std::memory_order_seq_cst);
}

void Channel::publish(BatchBody* body) noexcept {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  DLFS_CHECK(tail - head_.load(std::memory_order_acquire) < ring_.size());
  ring_[tail & (ring_.size() - 1)] = body;
  tail_.store(tail + 1, std::memory_order_seq_cst);
  signal_consumer();
}

void Channel::signal_consumer() noexcept {
  published_.fetch_add(1, std::memory_order_seq_cst);
  if (consumer_waits_.load(std::memory_order_seq_cst)) futex_wake(published_);
}

BatchBody* Channel::take_returned() noexcept {
  if (returned_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return returned_.exchange(nullptr, std::memory_order_acquire);
}

void Channel::sleep(int descriptor, std::chrono::nanoseconds longest, std::uint64_t events,
                    std::size_t wake_below) noexcept {
  wake_below_.store(static_cast<std::int64_t>(wake_below), std::memory_order_seq_cst);
  if (this->events() == events || ready() > wake_below) {
    pollfd descriptors[2] = {{.fd = eventfd_, .events = POLLIN, .revents = 0},
                             {.fd = descriptor, .events = POLLIN, .revents = 0}};
    const timespec timeout = to_timespec(longest);
    ppoll(descriptors, descriptor < 0 ? 1 : 2, longest == std::chrono::nanoseconds::max() ? nullptr : &timeout,
          nullptr);
    if ((descriptors[0].revents & POLLIN) != 0) drain_eventfd();
  }
  wake_below_.store(-1, std::memory_order_seq_cst);
}

void Channel::drain_eventfd() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(eventfd_, &count, sizeof count);
}

void Channel::wake_poller() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(eventfd_, &one, sizeof one);
}

void Channel::note_event() noexcept {
  events_.fetch_add(1, std::memory_order_seq_cst);
  std::int64_t below = wake_below_.load(std::memory_order_seq_cst);
  if (below < 0 || ready() > static_cast<std::uint64_t>(below)) return;
  if (wake_below_.compare_exchange_strong(below, -1, std::memory_order_seq_cst)) wake_poller();
}

void Channel::declare_starved(std::uint64_t releases, std::uint64_t wanted_bytes) noexcept {
  if (starved_.load(std::memory_order_relaxed) == releases + 1) return;
  starved_bytes_.store(wanted_bytes, std::memory_order_relaxed);
  starved_.store(releases + 1, std::memory_order_seq_cst);
  signal_consumer();
}

bool Channel::starved() const noexcept { return starved_.load(std::memory_order_seq_cst) == releases() + 1; }

BatchBody* Channel::try_take() noexcept {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  if (tail_.load(std::memory_order_acquire) == head) return nullptr;
  BatchBody* body = ring_[head & (ring_.size() - 1)];
  head_.store(head + 1, std::memory_order_seq_cst);
  note_event();
  return body;
}

Channel::Taken Channel::take(Clock::time_point deadline, std::chrono::nanoseconds patience, BatchBody** body) noexcept {
  for (;;) {
    const std::uint32_t published = published_.load(std::memory_order_seq_cst);
    *body = try_take();
    if (*body != nullptr) return Taken::kBody;
    const Clock::time_point now = Clock::now();
    Clock::time_point until = deadline;
    if (starved()) {
      const std::uint64_t given_back = releases();
      if (starved_since_release_ != given_back) starved_until_ = now + patience;
      starved_since_release_ = given_back;
      until = std::min(until, starved_until_);
      if (now >= starved_until_) return Taken::kStarved;
    } else {
      starved_since_release_.reset();
    }
    if (now >= deadline) return Taken::kTimedOut;
    consumer_waits_.store(true, std::memory_order_seq_cst);
    if (stalled_.load(std::memory_order_seq_cst)) note_event();
    futex_wait(published_, published, until - now);
    consumer_waits_.store(false, std::memory_order_seq_cst);
  }
}

Channel::Taken Channel::take_now(BatchBody** body) noexcept {
  *body = try_take();
  if (*body != nullptr) return Taken::kBody;
  consumer_waits_.store(true, std::memory_order_seq_cst);  // as the poller's rescue of a batch without memory wants it
  return starved() ? Taken::kStarved : Taken::kTimedOut;
}

void Channel::give_back(BatchBody* body) noexcept {
  BatchBody* top = returned_.load(std::memory_order_relaxed);
  do {
    body->next_returned = top;
  } while (!returned_.compare_exchange_weak(top, body, std::memory_order_release, std::memory_order_relaxed));
  releases_.fetch_add(1, std::memory_order_seq_cst);
  note_event();
}

}  // namespace dlfs::reader
