#include "api/c_handles.h"

using dlfs::Code;
using dlfs::Result;
using dlfs::SequenceOptions;
using dlfs::api::guarded;

namespace dlfs::api {

namespace {

Result<Mode> mode_of(std::int32_t value) {
  switch (value) {
    case DLFS_CHUNK:
      return Mode::kChunk;
    case DLFS_FULL:
      return Mode::kFull;
    case DLFS_SEQUENTIAL:
      return Mode::kSequential;
    default:
      return base::make_error(Code::kInvalidArgument, "{} is no mode: use DLFS_CHUNK, DLFS_FULL or DLFS_SEQUENTIAL",
                              value);
  }
}

Result<Tail> tail_of(std::int32_t value) {
  switch (value) {
    case DLFS_TAIL_SHORT:
      return Tail::kShort;
    case DLFS_TAIL_DROP:
      return Tail::kDrop;
    case DLFS_TAIL_PAD:
      return Tail::kPad;
    default:
      return base::make_error(Code::kInvalidArgument,
                              "{} is no tail policy: use DLFS_TAIL_SHORT, DLFS_TAIL_DROP or DLFS_TAIL_PAD", value);
  }
}

template <class T>
void set_unless_zero(T& to, T value) {
  if (value != 0) to = value;
}

std::chrono::milliseconds timeout_of(const dlfs_order* order) {
  if (order == nullptr || order->timeout_ms == 0) return std::chrono::hours(24);
  return std::chrono::milliseconds(order->timeout_ms);
}

// Everything about an order but its batch is checked when the sequence is opened: with the smallest batch that `ranks`
// allows.
Result<void> check_without_batch(const Volume& volume, SequenceOptions options) {
  options.batch = options.ranks;
  options.start_batch = 0;
  return volume.order(options, [](std::uint64_t, std::span<const std::uint32_t>) { return false; });
}

Result<void> fix_batch(dlfs_sequence& sequence, std::uint32_t batch) {
  if (!sequence.sequence) {
    if (batch == 0) {
      return base::make_error(Code::kInvalidArgument,
                              "dlfs_bread: the batch size is not known yet: give it here or in dlfs_order.batch");
    }
    SequenceOptions options = sequence.options;
    options.batch = batch;
    DLFS_TRY_ASSIGN(sequence.sequence, sequence.volume.sequence(options));
    return {};
  }
  const std::uint32_t fixed = sequence.sequence->batch();
  if (batch == 0 || batch == fixed) return {};
  return base::make_error(
      Code::kInvalidArgument,
      "dlfs_bread: this sequence draws batches of {} samples, not {}: pass {} or 0, or begin another sequence", fixed,
      batch, fixed);
}

void convert(const Percentiles& from, dlfs_percentiles& to) {
  to = {from.p50_us, from.p95_us, from.p99_us, from.total_s};
}

void export_statistics(const SequenceStatistics& from, dlfs_statistics& to) {
  to.samples = from.samples;
  to.batches = from.batches;
  to.payload_bytes = from.payload_bytes;
  to.device_bytes = from.device_bytes;
  to.device_requests = from.device_requests;
  to.cache_hits = from.cache_hits;
  to.skipped = from.skipped;
  to.memory_bytes = from.memory_bytes;
  to.memory_peak_bytes = from.memory_peak_bytes;
  to.amplification = from.amplification;
  to.poller_cpu_s = from.poller_cpu_s;
  convert(from.wait, to.wait);
  convert(from.device, to.device);
  convert(from.queue, to.queue);
  convert(from.verify, to.verify);
  convert(from.copy, to.copy);
}

}  // namespace

Result<OnError> on_error_of(std::int32_t value) {
  if (value == DLFS_RAISE) return OnError::kRaise;
  if (value == DLFS_SKIP) return OnError::kSkip;
  return base::make_error(Code::kInvalidArgument, "{} is no error policy: use DLFS_RAISE or DLFS_SKIP", value);
}

Result<SequenceOptions> sequence_options(const dlfs_order* order) {
  SequenceOptions options;
  options.batch = 0;
  if (order == nullptr) return options;
  DLFS_TRY(check_reserved("dlfs_order", order->reserved));
  DLFS_TRY_ASSIGN(options.mode, mode_of(order->mode));
  DLFS_TRY_ASSIGN(options.tail, tail_of(order->tail));
  DLFS_TRY_ASSIGN(options.on_error, on_error_of(order->on_error));
  options.seed = order->seed;
  options.epoch = order->epoch;
  options.epochs = order->epochs == DLFS_ENDLESS ? 0 : order->epochs == 0 ? 1 : order->epochs;
  options.start_batch = order->start_batch;
  options.rank = order->rank;
  options.batch = order->batch;
  options.prefetch_batches = order->prefetch_batches;
  options.verify = !order->no_verify;
  set_unless_zero(options.ranks, order->ranks);
  set_unless_zero(options.cache_bytes, order->cache_bytes);
  set_unless_zero(options.lanes, order->lanes);
  set_unless_zero(options.window, order->window);
  set_unless_zero(options.depth, order->depth);
  return options;
}

}  // namespace dlfs::api

