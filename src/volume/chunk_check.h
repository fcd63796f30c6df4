// Verify's view of the data area: chunks in ascending order, each record and every byte between records.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "layout/large_record.h"
#include "volume/verify.h"

namespace dlfs::volume {

// Where the first byte that is not zero lies.
std::optional<std::uint64_t> first_non_zero(std::span<const std::byte> bytes) noexcept;

// **Thread**: one. **Lifetime**: volume and device outlive it.
class ChunkChecker {
 public:
  // `device` is for what is read out of turn: the tables of large records.
  ChunkChecker(const Volume& volume, block::BlockDevice& device, std::function<void(Finding)> found);

  void check(std::span<const std::byte> chunk);  // the next chunk
  void unreadable(const Error& error);           // the next chunk could not be read
  Result<void> finish();                         // after the last

  std::uint64_t samples() const noexcept { return slot_; }
  std::uint64_t bad_samples() const noexcept { return bad_samples_; }
  std::uint64_t bad_chunks() const noexcept { return bad_chunks_; }

 private:
  struct Large {
    SampleId id;
    std::uint64_t address = 0;
    bool bad = false;                             // counted once
    std::optional<layout::LargeRecordHead> head;  // nothing: it is damaged
    std::vector<std::byte> table;                 // empty: it is damaged
  };
  std::uint64_t begin() const noexcept { return chunk_ * chunk_bytes_; }
  bool at_slot_in(std::uint64_t end) noexcept;  // the next slot lies before this address
  void look_ahead() noexcept;
  void check_ordinary(std::span<const std::byte> chunk, SampleId id, const layout::Location& location);
  void check_zero(std::span<const std::byte> chunk, std::uint64_t from, std::uint64_t to, const char* where);
  void begin_large(std::span<const std::byte> chunk, SampleId id, const layout::Location& location);
  void read_table(const layout::Location& location);
  void check_large(std::span<const std::byte> chunk);
  void bad_large(std::uint64_t address, std::string_view what);
  void bad_sample(Finding::What what, SampleId id, std::uint64_t address, std::string message);
  void report(Finding finding);
  void next_chunk() noexcept;

  const Volume& volume_;
  block::BlockDevice& device_;
  std::function<void(Finding)> found_;
  std::uint64_t chunk_bytes_;
  std::uint64_t chunk_ = 0, slot_ = 0;  // the next ones
  std::uint64_t bad_samples_ = 0, bad_chunks_ = 0;
  bool chunk_bad_ = false;
  std::optional<Large> large_;  // goes on in this chunk
  std::vector<layout::FieldValue> fields_;
  static constexpr std::size_t kLookAhead = 64;  // slots whose places are fetched together
  std::uint64_t ahead_begin_ = 0, ahead_end_ = 0;
  std::array<std::uint32_t, kLookAhead> ahead_ids_{};
  std::array<layout::Location, kLookAhead> ahead_{};
};

}  // namespace dlfs::volume
