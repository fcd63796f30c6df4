#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/try.h"
#include "block/url.h"
#include "volume/destination.h"
#include "volume/device_io.h"
#include "volume/superblocks.h"
#include "volume/volume_impl.h"

namespace dlfs::volume {
namespace {

using layout::Superblock;

constexpr std::uint32_t kPieceBytes = 1u << 20;
constexpr std::uint32_t kMountDepth = 32;
constexpr std::uint64_t kHugeFromBytes = 64u
                                         << 20;  // below, rounding up to huge pages would weigh more than they bring

std::string quoted(std::string_view url) { return "'" + base::escape(url) + "'"; }

bool is_partial(std::string_view url) { return url.ends_with(kPartialSuffix); }

Error incomplete_error(std::string_view url) {
  return base::make_error(Code::kIncomplete,
                          "{} is incomplete: the pack that writes it was never committed (it is still running, or was "
                          "stopped); pack again",
                          quoted(url));
}

// What can be said about a path before anything is opened.
Result<void> check_path(std::string_view url, const block::Url& parsed) {
  if (parsed.scheme != block::Scheme::kFile) return {};
  struct stat status{};
  if (stat(parsed.path.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode)) return {};
    return base::make_error(Code::kForeign,
                            "{} is a directory, not a volume; pack it into one first (dlfs pack {} VOLUME)",
                            quoted(url), base::escape(parsed.path));
  }
  const std::string partial = parsed.path + std::string(kPartialSuffix);
  if (errno == ENOENT && stat(partial.c_str(), &status) == 0) {
    return base::make_error(
        Code::kNotFound,
        "there is no volume {} yet, only an incomplete pack of it ({}): it is still running, or was "
        "stopped; pack again",
        quoted(url), quoted(partial));
  }
  return {};
}

bool first_write_was_torn(const SuperblockPair& pair) {
  const auto damaged = [](const SuperblockPair::Slot& slot) {
    return slot.error && slot.error->code == Code::kCorrupt;
  };
  const auto blank = [](const SuperblockPair::Slot& slot) {
    return !slot.raw.empty() && std::ranges::all_of(slot.raw, [](std::byte b) { return b == std::byte{0}; });
  };
  return damaged(pair.slots[0]) && blank(pair.slots[1]);
}

// Nobody's superblock is valid: what is it then?
Error not_a_volume(std::string_view url, block::BlockDevice& device, const SuperblockPair& pair) {
  for (const auto& slot : pair.slots) {
    if (slot.error && slot.error->code == Code::kUnsupportedVersion) {
      return base::make_error(Code::kUnsupportedVersion, "{} cannot be mounted: {}; use a newer DLFS", quoted(url),
                              slot.error->message);
    }
  }
  if (is_partial(url)) return incomplete_error(url);
  if (first_write_was_torn(pair)) {
    return base::make_error(
        Code::kIncomplete,
        "{} is incomplete: one superblock is half written and the other was never written, as when a "
        "pack is stopped at its first write; pack again",
        quoted(url));
  }
  for (int i = 0; i < 2; ++i) {
    const auto& slot = pair.slots[i];
    if (!slot.error || slot.raw.empty() || slot.error->code == Code::kForeign) continue;
    return base::make_error(
        slot.error->code,
        "{} cannot be mounted: both superblocks are bad; at byte {}: {}; restore the volume from a copy "
        "or pack again",
        quoted(url), layout::kSuperblockOffsets[i], slot.error->message);
  }
  const std::uint64_t capacity = device.geometry().capacity_bytes;
  if (capacity == 0)
    return base::make_error(Code::kForeign, "{} is empty, not a DLFS volume; pack one first", quoted(url));
  if (pair.slots[0].raw.empty()) {
    return base::make_error(Code::kForeign, "{} is not a DLFS volume: it is only {} bytes long", quoted(url), capacity);
  }
  return base::make_error(Code::kForeign,
                          "{} is not a DLFS volume: it holds {}; give the name of a volume made by dlfs pack",
                          quoted(url), foreign_description(pair.slots[0].raw));
}

std::string slot_warning(const SuperblockPair& pair) {
  for (int i = 0; i < 2; ++i) {
    if (!pair.slots[i].error) continue;
    return fmt::format(
        "the superblock at byte {} is bad ({}); the other one is used: copy the data elsewhere and pack again",
        layout::kSuperblockOffsets[i], pair.slots[i].error->message);
  }
  if (*pair.slots[0].superblock != *pair.slots[1].superblock) {
    return "the two superblocks differ: a pack was stopped between them; the newer one is used: copy the data "
           "elsewhere and pack again";
  }
  return {};
}

Result<Superblock> choose_superblock(std::string_view url, block::BlockDevice& device,
                                     std::chrono::milliseconds timeout, std::string& warning) {
  DLFS_TRY_ASSIGN(const SuperblockPair pair, read_superblocks(device, timeout));
  const Superblock* chosen = pair.chosen();
  if (chosen == nullptr) return not_a_volume(url, device, pair);
  if (chosen->state != layout::State::kCommitted) return incomplete_error(url);
  if (const std::uint64_t capacity = device.geometry().capacity_bytes; capacity < chosen->device_bytes) {
    return base::make_error(Code::kTruncated,
                            "{} is truncated: the volume takes {} bytes, only {} are there; copy it again", quoted(url),
                            chosen->device_bytes, capacity);
  }
  if (auto checked = check_extents(*chosen); !checked.ok()) {
    return base::make_error(checked.error().code, "{} cannot be mounted: {}", quoted(url), checked.error().message);
  }
  warning = slot_warning(pair);
  return *chosen;
}

// Reads a section front to back into memory of its own and checks its sum on the way.
Result<base::Arena> read_section(std::string_view url, block::BlockDevice& device, const char* what,
                                 const layout::Extent& extent, std::chrono::milliseconds timeout) {
  const std::uint64_t unit = request_unit(device.geometry());
  DLFS_TRY_ASSIGN(base::Arena memory,
                  base::Arena::create(round_up(extent.length_bytes, std::max<std::uint64_t>(unit, 4096)),
                                      extent.length_bytes >= kHugeFromBytes));
  ReadStream stream(device, std::move(memory), kPieceBytes, extent.offset_bytes,
                    extent.offset_bytes + extent.length_bytes, timeout);
  std::uint32_t crc = 0;
  while (!stream.done()) {
    DLFS_TRY_ASSIGN(const ReadStream::Piece piece, stream.next());
    if (piece.failed) return piece.error;
    crc = base::crc32c(piece.bytes, crc);
  }
  if (crc != extent.crc) {
    return base::make_error(
        Code::kCorrupt,
        "{} cannot be mounted: its {} (byte {}, {} bytes) is damaged: the CRC32C is {:08x}, not {:08x}; "
        "restore the volume from a copy or pack again",
        quoted(url), what, extent.offset_bytes, extent.length_bytes, crc, extent.crc);
  }
  return std::move(stream).take_memory();
}

Result<std::unique_ptr<block::BlockDevice>> open_for_reading(std::string_view url, const MountOptions& options,
                                                             std::uint32_t queue_depth) {
  const block::OpenOptions open{.write = false, .create = false, .direct = options.direct, .queue_depth = queue_depth};
  return options.open_device ? options.open_device(url, open) : block::open_device(url, open);
}

Error cannot_mount(std::string_view url, Error error) {
  error.message = fmt::format("{} cannot be mounted: {}", quoted(url), error.message);
  return error;
}

}  // namespace

