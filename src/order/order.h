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

struct Parameters {
  Mode mode = Mode::kChunk;
  Tail tail = Tail::kShort;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint32_t batch = 256;   // B: samples of a global batch, over all ranks
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;     // R divides B (and `lanes` in chunk mode)
  std::uint32_t lanes = 240;   // L, chunk mode
  std::uint32_t window = 1;    // W: units that a lane shuffles together, chunk mode
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
  std::uint64_t index = 0;   // sequential and full: the sample id. chunk: the slot
  // chunk: the piece, i.e. the slots [piece_begin, piece_end) of `unit` that this same lane draws within this same window.
  // A chunk cut at a lane's edge has a piece in each lane, so that no record is fetched by two ranks. Else all zero.
  std::uint64_t piece_begin = 0;
  std::uint64_t piece_end = 0;
  std::uint64_t unit = 0;
};

// A keyed bijection on [0, n), 1 <= n <= 2^32. **Thread**: immutable.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t key) noexcept;
  std::uint64_t size() const noexcept { return n_; }
  std::uint64_t operator()(std::uint64_t index) const noexcept;  // precondition: index < n
  std::uint64_t inverse(std::uint64_t value) const noexcept;     // precondition: value < n

 private:
  std::uint64_t n_;
  std::uint64_t left_, right_;  // n <= left_ * right_
  std::array<std::uint64_t, 8> keys_;
};

// The order of one epoch for one rank. **Thread**: immutable; share it freely. **Lifetime**: keeps `placement`.
class Epoch {
 public:
  // Sequential and full: O(1). Chunk: one pass over the units. `placement` may be null unless the mode is chunk; then `samples` counts.
  // **Errors**: kInvalidArgument, saying which value would do (batch not divided by ranks; lanes not divided by ranks, naming the
  // nearest lanes that would; rank out of range; fewer samples than ranks; no whole batch under kDrop).
  static Result<std::shared_ptr<const Epoch>> create(const Parameters& parameters, std::uint64_t samples,
                                                     std::shared_ptr<const Placement> placement);
  virtual ~Epoch() = default;
  virtual const Parameters& parameters() const noexcept = 0;
  virtual std::uint64_t samples() const noexcept = 0;
  virtual std::uint64_t batches() const noexcept = 0;  // the same for every rank
  // Samples of this rank in batch g < batches(): B / R but in the last batch under kShort, where ranks differ by at most one.
  virtual std::uint64_t share_size(std::uint64_t batch) const noexcept = 0;
};

// Walks one rank's share of an epoch, batch by batch. **Thread**: one. Memory O(lanes / ranks * window).
class Cursor {
 public:
  explicit Cursor(std::shared_ptr<const Epoch> epoch);
  ~Cursor();
  Cursor(Cursor&&) noexcept;
  Cursor& operator=(Cursor&&) noexcept;
  std::uint64_t batch() const noexcept;       // the next batch to be drawn
  // O(1) (sequential, full) or O(lanes / ranks * log units) (chunk). Precondition: batch <= batches().
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
  std::uint64_t volume = 0;    // fingerprint of the volume: a position is refused by another volume
  Parameters parameters;       // rank and ranks are not saved
  std::uint64_t next_batch = 0;
};
inline constexpr std::size_t kPositionBytes = 64;
std::array<std::byte, kPositionBytes> encode(const Position& position) noexcept;
Result<Position> decode_position(std::span<const std::byte> bytes);  // kInvalidArgument, kCorrupt, kUnsupportedVersion

// Hints for the cache: given a chunk-mode epoch, the global position at which a unit is first needed in it, or UINT64_MAX when another rank's lanes
// hold all of it. Full mode: the position of a sample. O(log units).
std::uint64_t next_use(const Epoch& epoch, std::uint64_t unit_or_sample) noexcept;

}  // namespace dlfs::order
