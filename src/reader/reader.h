// The batch engine: from an order to verified samples in memory, ahead of the consumer and within a memory bound.
//
// Chunk mode reads a piece of a chunk at once and keeps it until all its samples are drawn; when cache_bytes does not
// hold the pieces that the lanes draw from (about lanes / ranks * window chunks), notes() says so and samples are read
// by themselves. The other modes read samples by themselves, sorted and merged over the batches ahead. Memory beyond
// that keeps what was read: in chunk mode what the next epoch needs furthest ahead goes first; in the others whole
// chunks are read in the shadow of sample reads, as long as that pays for this rank in the epochs that are left, and
// stay. What fits into cache_bytes is so read once.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "order/order.h"
#include "volume/volume.h"

namespace dlfs::reader {

enum class OnError : std::uint8_t { kRaise = 0, kSkip = 1 };

struct Options {
  order::Parameters order;
  std::uint64_t start_batch = 0;
  // Hard bound on sample buffers, used or not. One sample that is larger than all of it has memory of its own, one such
  // at a time. Beside it a reader needs about 150 bytes for each sample of the batches ahead.
  // 0: chosen by the shape of batches and data, 256 MiB or more.
  std::uint64_t cache_bytes = 256u << 20;
  std::uint32_t depth = 128;  // device requests in flight
  std::uint32_t prefetch_batches =
      0;  // batches ready or under way ahead of the consumer; 0: as many as the memory allows
  OnError on_error = OnError::kRaise;
  bool verify = true;        // off for benchmarks only
  std::uint64_t epochs = 1;  // epochs the reader goes on to by itself, order.epoch, +1, ...; 0: endless
  // false: no poller thread; next() does the work, on the device's clock, and finds kOutOfMemory at once. For
  // simulations, where everything happens on one thread.
  bool threaded = true;
};

// Where the consumer's waiting time went, and what it got. Counters since open.
struct Percentiles {
  double p50_us = 0, p95_us = 0, p99_us = 0, total_s = 0;
};
struct Statistics {
  std::uint64_t samples = 0, batches = 0, payload_bytes = 0, device_bytes = 0, device_requests = 0;
  std::uint64_t cache_hits = 0;  // samples served from memory that was read for another sample or epoch
  std::uint64_t skipped = 0;     // bad samples left out of delivered batches under kSkip
  std::uint64_t memory_bytes = 0, memory_peak_bytes = 0, memory_limit_bytes = 0;
  Percentiles wait, device, queue, verify,
      copy;  // wait: consumer blocked, a batch; device: submit to completion, a request;
             // queue: planned to submitted; verify: a request's records; copy: a gather
  double poller_cpu_s = 0;
  double amplification() const { return payload_bytes == 0 ? 0 : double(device_bytes) / double(payload_bytes); }
};

// One delivered mini-batch (this rank's share). Views stay valid until the batch is destroyed; destroying it returns
// its memory to the reader. **Thread**: any one at a time. **Lifetime**: may outlive the Reader.
class Batch {
 public:
  virtual ~Batch() = default;
  virtual std::uint64_t epoch() const noexcept = 0;
  virtual std::uint64_t number() const noexcept = 0;                // batch within the epoch
  virtual std::span<const std::uint32_t> ids() const noexcept = 0;  // without skipped samples
  virtual std::size_t size() const noexcept = 0;
  virtual std::uint32_t padding() const noexcept = 0;  // trailing repeats under Tail::kPad
  // Bytes of one field of sample i, no copy.
  virtual layout::FieldValue field(std::size_t i, std::size_t field) const noexcept = 0;
  // Copies one field of all samples back to back into `into`; `offsets`, when not empty, has size() + 1 entries.
  // Returns the bytes needed; copies nothing when `into` is smaller. Timed as Statistics::copy of the reader.
  virtual std::uint64_t gather(std::size_t field, std::span<std::byte> into,
                               std::span<std::uint64_t> offsets) const noexcept = 0;
};

// **Thread**: one consumer. Owns one poller thread (Options::threaded), which sleeps when there is nothing to do.
class Reader {
 public:
  // **Errors**: order errors, kOutOfMemory (cache_bytes too small: says how many would do), device errors.
  static Result<std::unique_ptr<Reader>> open(std::shared_ptr<const volume::Volume> volume, const Options& options);
  virtual ~Reader() = default;  // stops the poller; batches that are still out keep their memory
  // The next batch; null at the end of the last epoch. **Blocks** up to `timeout`, then kTimedOut (call again to go on
  // waiting).
  // **Errors**: kCorrupt / kIo / kDeviceLost / kTimedOut of the device name sample, device and address; under kRaise
  // the same error comes again on the next call. kOutOfMemory: batches that the consumer still holds leave no memory
  // for the next one; release some and call again (it waits a second for that by itself), or, for good, not even one
  // batch fits into cache_bytes. kForked in a child.
  virtual Result<std::unique_ptr<Batch>> next(std::chrono::milliseconds timeout) = 0;
  virtual order::Position position() const noexcept = 0;  // of the next batch that next() will deliver
  virtual std::uint64_t batches_per_epoch() const noexcept = 0;
  virtual Statistics statistics() const = 0;
  virtual const std::string& notes()
      const noexcept = 0;  // e.g. "window needs 480 MiB, cache_bytes is 64 MiB: reading samples singly"
};

// Random access by a list of ids: all reads in flight together, coalesced; results in the order asked. No poller
// thread.
// **Blocks**. Errors as Reader::next; under kSkip bad samples are absent from the batch.
Result<std::unique_ptr<Batch>> read_samples(std::shared_ptr<const volume::Volume> volume,
                                            std::span<const std::uint32_t> ids, OnError on_error = OnError::kRaise);

}  // namespace dlfs::reader