dlfs_sequence* dlfs_sequence_open(const dlfs_volume* volume, const dlfs_order* order, dlfs_error* error) {
  return guarded<dlfs_sequence*>(error, nullptr, [&, public_name = __func__]() -> Result<dlfs_sequence*> {
    DLFS_REQUIRE(volume);
    DLFS_TRY_ASSIGN(const SequenceOptions options, dlfs::api::sequence_options(order));
    std::optional<dlfs::Sequence> sequence;
    if (options.batch == 0) {
      DLFS_TRY(dlfs::api::check_without_batch(volume->volume, options));
    } else {
      DLFS_TRY_ASSIGN(sequence, volume->volume.sequence(options));
    }
    return new dlfs_sequence{volume->volume, options, dlfs::api::timeout_of(order), std::move(sequence)};
  });
}

dlfs_sequence* dlfs_sequence_resume(const dlfs_volume* volume, const void* state, std::size_t state_bytes,
                                    const dlfs_order* options, dlfs_error* error) {
  return guarded<dlfs_sequence*>(error, nullptr, [&, public_name = __func__]() -> Result<dlfs_sequence*> {
    DLFS_REQUIRE(volume);
    DLFS_REQUIRE(state);
    DLFS_TRY_ASSIGN(const SequenceOptions native, dlfs::api::sequence_options(options));
    DLFS_TRY_ASSIGN(dlfs::Sequence sequence,
                    volume->volume.resume({static_cast<const std::byte*>(state), state_bytes}, native));
    return new dlfs_sequence{volume->volume, native, dlfs::api::timeout_of(options), std::move(sequence)};
  });
}

void dlfs_sequence_close(dlfs_sequence* sequence) { delete sequence; }

dlfs_batch* dlfs_bread(dlfs_sequence* sequence, std::uint32_t batch, dlfs_error* error) {
  return guarded<dlfs_batch*>(error, nullptr, [&, public_name = __func__]() -> Result<dlfs_batch*> {
    DLFS_REQUIRE(sequence);
    DLFS_TRY(dlfs::api::fix_batch(*sequence, batch));
    DLFS_TRY_ASSIGN(auto next, sequence->sequence->next(sequence->timeout));
    if (!next) return static_cast<dlfs_batch*>(nullptr);
    return new dlfs_batch{std::move(*next), sequence->volume.schema().fields.size()};
  });
}

std::uint64_t dlfs_sequence_batches(const dlfs_sequence* sequence) {
  return sequence == nullptr || !sequence->sequence ? 0 : sequence->sequence->batches_per_epoch();
}

void dlfs_sequence_position(const dlfs_sequence* sequence, std::uint64_t* epoch, std::uint64_t* batch) {
  const bool open = sequence != nullptr && sequence->sequence.has_value();
  const SequenceOptions start = sequence == nullptr ? SequenceOptions() : sequence->options;
  if (epoch != nullptr) *epoch = open ? sequence->sequence->epoch() : start.epoch;
  if (batch != nullptr) *batch = open ? sequence->sequence->next_batch() : start.start_batch;
}

std::int64_t dlfs_sequence_state(const dlfs_sequence* sequence, void* into, std::size_t size, dlfs_error* error) {
  return guarded<std::int64_t>(error, -1, [&, public_name = __func__]() -> Result<std::int64_t> {
    DLFS_REQUIRE(sequence);
    DLFS_REQUIRE(into);
    if (!sequence->sequence) {
      return dlfs::base::make_error(Code::kInvalidArgument,
                                    "the sequence has no state yet: set dlfs_order.batch, or call dlfs_bread first");
    }
    const std::vector<std::byte> state = sequence->sequence->state();
    if (state.size() > size) {
      return dlfs::base::make_error(Code::kInvalidArgument,
                                    "the state takes {} bytes, not {}: pass DLFS_STATE_BYTES of them", state.size(),
                                    size);
    }
    std::memcpy(into, state.data(), state.size());
    return static_cast<std::int64_t>(state.size());
  });
}

int dlfs_sequence_statistics(const dlfs_sequence* sequence, dlfs_statistics* statistics, dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_REQUIRE(sequence);
    DLFS_REQUIRE(statistics);
    *statistics = dlfs_statistics{};
    if (sequence->sequence) dlfs::api::export_statistics(sequence->sequence->statistics(), *statistics);
    return {};
  });
}

int dlfs_order_ids(const dlfs_volume* volume, const dlfs_order* order,
                   bool (*visit)(void* context, std::uint64_t batch, const std::uint32_t* ids, std::size_t count),
                   void* context, dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_REQUIRE(volume);
    DLFS_REQUIRE(visit);
    DLFS_TRY_ASSIGN(SequenceOptions options, dlfs::api::sequence_options(order));
    if (options.batch == 0) options.batch = SequenceOptions().batch;
    return volume->volume.order(options, [&](std::uint64_t batch, std::span<const std::uint32_t> ids) {
      return visit(context, batch, ids.data(), ids.size());
    });
  });
}
