#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "order/epoch.h"

namespace dlfs::order {

struct Cursor::State {
  struct Lane {
    std::uint64_t number = 0, step = 0;
    Window window;
  };

  explicit State(std::shared_ptr<const Epoch> from);
  void seek(std::uint64_t to);
  void fill(std::vector<Draw>& out);
  void fill_sequential(std::span<Draw> out, std::uint64_t position) const;
  void fill_full(std::span<Draw> out, std::uint64_t position) const;
  void fill_chunk(std::span<Draw> out);
  void fill_padding(std::span<Draw> out, std::uint64_t position) const;
  Draw draw(Lane& lane) const;

  std::shared_ptr<const Epoch> keeps;
  const EpochPlan& epoch;
  std::uint64_t batch = 0;
  std::vector<Lane> lanes;    // chunk mode: this rank's
  std::size_t next_lane = 0;  // of `lanes`: the one that the next position belongs to
};

Cursor::State::State(std::shared_ptr<const Epoch> from)
    : keeps(std::move(from)), epoch(static_cast<const EpochPlan&>(*keeps)) {
  const Parameters& p = epoch.parameters();
  if (p.mode != Mode::kChunk) return;
  lanes.resize(p.lanes / p.ranks);
  for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i].number = p.rank + i * p.ranks;
}

void Cursor::State::seek(std::uint64_t to) {
  DLFS_CHECK(to <= epoch.batches());
  batch = to;
  if (lanes.empty()) return;
  const Parameters& p = epoch.parameters();
  const std::uint64_t position = batch * p.batch + p.rank;
  next_lane = (position % p.lanes) / p.ranks;
  for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i].step = position / p.lanes + (i < next_lane ? 1 : 0);
}

void Cursor::State::fill(std::vector<Draw>& out) {
  const Parameters& p = epoch.parameters();
  const std::uint64_t first = batch * p.batch + p.rank;
  out.resize(epoch.share_size(batch));
  const std::size_t proper = out.size() - epoch.padding(batch);
  const auto share = std::span(out).first(proper);
  switch (p.mode) {
    case Mode::kSequential:
      fill_sequential(share, first);
      break;
    case Mode::kFull:
      fill_full(share, first);
      break;
    case Mode::kChunk:
      fill_chunk(share);
      break;
  }
  if (proper < out.size()) fill_padding(std::span(out).subspan(proper), first + proper * p.ranks);
  ++batch;
}

void Cursor::State::fill_sequential(std::span<Draw> out, std::uint64_t position) const {
  for (Draw& draw : out) {
    draw = Draw{.index = position};
    position += epoch.parameters().ranks;
  }
}

void Cursor::State::fill_full(std::span<Draw> out, std::uint64_t position) const {
  std::array<std::uint64_t, 64> values;
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), values.size());
    epoch.sample_order().map(position, epoch.parameters().ranks, std::span(values).first(count));
    for (std::size_t i = 0; i < count; ++i) out[i] = Draw{.index = values[i]};
    out = out.subspan(count);
    position += count * epoch.parameters().ranks;
  }
}

void Cursor::State::fill_chunk(std::span<Draw> out) {
  for (Draw& next : out) {
    next = draw(lanes[next_lane]);
    if (++next_lane == lanes.size()) next_lane = 0;
  }
}

Draw Cursor::State::draw(Lane& lane) const {
  Window& window = lane.window;
  const bool loaded = window.step_begin < window.step_end;
  if (loaded && lane.step == window.step_end) {
    epoch.chunks().advance(lane.number, window);
  } else if (!loaded || lane.step < window.step_begin || lane.step > window.step_end) {
    epoch.chunks().locate(lane.number, lane.step, window);
  }
  return ChunkPlan::draw(window, lane.step++);
}

// Positions n, n + 1, ... repeat the epoch's positions 0, 1, ..., whoever drew those.
void Cursor::State::fill_padding(std::span<Draw> out, std::uint64_t position) const {
  const Parameters& p = epoch.parameters();
  for (Draw& next : out) {
    const std::uint64_t source = position % epoch.samples();
    if (p.mode == Mode::kSequential) fill_sequential({&next, 1}, source);
    if (p.mode == Mode::kFull) fill_full({&next, 1}, source);
    if (p.mode == Mode::kChunk) {
      Lane lane{.number = source % p.lanes, .step = source / p.lanes, .window = {}};
      next = draw(lane);
      next.piece_begin = next.index;
      next.piece_end = next.index + 1;
    }
    position += p.ranks;
  }
}

Cursor::Cursor(std::shared_ptr<const Epoch> epoch) : state_(std::make_unique<State>(std::move(epoch))) {
  state_->seek(0);
}
Cursor::~Cursor() = default;
Cursor::Cursor(Cursor&&) noexcept = default;
Cursor& Cursor::operator=(Cursor&&) noexcept = default;
std::uint64_t Cursor::batch() const noexcept { return state_->batch; }
void Cursor::seek(std::uint64_t batch) noexcept { state_->seek(batch); }

bool Cursor::next(std::vector<Draw>& out) {
  if (state_->batch >= state_->epoch.batches()) {
    out.clear();
    return false;
  }
  state_->fill(out);
  return true;
}

}  // namespace dlfs::order
