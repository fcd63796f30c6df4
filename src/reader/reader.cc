#include "reader/reader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "reader/coalesce.h"
#include "reader/delivered.h"
#include "reader/engine.h"

namespace dlfs::reader {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);  // for a held batch to be given back on another thread

class EngineReader final : public Reader {
 public:
  EngineReader(std::shared_ptr<const volume::Volume> volume, const Options& options, std::uint64_t batches_per_epoch,
               std::shared_ptr<Channel> channel, Engine::Handle engine, std::string notes);
  ~EngineReader() override;
  Result<std::unique_ptr<Batch>> next(std::chrono::milliseconds timeout) override;
  order::Position position() const noexcept override;
  std::uint64_t batches_per_epoch() const noexcept override { return batches_per_epoch_; }
  Statistics statistics() const override;
  const std::string& notes() const noexcept override { return notes_; }

 private:
  Result<std::unique_ptr<Batch>> deliver(BatchBody* body);
  Error starved() const;
  Channel::Taken turn_until_ready(std::chrono::nanoseconds longest, BatchBody** body);

  std::shared_ptr<const volume::Volume> volume_;
  const Options options_;
  const std::uint64_t batches_per_epoch_;
  std::shared_ptr<Channel> channel_;
  Engine::Handle engine_;
  const std::string notes_;
  std::uint64_t relative_epoch_ = 0, next_batch_;  // of the next batch
  bool ended_ = false;
  std::optional<Error> error_;
};

EngineReader::EngineReader(std::shared_ptr<const volume::Volume> volume, const Options& options,
                           std::uint64_t batches_per_epoch, std::shared_ptr<Channel> channel, Engine::Handle engine,
                           std::string notes)
    : volume_(std::move(volume)),
      options_(options),
      batches_per_epoch_(batches_per_epoch),
      channel_(std::move(channel)),
      engine_(std::move(engine)),
      notes_(std::move(notes)),
      next_batch_(options.start_batch) {
  if (next_batch_ == batches_per_epoch_ && options_.epochs != 1) {  // the next batch is the following epoch's first
    relative_epoch_ = 1;
    next_batch_ = 0;
  }
}

EngineReader::~EngineReader() {
  if (!channel_->forked()) return;
  // The thread and the device's requests are the parent's: leave everything as it is.
  [[maybe_unused]] Engine* const leaked = engine_.release();
}

Result<std::unique_ptr<Batch>> EngineReader::next(std::chrono::milliseconds timeout) {
  if (channel_->forked()) {
    return base::make_error(
        Code::kForked,
        "this reader of {} belongs to the parent process and its thread did not come along; open a new reader here",
        volume_->url());
  }
  if (error_) return *error_;
  if (ended_) return std::unique_ptr<Batch>();
  const Clock::time_point begin = Clock::now();
  const auto longest =
      std::clamp<std::chrono::milliseconds>(timeout, std::chrono::milliseconds(0), std::chrono::hours(24 * 365));
  BatchBody* body = nullptr;
  const Channel::Taken taken =
      options_.threaded ? channel_->take(begin + longest, kPatience, &body) : turn_until_ready(longest, &body);
  channel_->counters().wait.add(Clock::now() - begin);
  if (taken == Channel::Taken::kStarved) return starved();
  if (taken == Channel::Taken::kTimedOut) {
    return base::make_error(Code::kTimedOut, "batch {} of {} was not ready within {} ms; call again to go on waiting",
                            next_batch_, volume_->url(), longest.count());
  }
  return deliver(body);
}

Channel::Taken EngineReader::turn_until_ready(std::chrono::nanoseconds longest, BatchBody** body) {
  const auto deadline = engine_->now() + longest;
  while (true) {
    const Channel::Taken taken = channel_->take_now(body);
    if (taken != Channel::Taken::kTimedOut || engine_->now() >= deadline) return taken;
    engine_->step(deadline);
  }
}

Error EngineReader::starved() const {
  return base::make_error(
      Code::kOutOfMemory,
      "the batches that are still held leave no memory for the next one, which needs {} of the {} in cache_bytes; "
      "release batches before asking for more, or raise cache_bytes",
      in_words(channel_->starved_bytes()), in_words(options_.cache_bytes));
}

Result<std::unique_ptr<Batch>> EngineReader::deliver(BatchBody* body) {
  if (body->end) {
    error_ = body->error;
    ended_ = true;
    if (error_) return *error_;
    return std::unique_ptr<Batch>();
  }
  Counters& counters = channel_->counters();
  Counters::add(counters.samples, body->size());
  Counters::add(counters.skipped, body->skipped);
  Counters::add(counters.batches, 1);
  Counters::add(counters.payload_bytes, body->payload_bytes);
  ++next_batch_;
  if (next_batch_ == batches_per_epoch_ && (options_.epochs == 0 || relative_epoch_ + 1 < options_.epochs)) {
    ++relative_epoch_;
    next_batch_ = 0;
  }
  return std::unique_ptr<Batch>(std::make_unique<ReaderBatch>(volume_, channel_, body));
}

order::Position EngineReader::position() const noexcept {
  order::Position position;
  position.volume = volume_->fingerprint();
  position.parameters = options_.order;
  position.parameters.epoch += relative_epoch_;
  position.next_batch = next_batch_;
  return position;
}

Percentiles percentiles(const Histogram& histogram) {
  return {histogram.percentile_us(0.50), histogram.percentile_us(0.95), histogram.percentile_us(0.99),
          histogram.total_s()};
}

