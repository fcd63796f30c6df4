#include "order/chunk_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/try.h"
#include "order/keys.h"

namespace dlfs::order {
namespace {

constexpr std::uint64_t kCheckpointUnits = 64;
constexpr std::uint64_t kMaxUnits = std::uint64_t{1} << 32;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

}  // namespace

ChunkPlan::ChunkPlan(const Parameters& parameters, std::shared_ptr<const Placement> placement)
    : parameters_(parameters),
      placement_(std::move(placement)),
      samples_(placement_->sample_count()),
      units_(placement_->unit_count()),
      unit_order_(units_, derive_key(parameters.seed, parameters.epoch, Purpose::kUnits)) {}

Result<ChunkPlan> ChunkPlan::build(const Parameters& parameters, std::shared_ptr<const Placement> placement) {
  const std::uint64_t units = placement->unit_count();
  if (units == 0 || units > kMaxUnits || placement->first_slot(0) != 0) {
    return base::make_error(Code::kCorrupt, "the volume's {} units do not fit its {} samples; verify the volume", units,
                            placement->sample_count());
  }
  ChunkPlan plan(parameters, std::move(placement));
  DLFS_TRY(plan.add_up());
  return plan;
}

Result<void> ChunkPlan::add_up() {
  checkpoints_.reserve(units_ / kCheckpointUnits + 1);
  lane_first_ordinal_.reserve(std::min<std::uint64_t>(parameters_.lanes, samples_));
  std::array<std::uint64_t, kCheckpointUnits> units;
  std::uint64_t total = 0;
  for (std::uint64_t begin = 0; begin < units_; begin += kCheckpointUnits) {
    checkpoints_.push_back(total);
    const std::uint64_t count = std::min(kCheckpointUnits, units_ - begin);
    unit_order_.map(begin, 1, std::span(units).first(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t size = unit_size(units[i]);
      if (size > samples_ - total) {
        return base::make_error(
            Code::kCorrupt, "the volume's unit {} is said to hold {} samples, more than are left; verify the volume",
            units[i], size);
      }
      note_lanes(begin + i, total, total + size);
      total += size;
    }
  }
  if (total != samples_) {
    return base::make_error(Code::kCorrupt, "the volume's units hold {} samples, not {}; verify the volume", total,
                            samples_);
  }
  return {};
}

// Lanes that begin within [begin, end) have this ordinal first.
void ChunkPlan::note_lanes(std::uint64_t ordinal, std::uint64_t begin, std::uint64_t end) {
  while (lane_first_ordinal_.size() < parameters_.lanes) {
    const std::uint64_t lane_start = lane_begin(lane_first_ordinal_.size());
    if (lane_start < begin || lane_start >= end) return;
    lane_first_ordinal_.push_back(ordinal);
  }
}

std::uint64_t ChunkPlan::unit_size(std::uint64_t unit) const {
  return placement_->first_slot(unit + 1) - placement_->first_slot(unit);
}

std::uint64_t ChunkPlan::lane_begin(std::uint64_t lane) const {
  return lane * (samples_ / parameters_.lanes) + std::min<std::uint64_t>(lane, samples_ % parameters_.lanes);
}

std::uint64_t ChunkPlan::lane_of(std::uint64_t sample) const {
  const std::uint64_t small = samples_ / parameters_.lanes;
  const std::uint64_t longer = samples_ % parameters_.lanes;  // lanes of small + 1 samples, which come first
  if (sample < longer * (small + 1)) return sample / (small + 1);
  return longer + (sample - longer * (small + 1)) / small;
}

std::uint64_t ChunkPlan::samples_before(std::uint64_t ordinal) const {
  if (ordinal >= units_) return samples_;
  std::uint64_t at = ordinal / kCheckpointUnits;
  std::uint64_t total = checkpoints_[at];
  for (at *= kCheckpointUnits; at < ordinal; ++at) total += unit_size(unit_order_(at));
  return total;
}

// The ordinal whose unit holds the sample-th sample of the permuted sequence.
ChunkPlan::Found ChunkPlan::find(std::uint64_t sample) const {
  const auto after = std::upper_bound(checkpoints_.begin(), checkpoints_.end(), sample);
  const auto at = static_cast<std::uint64_t>(after - checkpoints_.begin()) - 1;
  Found found{at * kCheckpointUnits, checkpoints_[at]};
  while (true) {
    const std::uint64_t size = unit_size(unit_order_(found.ordinal));
    if (sample < found.samples_before + size) return found;
    found.samples_before += size;
    ++found.ordinal;
  }
}

// 1 to W, spread evenly over any arithmetic progression of lanes, so that one rank's windows end at different times.
std::uint64_t ChunkPlan::first_window_units(std::uint64_t lane) const {
  const std::uint64_t fraction = (lane * (kGolden >> 32)) & 0xFFFFFFFFu;
  return 1 + ((fraction * parameters_.window) >> 32);
}

std::uint64_t ChunkPlan::window_number(std::uint64_t lane, std::uint64_t ordinal) const {
  const std::uint64_t in_lane = ordinal - lane_first_ordinal_[lane];
  const std::uint64_t first = first_window_units(lane);
  return in_lane < first ? 0 : 1 + (in_lane - first) / parameters_.window;
}

std::uint64_t ChunkPlan::window_begin(std::uint64_t lane, std::uint64_t number) const {
  if (number == 0) return lane_first_ordinal_[lane];
  return lane_first_ordinal_[lane] + first_window_units(lane) + (number - 1) * parameters_.window;
}

void ChunkPlan::load(std::uint64_t lane, std::uint64_t number, Found begin, Window& window) const {
  const std::uint64_t lane_start = lane_begin(lane), lane_end = lane_begin(lane + 1);
  const std::uint64_t ordinal_end = std::min(window_begin(lane, number + 1), units_);
  window.pieces.clear();
  std::uint64_t held = 0;
  auto [ordinal, before] = begin;
  for (; ordinal < ordinal_end && before < lane_end; ++ordinal) {
    const std::uint64_t unit = unit_order_(ordinal);
    const std::uint64_t slot = placement_->first_slot(unit), size = placement_->first_slot(unit + 1) - slot;
    const std::uint64_t from = std::max(before, lane_start), to = std::min(before + size, lane_end);
    if (from < to) {
      held += to - from;
      window.pieces.push_back({held, slot + (from - before), slot + (to - before), unit});
    }
    before += size;
  }
  window.step_begin = std::max(begin.samples_before, lane_start) - lane_start;
  window.step_end = window.step_begin + held;
  window.ordinal_end = ordinal;
  window.samples_before_end = before;
  window.number = number;
  window.ahead_begin = window.ahead_end = 0;
  if (held > 0) {
    window.shuffle = Permutation(held, derive_key(parameters_.seed, parameters_.epoch, Purpose::kWindow, lane, number));
  }
}

void ChunkPlan::locate(std::uint64_t lane, std::uint64_t step, Window& window) const {
  const std::uint64_t number = window_number(lane, find(lane_begin(lane) + step).ordinal);
  const std::uint64_t begin = window_begin(lane, number);
  load(lane, number, {begin, samples_before(begin)}, window);
  DLFS_CHECK(window.step_begin <= step && step < window.step_end);
}

void ChunkPlan::advance(std::uint64_t lane, Window& window) const {
  do {
    load(lane, window.number + 1, {window.ordinal_end, window.samples_before_end}, window);
  } while (window.step_begin == window.step_end);  // a window of empty units
}

Draw ChunkPlan::draw(Window& window, std::uint64_t step) {
  if (step < window.ahead_begin || step >= window.ahead_end) {
    const std::uint64_t count = std::min<std::uint64_t>(window.ahead.size(), window.step_end - step);
    window.shuffle.map(step - window.step_begin, 1, std::span(window.ahead).first(count));
    window.ahead_begin = step;
    window.ahead_end = step + count;
  }
  const std::uint64_t offset = window.ahead[step - window.ahead_begin];
  const auto piece = std::upper_bound(window.pieces.begin(), window.pieces.end(), offset,
                                      [](std::uint64_t value, const Piece& p) { return value < p.end; });
  return {piece->slot_end - (piece->end - offset), piece->slot_begin, piece->slot_end, piece->unit};
}

std::uint64_t ChunkPlan::next_use(std::uint64_t unit, std::uint64_t drawn) const {
  if (unit >= units_) return kNever;
  const std::uint64_t size = unit_size(unit);
  if (size == 0) return kNever;
  const std::uint64_t ordinal = unit_order_.inverse(unit);
  const std::uint64_t before = samples_before(ordinal);
  const std::uint64_t first_lane = lane_of(before), last_lane = lane_of(before + size - 1);
  // Lanes after the first begin within this unit: their first window, at step 0, holds the piece.
  std::uint64_t best = kNever;
  const std::uint64_t shift =
      (parameters_.rank + parameters_.ranks - (first_lane + 1) % parameters_.ranks) % parameters_.ranks;
  if (first_lane + 1 + shift <= last_lane) best = first_lane + 1 + shift;
  if (first_lane % parameters_.ranks == parameters_.rank) {
    const std::uint64_t number = window_number(first_lane, ordinal);
    const std::uint64_t lane_start = lane_begin(first_lane);
    const std::uint64_t start = std::max(samples_before(window_begin(first_lane, number)), lane_start);
    best = std::min(best, (start - lane_start) * parameters_.lanes + first_lane);
  }
  return best < drawn ? best : kNever;
}

}  // namespace dlfs::order
