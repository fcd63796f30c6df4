#include "advise.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "base/try.h"
#include "block/raw_rate.h"
#include "signals.h"
#include "units.h"

namespace dlfs::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::uint32_t, 8> kDepths = {1, 4, 16, 32, 64, 128, 256, 512};
constexpr double kAsGood = 0.95;  // of the best rate: more requests in flight than that need only cost memory and time
constexpr std::uint32_t kMostWindow = 8;
constexpr double kLongestEpochS = 20;

std::uint64_t memory_of_machine() {
  return static_cast<std::uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 0l)) *
         static_cast<std::uint64_t>(std::max(sysconf(_SC_PAGESIZE), 0l));
}

std::string words(std::uint64_t bytes) { return size_text(static_cast<double>(bytes)); }

// What the reader asks the device for at once: a chunk, or a sample.
std::uint32_t request_bytes(const VolumeInfo& info, const SequenceOptions& options) {
  const std::uint64_t mean = (info.payload_bytes + info.record_bytes) / std::max<std::uint64_t>(info.samples, 1);
  const bool chunks = options.mode != Mode::kFull && mean < info.chunk_bytes;
  const std::uint64_t bytes =
      chunks ? std::min(info.chunk_bytes, info.device_bytes / 2) : std::min(mean, std::uint64_t{1} << 20);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>((bytes + 4095) / 4096 * 4096, 4096, 1u << 20));
}

Result<void> choose_depth(const VolumeInfo& info, bool direct, double slice_s,
                          const std::function<bool(const char*)>& keep_on, Advice& advice) {
  block::RawRateOptions raw;
  raw.request_bytes = advice.request_bytes;
  raw.duration = std::chrono::milliseconds(static_cast<int>(slice_s * 1000));
  raw.direct = direct;
  raw.span_bytes = info.device_bytes >= raw.request_bytes ? info.device_bytes : 0;
  double best = 0;
  for (const std::uint32_t depth : kDepths) {
    if (!keep_on("the bare device")) return interrupted_error("interrupted: nothing is advised");
    raw.depth = depth;
    raw.seed = depth;
    DLFS_TRY_ASSIGN(const block::RawRate rate, block::measure_random_reads(info.url, raw));
    advice.depths.push_back({depth, rate.bytes_per_s});
    best = std::max(best, rate.bytes_per_s);
  }
  const auto enough =
      std::ranges::find_if(advice.depths, [best](const DepthRate& each) { return each.bytes_per_s >= kAsGood * best; });
  advice.depth = enough->depth;
  advice.depth_reason = fmt::format("random reads of {} reach {}/s with {} in flight; the best of up to {} is {}/s",
                                    words(advice.request_bytes), size_text(enough->bytes_per_s), enough->depth,
                                    kDepths.back(), size_text(best));
  return {};
}

void choose_memory(const VolumeInfo& info, const SequenceOptions& options, std::uint64_t automatic, Advice& advice) {
  const std::uint64_t data = info.chunks * info.chunk_bytes, machine = memory_of_machine();
  const std::uint64_t resident = (data + data / 8 + (64u << 20)) >> 20 << 20;
  const bool stays = resident <= machine / 4;
  advice.cache_bytes = stays ? std::max(resident, automatic) : automatic;
  advice.cache_reason =
      stays ? fmt::format(
                  "the data ({}) fit in a quarter of this machine's memory: every epoch but the first is served "
                  "from there",
                  words(data))
            : fmt::format(
                  "the data ({}) do not fit in a quarter of this machine's memory ({}); so much holds the batches "
                  "ahead{}",
                  words(data), words(machine), options.mode == Mode::kChunk ? " and the lanes' chunks" : "");
  if (options.mode != Mode::kChunk) {
    advice.window_reason = "only chunk mode has windows";
    return;
  }
  const std::uint64_t lanes = std::max(1u, options.lanes / std::max(1u, options.ranks));
  const std::uint64_t fits = advice.cache_bytes / 2 / (lanes * info.chunk_bytes);
  const std::uint64_t there = std::max<std::uint64_t>(1, info.chunks / std::max(1u, options.lanes) / 2);
  advice.window =
      static_cast<std::uint32_t>(std::bit_floor(std::clamp<std::uint64_t>(std::min(fits, there), 1, kMostWindow)));
  advice.window_reason =
      fmt::format("{} lanes of {} chunks of {} take {} of that memory; a larger window shuffles wider", lanes,
                  advice.window, words(info.chunk_bytes), words(lanes * advice.window * info.chunk_bytes));
}

// Draws for `longest_s` seconds or `most` samples; how many a second.
Result<double> draw(Sequence& sequence, double longest_s, std::uint64_t most) {
  std::uint64_t samples = 0;
  const auto start = Clock::now();
  const auto elapsed_s = [start] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  while (elapsed_s() < longest_s && samples < most) {
    DLFS_TRY_ASSIGN(const std::optional<Batch> batch, sequence.next());
    if (!batch) break;
    samples += batch->size();
    if (interrupted() != 0) return interrupted_error("interrupted: nothing is advised");
  }
  return static_cast<double>(samples) / std::max(elapsed_s(), 1e-9);
}

// Samples a second once it is warm: after a short while, or after an epoch where that is what memory is for.
Result<double> rate(const Volume& volume, SequenceOptions options, double slice_s, bool after_an_epoch,
                    std::uint64_t* memory) {
  options.epochs = 0;
  DLFS_TRY_ASSIGN(Sequence sequence, volume.sequence(options));
  if (memory != nullptr) *memory = sequence.statistics().memory_limit_bytes;
  const std::uint64_t share = volume.size() / std::max(1u, options.ranks);
  DLFS_TRY(draw(sequence, after_an_epoch ? kLongestEpochS : slice_s / 4, after_an_epoch ? share : ~std::uint64_t{0}));
  return draw(sequence, slice_s, ~std::uint64_t{0});
}

}  // namespace

Result<Advice> advise(const Volume& volume, const SequenceOptions& options, bool direct, double slice_s,
                      const std::function<bool(const char*)>& keep_on) {
  const VolumeInfo info = volume.info();
  Advice advice;
  advice.request_bytes = request_bytes(info, options);
  DLFS_TRY(choose_depth(info, direct, slice_s, keep_on, advice));
  if (!keep_on("the reader, as it is")) return interrupted_error("interrupted: nothing is advised");
  std::uint64_t automatic = 0;
  DLFS_TRY_ASSIGN(advice.default_samples_per_s, rate(volume, options, slice_s, false, &automatic));
  choose_memory(info, options, automatic, advice);
  if (!keep_on("the reader, as advised")) return interrupted_error("interrupted: nothing is advised");
  SequenceOptions advised = options;
  advised.depth = advice.depth;
  advised.window = advice.window;
  advised.cache_bytes = advice.cache_bytes;
  DLFS_TRY_ASSIGN(advice.advised_samples_per_s,
                  rate(volume, advised, slice_s, advice.cache_bytes > automatic, nullptr));
  if (advice.advised_samples_per_s >= kAsGood * advice.default_samples_per_s) return advice;
  const auto instead = fmt::format(": {:.0f} samples/s were measured with more, {:.0f} so",
                                   advice.advised_samples_per_s, advice.default_samples_per_s);
  advice.depth = options.depth;
  advice.window = options.window;
  advice.cache_bytes = automatic;
  advice.depth_reason = "as it was" + instead;
  advice.cache_reason = advice.window_reason = advice.depth_reason;
  advice.advised_samples_per_s = advice.default_samples_per_s;
  return advice;
}

}  // namespace dlfs::tools
