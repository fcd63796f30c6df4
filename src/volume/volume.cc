#include "volume/volume.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/endian.h"
#include "base/error.h"
#include "base/mix.h"
#include "base/try.h"
#include "layout/name_block.h"
#include "volume/device_io.h"
#include "volume/volume_impl.h"

namespace dlfs::volume {
namespace {

constexpr std::uint32_t kNamesPieceBytes = 1u << 20;
constexpr std::size_t kNamesInFlight = 4;
constexpr std::size_t kNamelessPiece = 1024;  // ids a visit, where there are no names

}  // namespace

const std::string& Volume::url() const noexcept { return impl_->url; }
const MountOptions& Volume::options() const noexcept { return impl_->options; }
const layout::Superblock& Volume::superblock() const noexcept { return impl_->superblock; }
const layout::Schema& Volume::schema() const noexcept { return impl_->schema; }
const directory::Directory& Volume::directory() const noexcept { return impl_->directory; }
const layout::RecordLayout& Volume::record_layout() const noexcept { return impl_->record_layout; }
const Volume::MountReport& Volume::report() const noexcept { return impl_->report; }
std::uint64_t Volume::device_offset(std::uint64_t data_address) const noexcept {
  return impl_->device_offset(data_address);
}
Result<std::string> Volume::name(SampleId id) const { return impl_->name(id); }
std::string Volume::describe(SampleId id) const { return impl_->describe(id); }

std::uint64_t Volume::fingerprint() const noexcept {
  const auto& id = impl_->superblock.volume_id;
  const std::uint64_t halves =
      base::mix64(base::load_le<std::uint64_t>(id.data())) ^ base::load_le<std::uint64_t>(id.data() + 8);
  return base::mix64(base::mix64(halves) ^ impl_->superblock.generation);
}

Result<std::unique_ptr<block::BlockDevice>> Volume::open_device(std::uint32_t queue_depth) const {
  return impl_->open(queue_depth);
}

Result<void> Volume::with_device(const std::function<Result<void>(block::BlockDevice&)>& use) const {
  return impl_->pool.with([&use](DeviceLease& lease) { return use(lease.device()); });
}

Result<void> Volume::Impl::check_id(SampleId id) const {
  if (id.value < directory.sample_count()) return {};
  return base::make_error(Code::kNotFound, "there is no sample {} in '{}'; it has {} samples, numbered from 0",
                          id.value, base::escape(url), directory.sample_count());
}

std::string Volume::Impl::describe(SampleId id) const {
  if (id.value >= directory.sample_count())
    return fmt::format("sample {} (not there) on {}", id.value, base::escape(url));
  const auto known = name(id);
  const std::string quoted = known.ok() && !known->empty() ? fmt::format(" ('{}')", base::escape(*known)) : "";
  return fmt::format("sample {}{} on {} at byte {}", id.value, quoted, base::escape(url),
                     device_offset(directory.location(id).address_bytes));
}

Error Volume::Impl::corrupt(SampleId id, std::string_view what) const {
  return base::make_error(Code::kCorrupt, "{} is damaged: {}; run dlfs verify, and restore the volume from a copy",
                          describe(id), what);
}

Result<DevicePool::Block> Volume::Impl::name_block(std::uint64_t block) const {
  if (auto cached = pool.cached_names(block)) return cached;
  const std::uint64_t offset = superblock.names.offset_bytes + block * layout::kNameBlockBytes;
  if ((block + 1) * layout::kNameBlockBytes > superblock.names.length_bytes) {
    return base::make_error(Code::kCorrupt, "the index of '{}' names block {} of its names, which has only {} bytes",
                            base::escape(url), block, superblock.names.length_bytes);
  }
  auto bytes = pool.with([&](DeviceLease& lease) -> Result<DevicePool::Block> {
    DLFS_TRY_ASSIGN(const auto read, lease.read(offset, layout::kNameBlockBytes, options.timeout));
    return std::make_shared<const std::vector<std::byte>>(read.begin(), read.end());
  });
  if (!bytes.ok()) return bytes;
  if (auto decoded = layout::NameBlock::decode(**bytes, superblock.record_salt); !decoded.ok()) {
    return base::make_error(
        Code::kCorrupt,
        "the names at byte {} of '{}' are damaged: {}; run dlfs verify, and restore the volume from a copy", offset,
        base::escape(url), decoded.error().message);
  }
  pool.cache_names(block, *bytes);
  return bytes;
}

Result<std::string> Volume::Impl::name(SampleId id) const {
  DLFS_TRY(check_id(id));
  if (!directory.has_names()) return std::string();
  const std::uint64_t number = directory.name_block_of(id);
  DLFS_TRY_ASSIGN(const DevicePool::Block bytes, name_block(number));
  DLFS_TRY_ASSIGN(const layout::NameBlock block, layout::NameBlock::decode(*bytes, superblock.record_salt));
  const std::uint64_t index = std::uint64_t{id.value} - block.first_id().value;
  if (id < block.first_id() || index >= block.count()) {
    return base::make_error(Code::kCorrupt,
                            "name block {} of '{}' does not hold the name of sample {}; run dlfs verify", number,
                            base::escape(url), id.value);
  }
  return std::string(block.name(index));
}

Result<SampleId> Volume::find(std::string_view name) const {
  if (!directory().has_names()) {
    return base::make_error(Code::kNotFound, "'{}' was packed without names; use sample numbers", base::escape(url()));
  }
  const std::uint64_t hash = directory::name_hash(name, superblock().record_salt);
  std::vector<SampleId> candidates(16);
  std::size_t count = directory().candidates(hash, candidates);
  if (count > candidates.size()) {
    candidates.resize(count);
    count = directory().candidates(hash, candidates);
  }
  for (std::size_t i = 0; i < std::min(count, candidates.size()); ++i) {
    DLFS_TRY_ASSIGN(const std::string known, impl_->name(candidates[i]));
    if (known == name) return candidates[i];
  }
  return base::make_error(Code::kNotFound, "there is no sample named '{}' in '{}'", base::escape(name),
                          base::escape(url()));
}

Result<void> Volume::names(SampleId first,
                           const std::function<bool(SampleId, std::span<const std::string_view>)>& visit) const {
  const std::uint64_t samples = size();
  if (first.value >= samples) return {};
  std::vector<std::string_view> names;
  if (!directory().has_names()) {
    names.resize(kNamelessPiece);
    for (std::uint64_t id = first.value; id < samples; id += kNamelessPiece) {
      const auto count = std::min<std::uint64_t>(kNamelessPiece, samples - id);
      if (!visit(SampleId{static_cast<std::uint32_t>(id)}, std::span(names).first(count))) break;
    }
    return {};
  }
  const layout::Extent& extent = superblock().names;
  const std::uint64_t begin = extent.offset_bytes + directory().name_block_of(first) * layout::kNameBlockBytes;
  const std::uint64_t end = extent.offset_bytes + extent.length_bytes;
  if (begin > end)
    return base::make_error(Code::kCorrupt, "the index of '{}' points behind its names", base::escape(url()));
  DLFS_TRY_ASSIGN(const auto device, impl_->open(kNamesInFlight));
  DLFS_TRY_ASSIGN(base::Arena memory, base::Arena::create(std::size_t{kNamesPieceBytes} * kNamesInFlight));
  ReadStream stream(*device, std::move(memory), kNamesPieceBytes, begin, end, options().timeout);
  std::uint64_t next = first.value;
  while (!stream.done()) {
    DLFS_TRY_ASSIGN(const ReadStream::Piece piece, stream.next());
    if (piece.failed) return piece.error;
    for (std::size_t at = 0; at < piece.bytes.size(); at += layout::kNameBlockBytes) {
      const auto block =
          layout::NameBlock::decode(piece.bytes.subspan(at, layout::kNameBlockBytes), superblock().record_salt);
      const bool fits = block.ok() && block->first_id().value <= next &&
                        next - block->first_id().value < block->count() &&
                        block->first_id().value + block->count() <= samples;
      if (!fits) {
        return base::make_error(
            Code::kCorrupt,
            "the names at byte {} of '{}' are damaged; run dlfs verify, and restore the volume from a copy",
            piece.offset_bytes + at, base::escape(url()));
      }
      names.clear();
      for (std::uint64_t i = next - block->first_id().value; i < block->count(); ++i) names.push_back(block->name(i));
      if (!visit(SampleId{static_cast<std::uint32_t>(next)}, names)) return {};
      next += names.size();
    }
  }
  return {};
}

}  // namespace dlfs::volume
