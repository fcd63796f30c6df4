// Epoch orders: which sample is at which position of the global order, as a pure function of (placement, parameters).
// docs/shuffling.md specifies every step; golden vectors pin it. No memory grows with the number of samples.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dlfs/result.h"

namespace dlfs::order {

enum class Mode : std::uint8_t { kSequential = 0, kFull = 1, kChunk = 2 };
enum class Tail : std::uint8_t { kDrop = 0, kShort = 1, kPad = 2 };

inline constexpr std::uint32_t kMaxLanes = 65536;

struct Parameters {
  Mode mode = Mode::kChunk;
  Tail tail = Tail::kShort;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint32_t batch = 256;  // B: samples of a global batch, over all ranks
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;    // R divides B (and `lanes` in chunk mode)
  std::uint32_t lanes = 240;  // L, chunk mode
  std::uint32_t window = 1;   // W: units that a lane shuffles together, chunk mode
};

// What chunk mode must know of the media. A unit is one chunk of ordinary samples or one large sample; unit u holds the
// slots [first_slot(u), first_slot(u + 1)). first_slot(unit_count()) == sample_count().
class Placement {
 public:
  virtual ~Placement() = default;
  virtual std::uint64_t sample_count() const noexcept = 0;
  virtual std::uint64_t unit_count() const noexcept = 0;
  virtual std::uint64_t first_slot(std::uint64_t unit) const noexcept = 0;
};

// One sample of a rank's share.
struct Draw {
  std::uint64_t index = 0;  // sequential and full: the sample id. chunk: the slot
  // chunk: the piece, i.e. the slots [piece_begin, piece_end) of `unit` that this same lane draws within this same
  // window. A chunk cut at a lane's edge has a piece in each lane, so that no record is fetched by two ranks. Else all
  // zero. A repeat under kPad may belong to another rank's lane: its piece is that one slot.
  std::uint64_t piece_begin = 0;
  std::uint64_t piece_end = 0;
  std::uint64_t unit = 0;
};

// A keyed bijection on [0, n), 1 <= n <= 2^32: for n <= 16 a keyed Fisher-Yates shuffle kept in two words, above that a
// generalized Feistel network with cycle walking. **Thread**: immutable.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t key) noexcept;
  std::uint64_t size() const noexcept { return n_; }
  std::uint64_t operator()(std::uint64_t index) const noexcept;  // precondition: index < n
  std::uint64_t inverse(std::uint64_t value) const noexcept;     // precondition: value < n
  // out[i] = (*this)(first + i * stride), evaluated together. Precondition: every one of those indexes is < n.
  void map(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const noexcept;

 private:
  std::uint64_t n_;
  std::uint64_t left_ = 1, right_ = 1;    // n <= left_ * right_
  std::uint64_t reciprocal_ = 0;          // ceil(2^64 / right_), for an exact division by it
  std::array<std::uint64_t, 12> keys_{};  // n <= 16: [0] the values, [1] the inverse, four bits each
};

// The order of one epoch for one rank. **Thread**: immutable; share it freely. **Lifetime**: keeps `placement`.
class Epoch {
 public:
  // Sequential and full: O(1). Chunk: one pass over the units. `placement` may be null unless the mode is chunk; then
  // `samples` counts.
  // **Errors**: kInvalidArgument, saying which value would do (batch not divided by ranks; lanes not divided by ranks,
  // naming the nearest lanes that would; rank out of range; fewer samples than ranks under kShort; no whole batch under
  // kDrop; no samples at all). kCorrupt: the placement's units do not add up to its samples.
  static Result<std::shared_ptr<const Epoch>> create(const Parameters& parameters, std::uint64_t samples,
                                                     std::shared_ptr<const Placement> placement);
  virtual ~Epoch() = default;
  virtual const Parameters& parameters() const noexcept = 0;
  virtual std::uint64_t samples() const noexcept = 0;
  virtual std::uint64_t batches() const noexcept = 0;  // the same for every rank
  // Samples of this rank in batch g < batches(): B / R but in the last batch under kShort, where ranks differ by at
  // most one.
  virtual std::uint64_t share_size(std::uint64_t batch) const noexcept = 0;
  // How many of them, at the share's end, are repeats under kPad. Zero but in the last batch.
  virtual std::uint64_t padding(std::uint64_t batch) const noexcept = 0;
};

// Walks one rank's share of an epoch, batch by batch. **Thread**: one at a time. Memory O(lanes / ranks * window).
class Cursor {
 public:
  explicit Cursor(std::shared_ptr<const Epoch> epoch);
  ~Cursor();
  Cursor(Cursor&&) noexcept;
  Cursor& operator=(Cursor&&) noexcept;
  std::uint64_t batch() const noexcept;  // the next batch to be drawn
  // O(lanes / ranks) at once and, in chunk mode, O(log units + 64 + window) more at the first draw of each lane.
  // Precondition: batch <= batches().
  void seek(std::uint64_t batch) noexcept;
  // Replaces `out` by this rank's share of the next batch, in the global order. False at the epoch's end.
  bool next(std::vector<Draw>& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Where a run stands: 64 bytes at most, a fixed little-endian form with a CRC32C-like check of its own.
// The position counts global samples, so that it holds for any number of ranks.
struct Position {
  std::uint64_t volume = 0;  // fingerprint of the volume: a position is refused by another volume
  Parameters parameters;     // rank and ranks are not saved
  std::uint64_t next_batch = 0;
};
inline constexpr std::size_t kPositionBytes = 64;
std::array<std::byte, kPositionBytes> encode(const Position& position) noexcept;
Result<Position> decode_position(std::span<const std::byte> bytes);  // kInvalidArgument, kCorrupt, kUnsupportedVersion

// A hint for the cache: the global position before which it is not needed and near which it first is, or UINT64_MAX
// when this epoch never draws it. Sequential and full: the position of a sample, whichever rank draws it. Chunk: the
// position at which the first window that holds a piece of the unit begins, over this rank's lanes; UINT64_MAX when
// other ranks' lanes hold all of it. Repeats under kPad do not count. O(1), or O(log units + 64 + window) in chunk
// mode.
std::uint64_t next_use(const Epoch& epoch, std::uint64_t unit_or_sample) noexcept;

}  // namespace dlfs::order
