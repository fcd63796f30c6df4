// The in-memory sample directory: id -> location, slot -> id, unit -> slots, name hash -> candidate ids. It is the
// index as it lies on the media, checked once and never changed; at most 16 bytes a sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/arena.h"
#include "base/types.h"
#include "layout/index.h"

namespace dlfs::directory {

// Hash of a sample's name: XXH3-64 with the volume's record salt as seed. Decides the index, never identity.
std::uint64_t name_hash(std::string_view name, std::uint32_t salt) noexcept;

// **Thread**: immutable; share it freely. Copies share the memory.
class Directory {
 public:
  // Takes the index section as read from the media (memory kept) and checks everything an accessor relies on: sums,
  // widths, every location inside the data area, ids_by_slot a permutation in ascending address order, bucket bounds.
  // The arena may be longer than the index; all of it counts as resident, so take one that fits (huge pages from some
  // 64 MiB on).
  // **Errors**: kCorrupt, naming section and entry; kUnsupportedVersion.
  static Result<Directory> load(base::Arena index, const layout::Superblock& superblock);

  std::uint64_t sample_count() const noexcept;
  std::uint64_t resident_bytes() const noexcept;  // everything this object keeps in memory
  const layout::IndexHeader& header() const noexcept;
  base::PageKind page_kind() const noexcept;

  layout::Location location(SampleId id) const noexcept;  // precondition: id < sample_count()
  SampleId id_of(Slot slot) const noexcept;               // precondition: slot < sample_count()
  // Many locations at once, hiding the latency of memory. Precondition: every id < sample_count(), out.size() >=
  // ids.size().
  void locations(std::span<const std::uint32_t> ids, std::span<layout::Location> out) const noexcept;

  // Units in ascending address order: one chunk of ordinary samples, or one large sample.
  std::uint64_t unit_count() const noexcept;
  std::uint64_t first_slot(
      std::uint64_t unit) const noexcept;           // precondition: unit <= unit_count(); at the end sample_count()
  std::uint64_t unit_of(Slot slot) const noexcept;  // O(log units); for reports, not for the hot path

  bool has_names() const noexcept;
  // Ids whose names may have this hash; the caller reads their names to confirm. Writes at most out.size(), returns how
  // many there are.
  std::size_t candidates(std::uint64_t hash, std::span<SampleId> out) const noexcept;
  // The first candidate of each hash, or kNoCandidate: many look-ups at once, hiding the latency of memory.
  static constexpr std::uint64_t kNoCandidate = ~std::uint64_t{0};
  void first_candidates(std::span<const std::uint64_t> hashes, std::span<std::uint64_t> out) const noexcept;
  // Number of the name block that holds the id's name. Precondition: has_names(), id < sample_count().
  std::uint64_t name_block_of(SampleId id) const noexcept;
  std::uint64_t name_block_count() const noexcept;

 private:
  struct Impl;
  explicit Directory(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

// Collects what a pack knows and makes the index section. Memory: at most 40 bytes a sample, finish() included.
class Builder {
 public:
  // Hashes are ignored without `names`.
  explicit Builder(std::uint32_t chunk_bytes, bool names) noexcept;
  ~Builder();
  // Samples in any order of id, each once. `slot order` is the order of address. The location's length is exact.
  void add(SampleId id, layout::Location exact_location, std::uint64_t hash);
  void add_name_block(SampleId first_id);  // in ascending order
  std::uint64_t count() const noexcept { return count_; }
  // The index section; crc and length go into the superblock's Extent. Uses the superblock's data extent and
  // record_salt. Leaves the builder empty. **Errors**: kInvalidArgument when ids are not dense or a location is
  // impossible.
  Result<std::vector<std::byte>> finish(const layout::Superblock& superblock);

  // After finish(): samples that share their whole 64-bit hash with another one, in the order of (hash, id), so that
  // whoever packs can compare their names. At most kMaxSameHash; more are left out (then many names are the same).
  struct SameHash {
    std::uint64_t hash = 0;
    SampleId id;
  };
  static constexpr std::size_t kMaxSameHash = 1u << 20;
  const std::vector<SameHash>& same_hash() const noexcept { return same_hash_; }

 private:
  struct Block;
  struct Pending;
  layout::Location location(std::uint64_t id) const noexcept;
  std::uint64_t hash(std::uint64_t id) const noexcept;
  Result<layout::IndexFacts> gather(const layout::Superblock& superblock) const;
  void fill_locations(Pending& pending) const;
  void fill_slots(Pending& pending) const;
  void fill_names(Pending& pending);

  std::uint32_t chunk_bytes_;
  bool names_, misused_ = false;
  std::uint64_t count_ = 0;
  std::vector<std::unique_ptr<Block>> blocks_;  // of 65,536 ids each: growing moves nothing
  std::vector<std::uint32_t> name_blocks_;
  std::vector<SameHash> same_hash_;
};

}  // namespace dlfs::directory
