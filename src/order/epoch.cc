#include "order/epoch.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "order/keys.h"

namespace dlfs::order {
namespace {

constexpr std::uint64_t kMaxSamples = std::uint64_t{1} << 32;

// The multiples of `ranks` around `value`, in words: "238 or 245".
std::string nearest_multiples(std::uint64_t value, std::uint64_t ranks, std::uint64_t limit) {
  const std::uint64_t below = value / ranks * ranks, above = below + ranks;
  if (below == 0) return fmt::format("{}", above);
  if (above > limit) return fmt::format("{}", below);
  return fmt::format("{} or {}", below, above);
}

Result<void> check_ranges(const Parameters& p, std::uint64_t samples) {
  if (p.batch == 0) return base::make_error(Code::kInvalidArgument, "the batch holds 0 samples; ask for at least 1");
  if (p.ranks == 0) return base::make_error(Code::kInvalidArgument, "the number of ranks is 0; give at least 1");
  if (p.rank >= p.ranks) {
    return base::make_error(Code::kInvalidArgument, "rank {} is out of range; with {} ranks use 0 to {}", p.rank,
                            p.ranks, p.ranks - 1);
  }
  if (samples == 0) return base::make_error(Code::kInvalidArgument, "there are no samples to draw; pack at least one");
  if (samples > kMaxSamples) {
    return base::make_error(Code::kInvalidArgument, "{} samples are more than an order can hold; the limit is {}",
                            samples, kMaxSamples);
  }
  if (p.mode > Mode::kChunk || p.tail > Tail::kPad) {
    return base::make_error(Code::kInvalidArgument, "the order's mode {} or tail {} is unknown; use 0 to 2",
                            static_cast<int>(p.mode), static_cast<int>(p.tail));
  }
  return {};
}

Result<void> check_shares(const Parameters& p, std::uint64_t samples) {
  if (p.batch % p.ranks != 0) {
    return base::make_error(
        Code::kInvalidArgument, "a batch of {} samples cannot be shared equally by {} ranks; use a batch of {} samples",
        p.batch, p.ranks, nearest_multiples(p.batch, p.ranks, std::numeric_limits<std::uint32_t>::max()));
  }
  if (p.tail == Tail::kShort && samples < p.ranks) {
    return base::make_error(
        Code::kInvalidArgument,
        "{} samples are fewer than {} ranks, so a rank would get none; use at most {} ranks, or the tail 'pad'",
        samples, p.ranks, samples);
  }
  if (p.tail == Tail::kDrop && samples < p.batch) {
    return base::make_error(
        Code::kInvalidArgument,
        "{} samples make no whole batch of {} and the tail is 'drop'; use a batch of at most {}, or the tail "
        "'short' or 'pad'",
        samples, p.batch, samples);
  }
  return {};
}

Result<void> check_lanes(const Parameters& p) {
  if (p.lanes == 0 || p.lanes > kMaxLanes) {
    return base::make_error(Code::kInvalidArgument, "{} lanes are out of range; use 1 to {}", p.lanes, kMaxLanes);
  }
  if (p.window == 0) return base::make_error(Code::kInvalidArgument, "the window is 0 chunks; use at least 1");
  if (p.ranks > kMaxLanes) {
    return base::make_error(Code::kInvalidArgument,
                            "{} ranks are more than chunk mode can serve; use at most {}, or mode 'full'", p.ranks,
                            kMaxLanes);
  }
  if (p.lanes % p.ranks != 0) {
    return base::make_error(Code::kInvalidArgument, "{} lanes cannot be dealt equally to {} ranks; use {} lanes",
                            p.lanes, p.ranks, nearest_multiples(p.lanes, p.ranks, kMaxLanes));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Epoch>> Epoch::create(const Parameters& parameters, std::uint64_t samples,
                                                   std::shared_ptr<const Placement> placement) {
  const bool chunk = parameters.mode == Mode::kChunk;
  if (chunk && placement == nullptr) {
    return base::make_error(Code::kInvalidArgument,
                            "chunk mode needs the volume's placement; use mode 'full' or 'sequential'");
  }
  if (chunk) samples = placement->sample_count();
  DLFS_TRY(check_ranges(parameters, samples));
  DLFS_TRY(check_shares(parameters, samples));
  std::optional<ChunkPlan> chunks;
  if (chunk) {
    DLFS_TRY(check_lanes(parameters));
    DLFS_TRY_ASSIGN(ChunkPlan plan, ChunkPlan::build(parameters, std::move(placement)));
    chunks.emplace(std::move(plan));
  }
  return std::shared_ptr<const Epoch>(std::make_shared<EpochPlan>(parameters, samples, std::move(chunks)));
}

EpochPlan::EpochPlan(const Parameters& parameters, std::uint64_t samples, std::optional<ChunkPlan> chunks)
    : parameters_(parameters),
      samples_(samples),
      batches_(samples / parameters.batch +
               (parameters.tail != Tail::kDrop && samples % parameters.batch != 0 ? 1 : 0)),
      sample_order_(samples, derive_key(parameters.seed, parameters.epoch, Purpose::kSamples)),
      chunks_(std::move(chunks)) {}

// How many of the first `positions` of a batch are this rank's.
std::uint64_t EpochPlan::share_of_first(std::uint64_t positions) const noexcept {
  return (positions + parameters_.ranks - 1 - parameters_.rank) / parameters_.ranks;
}

std::uint64_t EpochPlan::share_size(std::uint64_t batch) const noexcept {
  if (batch >= batches_) return 0;
  if (parameters_.tail != Tail::kShort) return parameters_.batch / parameters_.ranks;
  return share_of_first(std::min<std::uint64_t>(parameters_.batch, samples_ - batch * parameters_.batch));
}

std::uint64_t EpochPlan::padding(std::uint64_t batch) const noexcept {
  if (parameters_.tail != Tail::kPad || batch >= batches_) return 0;
  return share_size(batch) -
         share_of_first(std::min<std::uint64_t>(parameters_.batch, samples_ - batch * parameters_.batch));
}

std::uint64_t EpochPlan::next_use(std::uint64_t unit_or_sample) const noexcept {
  const std::uint64_t drawn = std::min(samples_, batches_ * parameters_.batch);
  if (parameters_.mode == Mode::kChunk) return chunks_->next_use(unit_or_sample, drawn);
  if (unit_or_sample >= samples_) return std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t position =
      parameters_.mode == Mode::kFull ? sample_order_.inverse(unit_or_sample) : unit_or_sample;
  return position < drawn ? position : std::numeric_limits<std::uint64_t>::max();
}

std::uint64_t next_use(const Epoch& epoch, std::uint64_t unit_or_sample) noexcept {
  return static_cast<const EpochPlan&>(epoch).next_use(unit_or_sample);  // create() makes no other kind
}

}  // namespace dlfs::order
