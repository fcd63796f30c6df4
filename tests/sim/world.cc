#include "sim/world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace dlfs::sim {
namespace {

constexpr std::uint64_t kEnd_ns = 100'000 * kSecond, kStep_ns = 500;
constexpr std::uint64_t kMaxSpins = 20'000;
constexpr std::size_t kRemembered = 60;

}  // namespace

void World::fire() {
  while (!plans_.empty() && plans_.top().at_ns <= now_ns_) {
    const auto what = plans_.top().what;
    plans_.pop();
    progress();
    what();
  }
}

std::uint64_t World::next_ns() noexcept {
  while (!times_.empty() && times_.top() <= now_ns_) times_.pop();
  std::uint64_t next_ns = times_.empty() ? ~std::uint64_t{0} : times_.top();
  for (const Actor* actor : actors) {
    const std::uint64_t at_ns = actor->next_ns();
    if (at_ns > now_ns_) next_ns = std::min(next_ns, at_ns);
  }
  return next_ns;
}

void World::run(std::uint64_t until_ns, const std::function<bool()>& done) {
  while (!done()) {
    if (now_ns_ > kEnd_ns) end("the world ran out of time: somebody waits for ever");
    fire();
    bool moved = false;
    for (std::size_t i = 0; i < actors.size(); ++i) moved |= actors[i]->step();
    if (moved) {
      now_ns_ += kStep_ns;
      continue;
    }
    if (now_ns_ >= until_ns || done()) return;
    now_ns_ = std::max(now_ns_ + 1, std::min(until_ns, next_ns()));
  }
}

void World::spun(const char* who) {
  if (++spins_ >= kMaxSpins) end(std::string(who) + " wakes up without end");
}

void World::note(std::string what) {
  for (const char c : what) trace_ = base::mix64(trace_ ^ static_cast<unsigned char>(c));
  trace_ = base::mix64(trace_ ^ now_ns_);
  log_.push_back(std::to_string(static_cast<double>(now_ns_) / kSecond) + " s  " + std::move(what));
  if (log_.size() > kRemembered) log_.pop_front();
}

void World::mark(const char* kind, std::uint64_t detail) {
  trace_ = base::mix64(trace_ ^ base::mix64(now_ns_) ^ detail);
  ++counts_[kind];
}

void World::end(const std::string& why) const {
  std::printf("FAILED: %s\n", why.c_str());
  for (const std::string& line : log_) std::printf("  %s\n", line.c_str());
  std::printf("again: %s\n", again_.c_str());
  std::fflush(stdout);
  if (ending) ending();
  std::_Exit(1);
}

}  // namespace dlfs::sim
