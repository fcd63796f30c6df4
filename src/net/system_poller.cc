#include "net/system_poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <unordered_map>

#include "base/check.h"
#include "base/error.h"

namespace dlfs::net {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::size_t kMaxEvents = 64;

class SystemPoller final : public Poller {
 public:
  SystemPoller() = default;
  ~SystemPoller() override {
    for (const int fd : {epoll_, timer_, event_}) {
      if (fd >= 0) close(fd);
    }
  }

  Result<void> open() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_ < 0 || timer_ < 0 || event_ < 0) {
      return base::errno_error(errno,
                               "cannot make the descriptors to wait on (raise the limit of open files: ulimit -n)");
    }
    for (const int fd : {timer_, event_}) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
        return base::errno_error(errno, "cannot watch a descriptor");
    }
    return {};
  }

  Result<void> watch(Stream& stream, std::uint64_t tag, Interest interest) override {
    const std::uint32_t events =
        (interest.readable ? std::uint32_t{EPOLLIN} : 0u) | (interest.writable ? std::uint32_t{EPOLLOUT} : 0u);
    return watch_descriptor(descriptor_of(stream), tag, events);
  }
  Result<void> watch(Listener& listener, std::uint64_t tag) override {
    return watch_descriptor(descriptor_of(listener), tag, EPOLLIN);
  }
  Result<void> watch(int descriptor, std::uint64_t tag) override { return watch_descriptor(descriptor, tag, EPOLLIN); }
  void forget(Stream& stream) noexcept override { forget(descriptor_of(stream)); }
  void forget(Listener& listener) noexcept override { forget(descriptor_of(listener)); }
  void forget(int descriptor) noexcept override {
    if (watched_.erase(descriptor) > 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr);
  }

  // The timer is only ever armed for an earlier time than it is: a time that moves away costs one early wake-up.
  void set_timer(std::uint64_t at_ns) noexcept override {
    if (at_ns >= armed_ns_) return;
    armed_ns_ = at_ns;
    const std::uint64_t at = std::max<std::uint64_t>(at_ns, 1);
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(at / 1'000'000'000);
    when.it_value.tv_nsec = static_cast<long>(at % 1'000'000'000);
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  }

  std::size_t wait(std::span<Ready> into, std::chrono::nanoseconds longest) noexcept override {
    std::array<epoll_event, kMaxEvents> events;
    const int limit = static_cast<int>(std::min(into.size(), events.size()));
    if (limit == 0) return 0;
    const int found = wait_for(events.data(), limit, longest);
    std::size_t count = 0;
    for (int i = 0; i < found; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == timer_ || fd == event_) {
        quieten(fd);
        continue;
      }
      const auto watched = watched_.find(fd);
      if (watched == watched_.end()) continue;
      const std::uint32_t got = events[static_cast<std::size_t>(i)].events;
      const bool failed = (got & (EPOLLERR | EPOLLHUP)) != 0;
      into[count++] = {watched->second.tag, failed || (got & EPOLLIN) != 0, failed || (got & EPOLLOUT) != 0};
    }
    return count;
  }

  int descriptor() const noexcept override { return epoll_; }

  void wake() noexcept override {
    const int saved = errno;
    const std::uint64_t one = 1;
    while (write(event_, &one, sizeof one) < 0 && errno == EINTR) {
    }
    errno = saved;
  }

 private:
  struct Watched {
    std::uint64_t tag = 0;
    std::uint32_t events = 0;
  };

  template <class T>
  static int descriptor_of(T& object) noexcept {
    const auto* has = dynamic_cast<const HasDescriptor*>(&object);
    DLFS_CHECK(has != nullptr);
    return has->descriptor();
  }

  Result<void> watch_descriptor(int fd, std::uint64_t tag, std::uint32_t events) {
    const auto known = watched_.find(fd);
    if (known != watched_.end() && known->second.events == events) {
      known->second.tag = tag;
      return {};
    }
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (epoll_ctl(epoll_, known == watched_.end() ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0) {
      return base::errno_error(errno, "cannot watch a connection");
    }
    watched_[fd] = {tag, events};
    return {};
  }

  int wait_for(epoll_event* events, int limit, std::chrono::nanoseconds longest) noexcept {
    if (longest <= std::chrono::nanoseconds::zero()) return epoll_wait(epoll_, events, limit, 0);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
    const timespec timeout{.tv_sec = static_cast<time_t>(seconds.count()),
                           .tv_nsec = static_cast<long>((longest - seconds).count())};
    const bool for_ever = longest == std::chrono::nanoseconds::max();
    const int found = epoll_pwait2(epoll_, events, limit, for_ever ? nullptr : &timeout, nullptr);
    if (found >= 0 || errno != ENOSYS) return found;
    const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(
        std::min<std::chrono::nanoseconds>(longest, std::chrono::hours(1)));
    return epoll_wait(epoll_, events, limit, static_cast<int>(rounded.count()));  // before Linux 5.11
  }

  void quieten(int fd) noexcept {
    if (fd == timer_) armed_ns_ = kNever;
    std::uint64_t count = 0;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
  }

  int epoll_ = -1, timer_ = -1, event_ = -1;
  std::uint64_t armed_ns_ = kNever;
  std::unordered_map<int, Watched> watched_;
};

}  // namespace

Result<std::unique_ptr<Poller>> make_system_poller() {
  auto poller = std::make_unique<SystemPoller>();
  if (auto opened = poller->open(); !opened.ok()) return std::move(opened).error();
  return std::unique_ptr<Poller>(std::move(poller));
}

std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace dlfs::net
