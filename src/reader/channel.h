// What poller and consumer share: a bounded ring of finished batches one way, a stack of returned ones the other, the
// memory that all of them live in, and the ways to sleep. It lives as long as the reader or any batch.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fork_guard.h"
#include "reader/batch_body.h"
#include "reader/counters.h"
#include "reader/memory_pool.h"

namespace dlfs::reader {

using Clock = std::chrono::steady_clock;

class Channel {
 public:
  // `capacity`: batches that can be finished and not yet taken.
  static Result<std::shared_ptr<Channel>> create(std::size_t capacity, std::uint64_t limit_bytes,
                                                 std::uint64_t slab_floor_bytes);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // ---- poller ----
  BatchBody* new_body();  // empty; used again after recycle()
  void recycle(BatchBody* body);
  std::size_t ready() const noexcept;  // published, not taken
  bool full() const noexcept { return ready() == ring_.size(); }
  void publish(BatchBody* body) noexcept;  // precondition: !full()
  BatchBody* take_returned() noexcept;     // a list by next_returned
  // Grow with everything the consumer does and with everything it gives back: read them before looking, compare when
  // going to sleep.
  std::uint64_t events() const noexcept { return events_.load(std::memory_order_seq_cst); }
  std::uint64_t releases() const noexcept { return releases_.load(std::memory_order_seq_cst); }
  // Sleeps until `descriptor` (or none: -1) is readable, `longest` passes, or the consumer has done something since
  // `events` and no more than `wake_below` finished batches are left.
  void sleep(int descriptor, std::chrono::nanoseconds longest, std::uint64_t events, std::size_t wake_below) noexcept;
  // Tells the consumer that the next batch needs memory that only batches it holds can free; `releases` from before the
  // look.
  void declare_starved(std::uint64_t releases, std::uint64_t wanted_bytes) noexcept;
  // Whether the consumer waits for a batch. After declare_stalled(true), that it starts to wait is an event.
  bool consumer_waits() const noexcept { return consumer_waits_.load(std::memory_order_seq_cst); }
  void declare_stalled(bool stalled) noexcept { stalled_.store(stalled, std::memory_order_seq_cst); }
  void declare_fed() noexcept { starved_.store(0, std::memory_order_seq_cst); }

  // ---- consumer ----
  enum class Taken { kBody, kTimedOut, kStarved };
  // Waits for the next body. kStarved only after `patience` without any batch given back, over several calls if need
  // be: a consumer that waits in short slices must hear of it too.
  Taken take(Clock::time_point deadline, std::chrono::nanoseconds patience, BatchBody** body) noexcept;
  std::uint64_t starved_bytes() const noexcept { return starved_bytes_.load(std::memory_order_relaxed); }
  // Without a poller thread: what is there now. kTimedOut: nothing yet.
  Taken take_now(BatchBody** body) noexcept;
  // **Thread**: any.
  void give_back(BatchBody* body) noexcept;
  void wake_poller() noexcept;

  MemoryPool& pool() noexcept { return pool_; }
  const MemoryPool& pool() const noexcept { return pool_; }
  Counters& counters() noexcept { return counters_; }
  bool forked() const noexcept { return guard_.forked(); }

 private:
  Channel(std::size_t capacity, std::uint64_t limit_bytes, std::uint64_t slab_floor_bytes);
  BatchBody* try_take() noexcept;
  bool starved() const noexcept;
  void note_event() noexcept;
  void signal_consumer() noexcept;
  void drain_eventfd() noexcept;

  base::ForkGuard guard_;
  MemoryPool pool_;
  Counters counters_;
  std::vector<std::unique_ptr<BatchBody>> bodies_;  // all there are
  std::vector<BatchBody*> spare_;
  int eventfd_ = -1;

  std::vector<BatchBody*> ring_;
  alignas(64) std::atomic<std::uint64_t> tail_{0};            // written by the poller
  std::atomic<std::uint32_t> published_{0};                   // futex word
  std::atomic<std::uint64_t> starved_{0}, starved_bytes_{0};  // releases + 1 when it was declared, or 0
  std::atomic<std::int64_t> wake_below_{-1};                  // -1: the poller is awake
  alignas(64) std::atomic<std::uint64_t> head_{0};            // written by the consumer
  std::optional<std::uint64_t>
      starved_since_release_;  // the consumer's own: since when it starves, and for how long yet
  Clock::time_point starved_until_{};
  std::atomic<std::uint64_t> events_{0}, releases_{0};
  std::atomic<bool> consumer_waits_{false}, stalled_{false};
  alignas(64) std::atomic<BatchBody*> returned_{nullptr};
};

}  // namespace dlfs::reader