Statistics EngineReader::statistics() const {
  Counters& counters = channel_->counters();
  Statistics s;
  s.samples = counters.samples.load(std::memory_order_relaxed);
  s.batches = counters.batches.load(std::memory_order_relaxed);
  s.payload_bytes = counters.payload_bytes.load(std::memory_order_relaxed);
  s.device_bytes = counters.device_bytes.load(std::memory_order_relaxed);
  s.device_requests = counters.device_requests.load(std::memory_order_relaxed);
  s.cache_hits = counters.cache_hits.load(std::memory_order_relaxed);
  s.skipped = counters.skipped.load(std::memory_order_relaxed);
  s.memory_bytes = channel_->pool().mapped_bytes();
  s.memory_peak_bytes = channel_->pool().peak_bytes();
  s.memory_limit_bytes = channel_->pool().limit_bytes();
  s.wait = percentiles(counters.wait);
  s.device = percentiles(counters.device);
  s.queue = percentiles(counters.queue);
  s.verify = percentiles(counters.verify);
  s.copy = percentiles(counters.copy);
  s.poller_cpu_s = channel_->forked() ? 0 : engine_->cpu_seconds();
  return s;
}

// ---- opening ----

// What does not depend on the memory.
Shape shape_of(const volume::Volume& volume, const Options& options, const block::Geometry& geometry) {
  const layout::Superblock& superblock = volume.superblock();
  Shape shape;
  shape.order = options.order;
  shape.epochs = options.epochs;
  shape.samples = std::max<std::uint64_t>(volume.size(), 1);
  shape.units = std::max<std::uint64_t>(volume.directory().unit_count(), 1);
  shape.data_bytes = superblock.data.length_bytes;
  shape.sample_bytes = superblock.payload_bytes + superblock.record_bytes;
  shape.chunk_bytes = superblock.chunk_bytes;
  shape.block_bytes = std::max(geometry.block_bytes, geometry.memory_alignment_bytes);
  shape.prefetch_batches = options.prefetch_batches;
  return shape;
}

// Whether the first batch can be in memory at once, its samples read by themselves. One sample larger than everything
// has its own memory.
Result<void> check_first_batch(const volume::Volume& volume, const Options& options, const Shape& shape,
                               const MemoryPool& pool, const std::shared_ptr<const order::Epoch>& epoch) {
  order::Cursor cursor(epoch);
  cursor.seek(std::min(options.start_batch, epoch->batches() - 1));
  std::vector<order::Draw> draws;
  std::vector<Want> wants;
  if (!cursor.next(draws)) return {};
  for (const order::Draw& draw : draws) {
    const auto index = static_cast<std::uint32_t>(draw.index);
    const SampleId id =
        options.order.mode == order::Mode::kChunk ? volume.directory().id_of(Slot{index}) : SampleId{index};
    const layout::Location at = volume.directory().location(id);
    wants.push_back({at.address_bytes, at.length_bytes, id.value, 0, 0});
  }
  std::vector<Extent> extents;
  coalesce(wants, {shape.block_bytes, shape.chunk_bytes, 0, shape.chunk_bytes}, extents);
  std::uint64_t need = 0;
  for (const Extent& extent : extents) need += pool.fits(extent.end - extent.begin) ? extent.end - extent.begin : 0;
  if (need <= options.cache_bytes) return {};
  return base::make_error(Code::kOutOfMemory,
                          "a batch of {} samples needs {} at once, and cache_bytes is {}; set cache_bytes to {} or "
                          "more, or use a smaller batch",
                          draws.size(), in_words(need), in_words(options.cache_bytes), need * 5 / 2 + (64u << 10));
}

Result<void> check_options(const Options& options) {
  if (options.depth == 0)
    return base::make_error(Code::kInvalidArgument, "depth is 0, so that nothing can be read; use at least 1");
  if (options.cache_bytes != 0 && options.cache_bytes < MemoryPool::kPageBytes) {
    return base::make_error(Code::kOutOfMemory,
                            "cache_bytes is {}, which holds nothing; set it to at least {}, better to many batches, or "
                            "leave it at 0",
                            options.cache_bytes, MemoryPool::kPageBytes);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Reader>> Reader::open(std::shared_ptr<const volume::Volume> volume, const Options& given) {
  DLFS_TRY(check_options(given));
  DLFS_TRY_ASSIGN(EpochWalk walk, EpochWalk::begin(given.order, given.epochs, given.start_batch, volume));
  const std::uint64_t batches = walk.epoch().batches();
  DLFS_TRY_ASSIGN(auto device, volume->open_device(given.depth));
  Shape shape = shape_of(*volume, given, device->geometry());
  Options options = given;
  if (options.cache_bytes == 0) options.cache_bytes = automatic_cache_bytes(shape, memory_of_machine());
  DLFS_TRY_ASSIGN(auto channel,
                  Channel::create(batches_ahead(shape) + 1, options.cache_bytes, volume->superblock().chunk_bytes));
  shape.cache_bytes = options.cache_bytes;
  shape.slab_capacity_bytes = channel->pool().slab_capacity_bytes();
  shape.slab_bytes = channel->pool().slab_bytes();
  DLFS_TRY(check_first_batch(*volume, options, shape, channel->pool(), walk.shared_epoch()));
  const Policy policy = choose_policy(shape);
  std::string notes = policy.notes;
  if (!device->notes().empty()) notes += (notes.empty() ? "" : "\n") + device->notes();
  DLFS_TRY_ASSIGN(auto engine, Engine::start(volume, options, policy, std::move(walk), channel, std::move(device)));
  return std::unique_ptr<Reader>(std::make_unique<EngineReader>(std::move(volume), options, batches, std::move(channel),
                                                                std::move(engine), std::move(notes)));
}

}  // namespace dlfs::reader
