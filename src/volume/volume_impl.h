// What a mounted volume holds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "volume/device_pool.h"
#include "volume/volume.h"

namespace dlfs::volume {

struct Volume::Impl {
  Impl(std::string canonical_url, MountOptions mount_options, layout::Superblock committed, layout::Schema fields,
       directory::Directory ids);

  std::string url;
  MountOptions options;
  layout::Superblock superblock;
  layout::Schema schema;
  directory::Directory directory;
  layout::RecordLayout record_layout;
  MountReport report;
  DevicePool pool;

  Result<std::unique_ptr<block::BlockDevice>> open(std::uint32_t queue_depth) const;
  std::uint64_t device_offset(std::uint64_t address) const noexcept { return superblock.data.offset_bytes + address; }

  Result<void> check_id(SampleId id) const;
  Error corrupt(SampleId id, std::string_view what) const;
  std::string describe(SampleId id) const;
  Result<std::string> name(SampleId id) const;
  Result<DevicePool::Block> name_block(std::uint64_t block) const;

  Result<std::shared_ptr<const LargeSample>> large_sample(SampleId id, const layout::Location& location) const;
  // Pieces (chunks of it) first..last of a large record, verified, in order.
  using VisitPiece = std::function<void(std::uint64_t record_offset, std::span<const std::byte> piece)>;
  Result<void> visit_pieces(SampleId id, const layout::Location& location, const LargeSample& sample,
                            std::uint64_t first, std::uint64_t last, const VisitPiece& visit) const;
  Result<OwnedRecord> read_ordinary(SampleId id, const layout::Location& location) const;
  Result<OwnedRecord> read_large(SampleId id, const layout::Location& location) const;
  Result<std::uint64_t> read_large_field(SampleId id, const layout::Location& location, std::size_t field,
                                         std::uint64_t offset, std::span<std::byte> into, KeptPiece* kept) const;
};

}  // namespace dlfs::volume
