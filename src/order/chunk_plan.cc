#include "order/chunk_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/try.h"
#include "order/keys.h"

namespace dlfs::order {
namespace {

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
  plan.deal_parts();
  DLFS_TRY(plan.add_up());
  return plan;
}

Result<void> ChunkPlan::add_up() {
  checkpoints_.reserve(units_ / kCheckpointUnits + 1);
  Sizes units;
  std::uint64_t total = 0;
  std::size_t part = 0;  // the first whose beginning is not yet reached
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
      total += size;
      note_lanes(begin + i, total, part);
    }
  }
  if (total != samples_) {
    return base::make_error(Code::kCorrupt, "the volume's units hold {} samples, not {}; verify the volume", total,
                            samples_);
  }
  return {};
}

// The first n mod L lanes hold one sample more, wherever their parts lie. Neighbouring parts may share a unit, so they
// go to lanes in a keyed order: else neighbouring positions would often draw from one unit where units are few.
void ChunkPlan::deal_parts() {
  const Permutation parts(parameters_.lanes, derive_key(parameters_.seed, parameters_.epoch, Purpose::kLanes));
  part_lane_.resize(parameters_.lanes);
  lane_begin_.resize(parameters_.lanes);
  lane_first_ordinal_.resize(parameters_.lanes);
  std::uint64_t begin = 0;
  for (std::uint64_t part = 0; part < parameters_.lanes; ++part) {
    const std::uint64_t lane = parts.inverse(part);
    part_lane_[part] = static_cast<std::uint32_t>(lane);
    lane_begin_[lane] = begin;
    begin += lane_size(lane);
  }
}

// Lanes whose part begins before `end`, and not before this unit, have this ordinal first.
void ChunkPlan::note_lanes(std::uint64_t ordinal, std::uint64_t end, std::size_t& part) {
  for (; part < part_lane_.size() && lane_begin_[part_lane_[part]] < end; ++part) {
    lane_first_ordinal_[part_lane_[part]] = ordinal;
  }
}

std::uint64_t ChunkPlan::unit_size(std::uint64_t unit) const {
  return placement_->first_slot(unit + 1) - placement_->first_slot(unit);
}

std::uint64_t ChunkPlan::lane_size(std::uint64_t lane) const {
  return samples_ / parameters_.lanes + (lane < samples_ % parameters_.lanes ? 1 : 0);
}

// Empty parts begin where the next one does, so the last that begins at or before a sample holds it.
std::uint64_t ChunkPlan::part_of(std::uint64_t sample) const {
  const auto after = std::upper_bound(part_lane_.begin(), part_lane_.end(), sample,
                                      [this](std::uint64_t at, std::uint32_t lane) { return at < lane_begin_[lane]; });
  return static_cast<std::uint64_t>(after - part_lane_.begin()) - 1;
}

std::span<const std::uint64_t> ChunkPlan::sizes_after(std::uint64_t checkpoint, Sizes& sizes) const {
  const std::uint64_t begin = checkpoint * kCheckpointUnits;
  const auto some = std::span(sizes).first(std::min(kCheckpointUnits, units_ - begin));
  unit_order_.map(begin, 1, some);
  for (std::uint64_t& unit : some) unit = unit_size(unit);
  return some;
}

std::uint64_t ChunkPlan::samples_before(std::uint64_t ordinal) const {
  if (ordinal >= units_) return samples_;
  const std::uint64_t checkpoint = ordinal / kCheckpointUnits;
  Sizes storage;
  const auto sizes = sizes_after(checkpoint, storage).first(ordinal % kCheckpointUnits);
  return std::accumulate(sizes.begin(), sizes.end(), checkpoints_[checkpoint]);
}

// The ordinal whose unit holds the sample-th sample of the permuted sequence.
ChunkPlan::Found ChunkPlan::find(std::uint64_t sample) const {
  const auto after = std::upper_bound(checkpoints_.begin(), checkpoints_.end(), sample);
  const auto checkpoint = static_cast<std::uint64_t>(after - checkpoints_.begin()) - 1;
  Found found{checkpoint * kCheckpointUnits, checkpoints_[checkpoint]};
  Sizes storage;
  for (const std::uint64_t size : sizes_after(checkpoint, storage)) {
    if (sample < found.samples_before + size) break;
    found.samples_before += size;
    ++found.ordinal;
  }
  return found;
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
  const std::uint64_t lane_start = lane_begin_[lane], lane_end = lane_start + lane_size(lane);
  const std::uint64_t ordinal_end = std::min(window_begin(lane, number + 1), units_);
  window.pieces.clear();
  std::uint64_t held = 0;
  std::uint64_t ordinal = begin.ordinal, before = begin.samples_before;
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
  const std::uint64_t number = window_number(lane, find(lane_begin_[lane] + step).ordinal);
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
  const std::uint64_t first_part = part_of(before), last_part = part_of(before + size - 1);
  std::uint64_t best = kNever;
  for (std::uint64_t part = first_part; part <= last_part; ++part) {
    const std::uint64_t lane = part_lane_[part];
    if (lane % parameters_.ranks != parameters_.rank || lane_size(lane) == 0) continue;
    std::uint64_t step = 0;  // parts after the first begin within this unit, so their first window holds it
    if (part == first_part) {
      const std::uint64_t window = window_begin(lane, window_number(lane, ordinal));
      step = std::max(samples_before(window), lane_begin_[lane]) - lane_begin_[lane];
    }
    best = std::min(best, step * parameters_.lanes + lane);
  }
  return best < drawn ? best : kNever;
}

}  // namespace dlfs::order