Volume::Impl::Impl(std::string canonical_url, MountOptions mount_options, layout::Superblock committed,
                   layout::Schema fields, directory::Directory ids)
    : url(std::move(canonical_url)),
      options(std::move(mount_options)),
      superblock(std::move(committed)),
      schema(std::move(fields)),
      directory(std::move(ids)),
      record_layout(schema, superblock.chunk_bytes, superblock.record_salt),
      pool([this] { return open(kMountDepth); }) {}

Result<std::shared_ptr<const Volume>> Volume::mount(std::string_view url, const MountOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  DLFS_TRY_ASSIGN(const block::Url parsed, block::parse_url(url));
  DLFS_TRY(check_path(url, parsed));
  DLFS_TRY_ASSIGN(auto device, open_for_reading(url, options, kMountDepth));
  MountReport report;
  DLFS_TRY_ASSIGN(const Superblock superblock, choose_superblock(url, *device, options.timeout, report.warning));
  DLFS_TRY_ASSIGN(const base::Arena schema_bytes,
                  read_section(url, *device, "schema", superblock.schema, options.timeout));
  auto schema = layout::decode_schema(schema_bytes.bytes().first(superblock.schema.length_bytes));
  if (!schema.ok()) return cannot_mount(url, std::move(schema).error());
  DLFS_TRY_ASSIGN(base::Arena index, read_section(url, *device, "index", superblock.index, options.timeout));
  report.page_kind = base::page_kind_name(index.page_kind());
  auto loaded = directory::Directory::load(std::move(index), superblock);
  if (!loaded.ok()) return cannot_mount(url, std::move(loaded).error());
  std::shared_ptr<Volume> volume(new Volume);
  volume->impl_ =
      std::make_shared<Impl>(device->url(), options, superblock, std::move(schema).value(), std::move(loaded).value());
  report.index_bytes = superblock.index.length_bytes;
  report.resident_bytes = volume->impl_->directory.resident_bytes();
  report.engine = device->engine();
  report.notes = device->notes();
  volume->impl_->pool.give(std::make_unique<DeviceLease>(std::move(device)));
  report.elapsed = std::chrono::steady_clock::now() - start;
  volume->impl_->report = std::move(report);
  return std::shared_ptr<const Volume>(std::move(volume));
}

// A file may have been replaced by a newer pack since the mount: its bytes would look damaged, so that is found out
// first.
Result<std::unique_ptr<block::BlockDevice>> Volume::Impl::open(std::uint32_t queue_depth) const {
  DLFS_TRY_ASSIGN(auto device, open_for_reading(url, options, queue_depth));
  DLFS_TRY_ASSIGN(const SuperblockPair pair, read_superblocks(*device, options.timeout));
  const Superblock* chosen = pair.chosen();
  if (chosen == nullptr || chosen->volume_id != superblock.volume_id || chosen->generation != superblock.generation) {
    return base::make_error(Code::kDeviceLost, "{} was replaced or overwritten since it was mounted; mount it again",
                            quoted(url));
  }
  return device;
}

}  // namespace dlfs::volume
