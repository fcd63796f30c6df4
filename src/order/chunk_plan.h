// Chunk mode's plan of one epoch: the units in permuted order laid end to end, cut into lanes and windows.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "order/order.h"

namespace dlfs::order {

// The part of one unit that one lane draws in one window.
struct Piece {
  std::uint64_t end = 0;  // samples of the window up to and with this piece
  std::uint64_t slot_begin = 0, slot_end = 0;
  std::uint64_t unit = 0;
};

// One window of one lane, ready to draw from.
struct Window {
  std::uint64_t step_begin = 0, step_end = 0;  // steps of the lane; both zero: nothing loaded
  std::uint64_t ordinal_end = 0;               // the next window's first ordinal, and the samples before it
  std::uint64_t samples_before_end = 0;
  std::uint64_t number = 0;  // 0, 1, ... within the lane
  Permutation shuffle{1, 0};
  std::vector<Piece> pieces;
  std::uint64_t ahead_begin = 0, ahead_end = 0;  // steps whose offsets within the window are in `ahead`
  std::array<std::uint64_t, 16> ahead{};
};

// **Thread**: immutable once built. Memory: 8 bytes for 64 units and 20 a lane.
class ChunkPlan {
 public:
  static Result<ChunkPlan> build(const Parameters& parameters, std::shared_ptr<const Placement> placement);

  // Fills `window` with the window that holds `step` of `lane`. Precondition: step < lane_size(lane).
  void locate(std::uint64_t lane, std::uint64_t step, Window& window) const;
  // Goes on from a located window to the lane's next one that holds samples. Precondition: step_end < lane_size(lane).
  void advance(std::uint64_t lane, Window& window) const;
  // Precondition: window.step_begin <= step < window.step_end.
  static Draw draw(Window& window, std::uint64_t step);

  // See order.h. `drawn`: positions below this are drawn in the epoch.
  std::uint64_t next_use(std::uint64_t unit, std::uint64_t drawn) const;
  std::uint64_t lane_size(std::uint64_t lane) const;

 private:
  ChunkPlan(const Parameters& parameters, std::shared_ptr<const Placement> placement);
  Result<void> add_up();
  void note_lanes(std::uint64_t ordinal, std::uint64_t end, std::size_t& part);
  struct Found {
    std::uint64_t ordinal, samples_before;
  };
  Found find(std::uint64_t sample) const;
  static constexpr std::uint64_t kCheckpointUnits = 64;
  using Sizes = std::array<std::uint64_t, kCheckpointUnits>;
  std::span<const std::uint64_t> sizes_after(std::uint64_t checkpoint, Sizes& sizes) const;
  std::uint64_t samples_before(std::uint64_t ordinal) const;
  std::uint64_t unit_size(std::uint64_t unit) const;
  void deal_parts();
  std::uint64_t part_of(std::uint64_t sample) const;
  std::uint64_t first_window_units(std::uint64_t lane) const;
  std::uint64_t window_number(std::uint64_t lane, std::uint64_t ordinal) const;
  std::uint64_t window_begin(std::uint64_t lane, std::uint64_t number) const;
  void load(std::uint64_t lane, std::uint64_t number, Found begin, Window& window) const;

  Parameters parameters_;
  std::shared_ptr<const Placement> placement_;
  std::uint64_t samples_, units_;
  Permutation unit_order_;
  std::vector<std::uint64_t> checkpoints_;         // samples before every 64th ordinal
  std::vector<std::uint32_t> part_lane_;           // whose the parts of the sequence are, in the sequence's order
  std::vector<std::uint64_t> lane_begin_;          // where in the sequence a lane's part begins
  std::vector<std::uint64_t> lane_first_ordinal_;  // of lanes that hold samples
};

}  // namespace dlfs::order
