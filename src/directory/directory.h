// The in-memory sample directory: id -> location, slot -> id, unit -> slots, name hash -> candidate ids. It is the index as
// it lies on the media, checked once and never changed; at most 16 bytes a sample.
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

// **Thread**: immutable; share it freely.
class Directory {
 public:
  // Takes the index section as read from the media (memory kept) and checks everything an accessor relies on: sums, widths,
  // every location inside the data area, ids_by_slot a permutation in ascending address order, bucket bounds.
  // **Errors**: kCorrupt, naming section and byte.
  static Result<Directory> load(base::Arena index, const layout::Superblock& superblock);

  std::uint64_t sample_count() const noexcept;
  std::uint64_t resident_bytes() const noexcept;   // everything this object keeps in memory

  layout::Location location(SampleId id) const noexcept;       // precondition: id < sample_count()
  SampleId id_of(Slot slot) const noexcept;                    // precondition: slot < sample_count()

  // Units in ascending address order: one chunk of ordinary samples, or one large sample.
  std::uint64_t unit_count() const noexcept;
  std::uint64_t first_slot(std::uint64_t unit) const noexcept; // precondition: unit <= unit_count(); at the end sample_count()
  std::uint64_t unit_of(Slot slot) const noexcept;             // O(log units); for reports, not for the hot path

  bool has_names() const noexcept;
  // Ids whose names may have this hash; the caller reads their names to confirm. Writes at most out.size(), returns how many there are.
  std::size_t candidates(std::uint64_t hash, std::span<SampleId> out) const noexcept;
  std::uint64_t name_block_of(SampleId id) const noexcept;     // number of the name block that holds the id's name

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Collects what a pack knows and makes the index section. Memory: at most 40 bytes a sample.
class Builder {
 public:
  explicit Builder(std::uint32_t chunk_bytes, bool names) noexcept;
  // Samples in any order of id, each once. `slot order` is the order of address.
  void add(SampleId id, layout::Location exact_location, std::uint64_t hash);
  void add_name_block(SampleId first_id);          // in ascending order
  // The index section; crc and length go into the superblock's Extent. kInvalidArgument when ids are not dense.
  Result<std::vector<std::byte>> finish(const layout::Superblock& superblock);

 private:
  std::uint32_t chunk_bytes_;
  bool names_;
  std::vector<std::uint64_t> address_, length_, hash_;   // by id
  std::vector<std::uint32_t> name_blocks_;
};

}  // namespace dlfs::directory
