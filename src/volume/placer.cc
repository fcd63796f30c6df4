#include "volume/placer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "layout/format.h"
#include "volume/device_io.h"

namespace dlfs::volume {
namespace {

// A chunk with less room than this part of it is written when a record does not fit; one with more waits for a smaller
// record.
constexpr std::uint64_t kFullPart = 64;
// In the order of arrival only these many chunks stay open, so that neighbours in time stay neighbours on the media.
constexpr std::size_t kMaxOpenInOrder = 16;

std::uint32_t padded(std::uint32_t length) {
  return static_cast<std::uint32_t>(round_up(length, layout::kRecordAlign));
}

}  // namespace

Placer::Placer(WriteQueue& queue, std::size_t max_open, std::uint64_t seed, Final final, WriteChunk write)
    : queue_(queue),
      max_open_(max_open),
      chunk_bytes_(queue.buffer_bytes()),
      prng_(seed),
      final_(std::move(final)),
      write_(std::move(write)) {}

Result<std::span<std::byte>> Placer::place(SampleId id, std::uint32_t length_bytes, std::uint64_t hash, bool shuffle) {
  const std::uint32_t size = padded(length_bytes);
  DLFS_CHECK(size <= chunk_bytes_);
  shuffled_ |= shuffle;
  DLFS_TRY_ASSIGN(const std::size_t index, make_room(size, shuffle));
  return add(open_[index], {id, 0, length_bytes, hash});
}

std::span<std::byte> Placer::add(OpenChunk& chunk, PlacedRecord record) {
  record.offset_bytes = chunk.used_bytes;
  const std::uint32_t size = padded(record.length_bytes);
  std::memset(chunk.buffer.data() + chunk.used_bytes + record.length_bytes, 0, size - record.length_bytes);
  chunk.used_bytes += size;
  chunk.records.push_back(record);
  return chunk.buffer.subspan(record.offset_bytes, record.length_bytes);
}

Result<std::size_t> Placer::make_room(std::uint32_t size, bool shuffle) {
  const std::size_t limit = shuffle ? max_open_ : std::min(max_open_, kMaxOpenInOrder);
  // All chunks of a shuffle are open from the start; in order, one is opened when nothing else has room.
  while (shuffle && open_.size() < limit) DLFS_TRY(open_one());
  if (const auto index = shuffle ? pick_shuffled(size) : pick_first(size)) {
    if (open_[*index].room() < size) DLFS_TRY(renew(*index));
    return *index;
  }
  if (open_.size() < limit) {
    DLFS_TRY(open_one());
    return open_.size() - 1;
  }
  const std::size_t index = fullest();
  if (shuffle) {
    DLFS_TRY(renew(index));
    return index;
  }
  DLFS_TRY(close(index));
  DLFS_TRY(open_one());
  return open_.size() - 1;
}

// A random chunk that has room or is as good as full; nothing when none is.
std::optional<std::size_t> Placer::pick_shuffled(std::uint32_t size) {
  const std::size_t start = prng_.below(open_.size());
  const auto good = [&](std::size_t i) {
    return open_[i].room() >= size || open_[i].room() < chunk_bytes_ / kFullPart;
  };
  for (std::size_t i = 0; i < open_.size(); ++i) {
    const std::size_t index = (start + i) % open_.size();
    if (good(index)) return index;
  }
  return std::nullopt;
}

std::optional<std::size_t> Placer::pick_first(std::uint32_t size) const noexcept {
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (open_[i].room() >= size) return i;
  }
  // Nothing has room: a chunk that is as good as full makes way before another is opened.
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (open_[i].room() < chunk_bytes_ / kFullPart) return i;
  }
  return std::nullopt;
}

std::size_t Placer::fullest() const noexcept {
  const auto it = std::ranges::min_element(open_, {}, [](const OpenChunk& chunk) { return chunk.room(); });
  return static_cast<std::size_t>(it - open_.begin());
}

Result<void> Placer::open_one() {
  OpenChunk chunk;
  DLFS_TRY_ASSIGN(chunk.buffer, queue_.acquire());
  open_.push_back(std::move(chunk));
  return {};
}

void Placer::mix(OpenChunk& chunk) {
  std::vector<PlacedRecord>& records = chunk.records;
  for (std::size_t left = records.size(); left > 1; --left) std::swap(records[left - 1], records[prng_.below(left)]);
  scratch_.assign(chunk.buffer.begin(), chunk.buffer.begin() + chunk.used_bytes);
  std::uint32_t used = 0;
  for (PlacedRecord& record : records) {
    const std::uint32_t size = padded(record.length_bytes);
    std::memcpy(chunk.buffer.data() + used, scratch_.data() + record.offset_bytes, size);
    record.offset_bytes = used;
    used += size;
  }
}

Result<void> Placer::write(OpenChunk& chunk) {
  if (shuffled_) mix(chunk);
  const std::uint64_t address = take_chunks(1);
  for (const PlacedRecord& record : chunk.records) final_(record, address + record.offset_bytes);
  std::memset(chunk.buffer.data() + chunk.used_bytes, 0, chunk.room());
  chunk.records.clear();
  chunk.used_bytes = 0;
  return write_(std::exchange(chunk.buffer, {}), address);
}

Result<void> Placer::renew(std::size_t index) {
  DLFS_TRY(write(open_[index]));
  DLFS_TRY_ASSIGN(open_[index].buffer, queue_.acquire());
  return {};
}

Result<void> Placer::close(std::size_t index) {
  DLFS_TRY(write(open_[index]));
  open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
  return {};
}

std::uint64_t Placer::take_chunks(std::uint64_t count) noexcept {
  return std::exchange(next_chunk_, next_chunk_ + count) * chunk_bytes_;
}

void Placer::give_back_chunks(std::uint64_t address_bytes) noexcept { next_chunk_ = address_bytes / chunk_bytes_; }

// Moves what fits out of `donor` into the first target with room, and closes the gaps that are left in it.
void Placer::move_records(OpenChunk& donor, std::span<OpenChunk> targets) {
  std::vector<PlacedRecord> staying;
  std::uint32_t used = 0;
  for (PlacedRecord record : donor.records) {
    const std::uint32_t size = padded(record.length_bytes);
    const std::byte* bytes = donor.buffer.data() + record.offset_bytes;
    const auto target = std::ranges::find_if(targets, [&](const OpenChunk& chunk) { return chunk.room() >= size; });
    if (target != targets.end()) {
      std::memcpy(add(*target, record).data(), bytes, record.length_bytes);
      continue;
    }
    std::memmove(donor.buffer.data() + used, bytes,
                 size);  // offsets ascend, so nothing that is still needed is overwritten
    record.offset_bytes = used;
    used += size;
    staying.push_back(record);
  }
  donor.records = std::move(staying);
  donor.used_bytes = used;
}

Result<void> Placer::finish() {
  std::ranges::sort(open_, {}, [](const OpenChunk& chunk) { return chunk.room(); });
  std::size_t first = 0;  // targets before it are full
  for (std::size_t donor = open_.size(); donor-- > 1;) {
    while (first < donor && open_[first].room() < chunk_bytes_ / 4096) ++first;
    move_records(open_[donor], std::span(open_).subspan(first, donor - first));
  }
  for (OpenChunk& chunk : open_) {
    if (chunk.records.empty())
      queue_.release(chunk.buffer);
    else
      DLFS_TRY(write(chunk));
  }
  open_.clear();
  return {};
}

}  // namespace dlfs::volume
