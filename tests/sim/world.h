// The simulated world's clock, its coming events and those who act in it. All on one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "base/mix.h"

namespace dlfs::sim {

constexpr std::uint64_t kSecond = 1'000'000'000;

class World {
 public:
  // `again`: how to run this world once more, for those who read of its end.
  World(std::uint64_t seed, std::string again) : prng(seed), again_(std::move(again)) {}

  base::Prng prng;  // every chance in the world comes from here
  std::uint64_t now_ns() const noexcept { return now_ns_; }
  bool chance(double probability) noexcept { return static_cast<double>(prng.next() >> 11) * 0x1p-53 < probability; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept { return low + prng.below(high - low + 1); }
  template <class T>
  T one_of(std::initializer_list<T> values) noexcept {
    return values.begin()[prng.below(values.size())];
  }

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
  // How the process ends once a failure has been told. A fuzzer wants a signal, so that its input is kept.
  std::function<void()> ending;

  void pass(std::uint64_t ns) noexcept { now_ns_ += ns; }  // work takes time
  // Lets the world go on until `done` or `until_ns`. The clock moves only here and in pass().
  void run(std::uint64_t until_ns, const std::function<bool()>& done);
  void idle(std::uint64_t ns) {
    run(now_ns_ + ns, [] { return false; });
  }

  // Somebody who was to sleep was not: after many times in a row that is a loop that burns a processor.
  void spun(const char* who);
  void progress() noexcept { spins_ = 0; }  // bytes moved, a request finished

  // What happened, for the reader of a failure, and for the number that two runs of one seed share.
  void note(std::string what);
  // The same for what happens often: not told, but counted, and part of that number.
  void mark(const char* kind, std::uint64_t detail);
  // note() and mark() in one: what befell.
  void befell(const char* kind) {
    mark(kind, 0);
    note(kind);
  }
  std::uint64_t trace() const noexcept { return trace_; }
  const std::deque<std::string>& log() const noexcept { return log_; }
  const std::map<std::string, std::uint64_t>& counts() const noexcept { return counts_; }

 private:
  struct Plan {
    std::uint64_t at_ns, number;
    std::function<void()> what;
    bool operator<(const Plan& other) const noexcept {
      return at_ns != other.at_ns ? at_ns > other.at_ns : number > other.number;
    }
  };
  void fire();
  std::uint64_t next_ns() noexcept;
  [[noreturn]] void end(const std::string& why) const;

  std::string again_;
  std::uint64_t spins_ = 0;
  std::uint64_t now_ns_ = kSecond, next_plan_ = 0, trace_ = 0;
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> times_;
  std::priority_queue<Plan> plans_;
  std::deque<std::string> log_;
  std::map<std::string, std::uint64_t> counts_;
};

}  // namespace dlfs::sim
