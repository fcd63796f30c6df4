// The poller thread: plans, submits, polls, verifies and publishes until it is told to stop, and sleeps when nothing is
// to do.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "reader/cache.h"
#include "reader/channel.h"
#include "reader/fetcher.h"
#include "reader/fifo.h"
#include "reader/planner.h"
#include "reader/policy.h"
#include "reader/reader.h"

namespace dlfs::reader {

class Engine {
 public:
  // Stops the thread. A device that does not give back its requests soon keeps thread, memory and engine until it does:
  // they end together then, and nobody waits for them. Without a thread they are kept for ever: nobody would
  // know when the device is done with the memory.
  struct Retire {
    void operator()(Engine* engine) const noexcept;
  };
  using Handle = std::unique_ptr<Engine, Retire>;

  // **Errors**: kOutOfMemory, when the system gives no thread.
  static Result<Handle> start(std::shared_ptr<const volume::Volume> volume, const Options& options,
                              const Policy& policy, EpochWalk walk, std::shared_ptr<Channel> channel,
                              std::unique_ptr<block::BlockDevice> device);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  double cpu_seconds() const noexcept;  // of the poller thread so far; 0 without one

  // Without a thread (Options::threaded): one round, or a sleep until the device has something, at most until `until`.
  void step(Clock::time_point until);
  Clock::time_point now() const noexcept { return fetcher_.device().now(); }  // the device's clock

 private:
  Engine(std::shared_ptr<const volume::Volume> volume, const Options& options, const Policy& policy, EpochWalk walk,
         std::shared_ptr<Channel> channel, std::unique_ptr<block::BlockDevice> device);
  ~Engine();
  void run();
  void loop();
  bool turn(std::uint64_t releases);
  bool take_returned();
  bool poll_device();
  bool plan();
  bool publish();
  void rest(std::uint64_t events);
  void consider_rescue(std::uint64_t releases);

  void on_fetched(const Fetched& fetched);
  void on_failed(Buffer& buffer, const Fetched& fetched);
  void arrive(Buffer& buffer);
  void verify(Buffer& buffer);
  void verify_record(Buffer& buffer, const RecordRef& record);

  bool finish(BatchBody& body);
  bool leave_out_bad(BatchBody& body);
  void count_payload(BatchBody& body);
  Error sentence(const BadRecord& bad, std::uint32_t id) const;
  void publish_end(std::optional<Error> error);

  std::shared_ptr<const volume::Volume> volume_;
  const Options options_;
  std::shared_ptr<Channel> channel_;
  Cache cache_;
  Fetcher fetcher_;
  Planner planner_;
  std::uint32_t batches_ahead_;
  std::uint64_t fixed_payload_ =
      0;  // one variable field at most: a record's payload is its length less `record_overhead_`
  std::uint64_t record_overhead_ = 0;
  std::size_t variable_fields_ = 0;

  Fifo<BatchBody*> line_;  // drawn, not published
  std::vector<Fetched> done_;
  std::vector<layout::FieldValue> scratch_;
  Clock::time_point now_{}, last_progress_{};
  Clock::time_point attended_{};  // without a thread: until when the device was looked after
  std::uint64_t out_ = 0;         // batches published and not returned
  bool stalled_ = false;          // the planner waits for memory
  bool planned_all_ = false, ended_ = false;
  std::optional<Error> planner_error_;

  std::atomic<bool> stop_{false};
  std::mutex end_mutex_;
  std::condition_variable end_;
  bool finished_ = false;  // the thread touches nothing any more
  bool orphaned_ = false;  // the thread deletes the engine
  std::thread thread_;
  Engine* next_kept_ = nullptr;
};

}  // namespace dlfs::reader
