#include "reader/policy.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>

namespace dlfs::reader {
namespace {

constexpr std::uint32_t kBatchesAhead = 64;  // when the memory does not decide first
constexpr std::uint64_t kChunkBytesAhead = 64u << 20;
constexpr std::uint64_t kBookBytes = 16u << 20, kBookBytesASample = 120;  // what batches ahead take beside cache_bytes
constexpr std::uint32_t kMostBatchesAhead = 4096;
constexpr std::uint64_t kReserveBatches = 16;  // sample-wise: memory that is not given to resident chunks
constexpr std::uint64_t kPieceBatches = 4;     // chunk mode: batches ahead that must fit beside the lanes' pieces

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

std::uint64_t share(const Shape& s) { return std::max<std::uint64_t>(1, s.order.batch / std::max(1u, s.order.ranks)); }

// Memory that chunk mode needs: the pieces that the lanes draw from, and those of a few batches ahead.
std::uint64_t working_set(const Shape& s) {
  const std::uint64_t lanes = std::max(1u, s.order.lanes), here = divide_up(lanes, std::max(1u, s.order.ranks));
  const std::uint64_t units_a_lane = divide_up(s.units, lanes) + 1;
  const std::uint64_t live = here * std::min<std::uint64_t>(s.order.window, units_a_lane);
  const std::uint64_t mean_unit = divide_up(s.data_bytes, s.units);
  const std::uint64_t piece = std::max<std::uint64_t>(std::min(mean_unit, divide_up(s.data_bytes, lanes)), 4096);
  const std::uint64_t block = piece <= s.chunk_bytes ? std::bit_ceil(piece) : piece;
  const std::uint64_t samples_a_unit = std::max<std::uint64_t>(1, s.samples / s.units);
  const std::uint64_t ahead = kPieceBatches * divide_up(share(s), samples_a_unit) + kPieceBatches;
  return (live + ahead) * block;
}

void plan_chunk_mode(const Shape& s, bool all_fits, Policy& policy) {
  const std::uint64_t need = working_set(s);
  policy.by_piece = all_fits || need <= s.slab_capacity_bytes;
  policy.whole_units = all_fits && (s.order.ranks == 1 || s.epochs != 1);
  const std::uint64_t here = divide_up(s.order.lanes, std::max(1u, s.order.ranks));
  policy.stale_draws = 16 * here * std::max(1u, s.order.window);
  if (policy.by_piece) return;
  policy.notes = fmt::format(
      "chunk mode with {} lanes a rank and a window of {} needs {} of memory to read whole chunks, and cache_bytes is "
      "{}: samples are read "
      "singly; set cache_bytes to {} or more, or use fewer lanes or a smaller window",
      here, s.order.window, in_words(need), in_words(s.cache_bytes), need + need / 8 + s.chunk_bytes);
}

void plan_sample_wise(const Shape& s, bool all_fits, Policy& policy) {
  // Batches that are held pin the chunks that they use, so that these cannot make room: leave enough beside them.
  const std::uint64_t reserve = kReserveBatches * share(s) * policy.footprint_bytes;
  if (s.slab_bytes < s.chunk_bytes) return;  // chunks do not fit in slabs: too little memory to keep any
  policy.resident_limit_bytes =
      all_fits ? s.slab_capacity_bytes : s.slab_capacity_bytes - std::min(reserve, s.slab_capacity_bytes);
}

}  // namespace

std::uint64_t automatic_cache_bytes(const Shape& s, std::uint64_t memory_bytes) {
  constexpr std::uint64_t kLeast = 256u << 20;
  constexpr std::uint64_t kBatches = 6;  // two that are read, two that wait, two that the consumer holds
  const std::uint64_t footprint = divide_up(s.sample_bytes, s.samples) + s.block_bytes;
  std::uint64_t wanted = kBatches * share(s) * footprint;
  if (s.order.mode == order::Mode::kChunk) {
    const std::uint64_t pieces = working_set(s);
    wanted = std::max(wanted, pieces + pieces / 8 + s.chunk_bytes);
  }
  return std::clamp(wanted, kLeast, std::max(kLeast, memory_bytes / 4));
}

std::uint64_t memory_of_machine() {
  const auto pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  std::uint64_t bytes =
      static_cast<std::uint64_t>(std::max(pages, 0l)) * static_cast<std::uint64_t>(std::max(page, 0l));
  std::uint64_t limit = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit) bytes = std::min(bytes, limit);  // "max" is no number
  return bytes;
}

std::uint32_t batches_ahead(const Shape& s) {
  if (s.prefetch_batches != 0) return std::min(s.prefetch_batches, kMostBatchesAhead);
  if (s.order.mode != order::Mode::kChunk) return kBatchesAhead;
  const std::uint64_t batch_bytes = std::max<std::uint64_t>(1, share(s) * divide_up(s.sample_bytes, s.samples));
  const std::uint64_t wanted = std::min(kChunkBytesAhead / batch_bytes, kBookBytes / (share(s) * kBookBytesASample));
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, kBatchesAhead, kMostBatchesAhead));
}

Policy choose_policy(const Shape& s) {
  Policy policy;
  const std::uint64_t mean =
      divide_up(std::max<std::uint64_t>(s.sample_bytes, 1), std::max<std::uint64_t>(s.samples, 1));
  policy.footprint_bytes = mean + s.block_bytes;
  const std::uint64_t wanted =
      std::clamp<std::uint64_t>(std::bit_ceil(8 * policy.footprint_bytes), 64u << 10, 2u << 20);
  policy.bump_block_bytes = std::min(s.slab_bytes, wanted);
  policy.batches_ahead = batches_ahead(s);
  const bool large = s.data_bytes / s.units > s.chunk_bytes;  // more bytes than chunks of ordinary samples
  const bool all_fits =
      s.data_bytes + (large ? s.slab_bytes : 0) <= s.slab_capacity_bytes && s.slab_bytes >= s.chunk_bytes;
  policy.group_limit_bytes = s.cache_bytes / 8;
  if (s.order.mode == order::Mode::kChunk) {
    plan_chunk_mode(s, all_fits, policy);
  } else {
    plan_sample_wise(s, all_fits, policy);
  }
  return policy;
}

std::string in_words(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

}  // namespace dlfs::reader
