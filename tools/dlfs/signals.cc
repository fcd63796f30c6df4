#include "signals.h"

#include <atomic>
#include <csignal>

namespace dlfs::tools {
namespace {

std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) { caught.store(signal, std::memory_order_relaxed); }

}  // namespace

void catch_interrupts() noexcept {
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup stays nohup
  }
}

int interrupted() noexcept { return caught.load(std::memory_order_relaxed); }

Error interrupted_error(const char* sentence) { return Error{Code::kInterrupted, sentence}; }

}  // namespace dlfs::tools
