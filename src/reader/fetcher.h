// The queue between plan and device: requests submitted in bursts up to a depth, their completions, and their
// deadlines.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "block/device.h"
#include "reader/buffer.h"
#include "reader/channel.h"
#include "reader/counters.h"
#include "reader/fifo.h"

namespace dlfs::reader {

// What became of a request. `late`: it was reported as timed out before; only now the device has let go of the memory.
struct Fetched {
  Buffer* buffer = nullptr;
  std::uint32_t record = 0;  // as given to add()
  Code code = Code::kIo;     // when failed
  int errno_value = 0;
  std::uint16_t nvme_status = 0;
  std::uint64_t device_offset = 0;
  std::uint32_t length = 0;
  bool failed = false;
  bool late = false;
};

// **Thread**: one at a time.
class Fetcher {
 public:
  static constexpr std::uint32_t kWhole = ~std::uint32_t{0};

  Fetcher(std::unique_ptr<block::BlockDevice> device, std::uint32_t depth, std::chrono::nanoseconds timeout,
          Counters& counters);

  // Queues a read into `buffer`. `record`: kWhole, or the number of the one record that is read alone.
  void add(Buffer* buffer, std::uint64_t device_offset, std::byte* data, std::uint32_t length, std::uint32_t record);
  std::size_t queued() const noexcept { return queue_.size(); }
  std::size_t in_flight() const noexcept { return in_flight_; }
  std::uint32_t depth() const noexcept { return depth_; }
  bool wants_polls() const noexcept { return in_flight_ != 0 || tends_; }
  // Nothing is queued or under way but what has timed out.
  bool idle() const noexcept { return queue_.empty() && in_flight_ == abandoned_; }

  // Sends what the depth allows. True when it sent something.
  bool submit(Clock::time_point now);
  // Replaces `done` by what has finished or timed out since the last call.
  void poll(Clock::time_point now, std::vector<Fetched>& done);
  // Nobody has polled for so long: the time does not count against what is in flight.
  void postpone(std::chrono::nanoseconds absence) noexcept;
  // When the first deadline is; max() when nothing waits.
  Clock::time_point deadline() const noexcept;

  const block::BlockDevice& device() const noexcept { return *device_; }
  block::BlockDevice& device() noexcept { return *device_; }
  // Drops the queue and waits until the device has let go of everything, at most `longest`. False: it has not.
  bool drain(std::chrono::nanoseconds longest);
  std::chrono::nanoseconds timeout() const noexcept { return timeout_; }

 private:
  struct Request {
    Buffer* buffer = nullptr;
    std::byte* data = nullptr;
    std::uint64_t device_offset = 0;
    std::uint32_t length = 0;
    std::uint32_t record = kWhole;
    Clock::time_point planned, submitted;
    std::uint64_t serial = 0;  // tells the uses of this place apart
    bool timed_out = false;
  };
  struct Sent {
    std::uint32_t request = 0;
    std::uint64_t serial = 0;
  };
  Fetched fetched(const Request& request) const noexcept;
  void complete(const block::Completion& completion, Clock::time_point now, std::vector<Fetched>& done);
  void expire(Clock::time_point now, std::vector<Fetched>& done);
  void fail_queue(std::vector<Fetched>& done);
  void drop_finished() noexcept;

  std::unique_ptr<block::BlockDevice> device_;
  std::uint32_t depth_;
  std::chrono::nanoseconds timeout_;
  bool tends_ = false;  // the device wants to be polled while nothing is in flight
  Counters& counters_;
  std::vector<Request> requests_;
  std::vector<std::uint32_t> free_;
  Fifo<std::uint32_t> queue_;
  Fifo<Sent> sent_;  // in the order of submission, finished ones included until they are at the front
  std::size_t in_flight_ = 0, abandoned_ = 0;
  std::uint64_t next_serial_ = 1;
  Clock::time_point added_{};  // the time of the current burst
  std::vector<block::Request> burst_;
  std::vector<block::Completion> completions_;
};

}  // namespace dlfs::reader
