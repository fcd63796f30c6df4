// The simulated world's clock, its coming events and those who act in it. All on one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "base/mix.h"

namespace dlfs::sim {

class World {
 public:
  explicit World(std::uint64_t seed) : prng(seed) {}

  base::Prng prng;  // every chance in the world comes from here
  std::uint64_t now_ns() const noexcept { return now_ns_; }
  bool chance(double probability) noexcept { return static_cast<double>(prng.next() >> 11) * 0x1p-53 < probability; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept { return low + prng.below(high - low + 1); }

  // Something will be different at this time (bytes arrive, a device finishes): the clock stops there.
  void expect(std::uint64_t at_ns) { times_.push(at_ns); }
  void at(std::uint64_t at_ns, std::function<void()> what) {
    plans_.push({at_ns, next_plan_++, std::move(what)});
    expect(at_ns);
  }

  // Acts without waiting; true when it did anything. The second says when time alone gives it more to do.
  struct Actor {
    std::function<bool()> step;
    std::function<std::uint64_t()> next_ns;
  };
  std::vector<Actor*> actors;

  void pass(std::uint64_t ns) noexcept { now_ns_ += ns; }  // work takes time

  // Lets the world go on until `done` or `until_ns`. The clock moves only here.
  void run(std::uint64_t until_ns, const std::function<bool()>& done) {
    while (!done()) {
      if (now_ns_ > kEnd_ns) give_up();
      fire();
      bool moved = false;
      for (std::size_t i = 0; i < actors.size(); ++i) moved |= actors[i]->step();
      if (moved) {
        now_ns_ += 500;  // work takes time
        continue;
      }
      if (done()) return;
      std::uint64_t next_ns = until_ns;
      while (!times_.empty() && times_.top() <= now_ns_) times_.pop();
      if (!times_.empty()) next_ns = std::min(next_ns, times_.top());
      for (const Actor* actor : actors) {
        const std::uint64_t at_ns = actor->next_ns();
        if (at_ns > now_ns_) next_ns = std::min(next_ns, at_ns);
      }
      if (now_ns_ >= until_ns) return;
      now_ns_ = std::max(now_ns_ + 1, next_ns);
    }
  }

  // Somebody who was to sleep was not: a loop that burns a processor. `why` is printed with what happened before.
  void spun(const char* who) {
    if (++spins_ < 20'000) return;
    std::fprintf(stderr, "%s wakes up without end at %.6f s; before that:\n", who, static_cast<double>(now_ns_) / 1e9);
    for (const std::string& line : log_) std::fprintf(stderr, "  %s\n", line.c_str());
    std::abort();
  }

  void progress() noexcept { spins_ = 0; }  // bytes moved, a request finished

  // What happened, for the reader of a failure; and a number that two runs of one seed share.
  void note(std::string what) {
    for (const char c : what) trace_ = base::mix64(trace_ ^ static_cast<unsigned char>(c));
    trace_ = base::mix64(trace_ ^ now_ns_);
    log_.push_back(std::to_string(static_cast<double>(now_ns_) / 1e9) + " s  " + std::move(what));
    if (log_.size() > 60) log_.pop_front();
  }
  std::uint64_t trace() const noexcept { return trace_; }
  const std::deque<std::string>& log() const noexcept { return log_; }

 private:
  struct Plan {
    std::uint64_t at_ns, number;
    std::function<void()> what;
    bool operator<(const Plan& other) const noexcept {
      return at_ns != other.at_ns ? at_ns > other.at_ns : number > other.number;
    }
  };
  void fire() {
    while (!plans_.empty() && plans_.top().at_ns <= now_ns_) {
      const auto what = plans_.top().what;
      progress();
      plans_.pop();
      what();
    }
  }

  static constexpr std::uint64_t kEnd_ns = 100'000ull * 1'000'000'000;
  [[noreturn]] void give_up() const {
    std::printf("FAILED: the world ran out of time: somebody waits for ever; before that:\n");
    for (const std::string& line : log_) std::printf("  %s\n", line.c_str());
    std::fflush(stdout);
    std::_Exit(1);
  }
  std::uint64_t spins_ = 0;
  std::uint64_t now_ns_ = 1'000'000'000, next_plan_ = 0, trace_ = 0;
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> times_;
  std::priority_queue<Plan> plans_;
  std::deque<std::string> log_;
};

}  // namespace dlfs::sim
