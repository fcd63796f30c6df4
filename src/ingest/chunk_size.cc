#include "ingest/chunk_size.h"

#include <algorithm>
#include <vector>

#include "base/mix.h"
#include "base/try.h"

namespace dlfs::ingest {
namespace {

constexpr std::uint32_t kUsual = 256u << 10, kLeast = 64u << 10, kMost = 1u << 20;
constexpr double kGoodEnough = 1.08;  // bytes of chunks to bytes of records
constexpr std::uint64_t kLooked = 4096, kRecordHead = 32;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Bytes that records take when chunks are filled one after the other.
std::uint64_t taken_bytes(std::span<const std::uint64_t> records, std::uint64_t chunk) noexcept {
  std::uint64_t large = 0, chunks = 0, left = 0;
  for (const std::uint64_t record : records) {
    if (record > chunk) {
      large += round_up(record, chunk);
      continue;
    }
    if (record > left) {
      ++chunks;
      left = chunk;
    }
    left -= record;
  }
  return large + chunks * chunk;
}

}  // namespace

std::uint32_t suit_chunk_bytes(std::span<const std::uint64_t> record_bytes) noexcept {
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : record_bytes) total += bytes;
  const auto waste = [&](std::uint32_t chunk) {  // the last chunk, which is seldom full, does not count
    const std::uint64_t taken = taken_bytes(record_bytes, chunk);
    return static_cast<double>(taken - std::min<std::uint64_t>(taken, chunk)) /
           static_cast<double>(std::max<std::uint64_t>(total, 1));
  };
  std::uint32_t best = kUsual;
  double least = waste(kUsual);
  if (least <= kGoodEnough) return kUsual;
  for (std::uint32_t chunk = kLeast; chunk <= kMost; chunk *= 2) {
    if (const double here = waste(chunk); here < least - 0.01) {
      best = chunk;
      least = here;
    }
  }
  return best;
}

Result<std::uint32_t> suit_chunk_bytes(const Catalog& files) {
  const std::uint64_t count = files.count(), looked = std::min(count, kLooked);
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 0; i < looked; ++i) {
    const std::uint64_t index = looked == count ? i : base::mix64(i) % count;
    DLFS_TRY_ASSIGN(const SourceFile file, files.at(index));
    sizes.push_back(file.size_bytes + kRecordHead);
  }
  return suit_chunk_bytes(sizes);
}

}  // namespace dlfs::ingest
