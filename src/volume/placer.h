// Which chunk a record goes to: open chunks are filled in memory and written whole, one behind the other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/mix.h"
#include "base/types.h"
#include "volume/write_queue.h"

namespace dlfs::volume {

// One record in a chunk that is about to be written.
struct PlacedRecord {
  SampleId id;
  std::uint32_t offset_bytes = 0, length_bytes = 0;
  std::uint64_t hash = 0;
};

// **Thread**: one.
class Placer {
 public:
  // Called for every record once its place is final. `address_bytes`: from the start of the data area.
  using Final = std::function<void(const PlacedRecord&, std::uint64_t address_bytes)>;
  // Writes one chunk.
  using WriteChunk = std::function<Result<void>(std::span<std::byte> chunk, std::uint64_t address_bytes)>;

  // At most `max_open` chunks are open; `queue` has more buffers than that.
  Placer(WriteQueue& queue, std::size_t max_open, std::uint64_t seed, Final final, WriteChunk write);

  // Room for a record of `length_bytes` (at most a chunk) that the caller fills at once. With `shuffle`, in a random
  // chunk with room; else in the first. A chunk that took part in a shuffle has its records in random order too:
  // chunk-wise reading cuts chunks between lanes, and parts that follow the source's order would make classes drift
  // over an epoch. **Errors**: of writes.
  Result<std::span<std::byte>> place(SampleId id, std::uint32_t length_bytes, std::uint64_t hash, bool shuffle);

  // The next chunks in a row, for one large record: the address of the first.
  std::uint64_t take_chunks(std::uint64_t count) noexcept;
  // Gives back what was taken last, from this address on.
  void give_back_chunks(std::uint64_t address_bytes) noexcept;

  // Repacks the open chunks so that few are partly filled, and writes them.
  Result<void> finish();
  std::uint64_t used_bytes() const noexcept { return next_chunk_ * chunk_bytes_; }  // of the data area: whole chunks

 private:
  struct OpenChunk {
    std::span<std::byte> buffer;
    std::uint32_t used_bytes = 0;
    std::vector<PlacedRecord> records;
    std::uint64_t room() const noexcept { return buffer.size() - used_bytes; }
  };
  std::optional<std::size_t> pick_shuffled(std::uint32_t size);
  std::optional<std::size_t> pick_first(std::uint32_t size) const noexcept;
  Result<std::size_t> make_room(std::uint32_t size, bool shuffle);
  std::size_t fullest() const noexcept;
  Result<void> open_one();
  Result<void> renew(std::size_t index);  // writes the chunk and begins an empty one in its place
  Result<void> close(std::size_t index);  // writes the chunk; it is open no more
  Result<void> write(OpenChunk& chunk);
  void mix(OpenChunk& chunk);  // puts its records into random order
  static std::span<std::byte> add(OpenChunk& chunk, PlacedRecord record);
  static void move_records(OpenChunk& donor, std::span<OpenChunk> targets);

  WriteQueue& queue_;
  std::size_t max_open_;
  std::uint64_t chunk_bytes_;
  base::Prng prng_;
  bool shuffled_ = false;
  std::vector<std::byte> scratch_;  // of mix()
  Final final_;
  WriteChunk write_;
  std::vector<OpenChunk> open_;
  std::uint64_t next_chunk_ = 0;
};

}  // namespace dlfs::volume
