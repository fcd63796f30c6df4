#include "volume/verify.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "base/arena.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/try.h"
#include "block/url.h"
#include "layout/name_block.h"
#include "volume/chunk_check.h"
#include "volume/device_io.h"
#include "volume/superblocks.h"

namespace dlfs::volume {
namespace {

using layout::Extent;

constexpr std::uint64_t kMinPieceBytes = 1u << 20;
constexpr std::uint64_t kInFlightBytes = 16u << 20;
constexpr std::uint32_t kDepth = 32;

bool is_regular_file(std::string_view url) {
  const auto parsed = block::parse_url(url);
  struct stat status{};
  return parsed.ok() && parsed->scheme == block::Scheme::kFile && stat(parsed->path.c_str(), &status) == 0 &&
         S_ISREG(status.st_mode);
}

// Walks over the device once, front to back, region by region.
class Verifier {
 public:
  Verifier(const Volume& volume, block::BlockDevice& device, block::BlockDevice& second,
           const std::function<void(const Finding&)>& found,
           const std::function<bool(std::uint64_t, std::uint64_t)>& progress)
      : volume_(volume),
        superblock_(volume.superblock()),
        device_(device),
        second_(second),
        found_(found),
        progress_(progress) {}

  Result<VerifyReport> run();

 private:
  using Visit = std::function<Result<void>(const ReadStream::Piece&)>;
  Result<void> walk(std::uint64_t begin, std::uint64_t end, const Visit& visit);
  Result<void> advance(std::uint64_t bytes);
  Result<void> superblocks();
  void length();
  Result<void> zeros(std::uint64_t begin, std::uint64_t end);
  Result<void> zero_tail(std::uint64_t begin, std::uint64_t end);
  Result<void> data();
  Result<void> unreadable_chunks(const ReadStream::Piece& piece, ChunkChecker& checker);
  Result<void> names();
  void name_block(std::uint64_t offset, std::span<const std::byte> bytes);
  void check_index_of(SampleId id, std::uint64_t hash, std::string_view name, std::uint64_t block,
                      std::uint64_t offset);
  Result<void> section(const char* what, const Extent& extent);
  void report(const Finding& finding);

  const Volume& volume_;
  const layout::Superblock& superblock_;
  block::BlockDevice& device_;
  block::BlockDevice& second_;  // for what is read out of turn
  const std::function<void(const Finding&)>& found_;
  const std::function<bool(std::uint64_t, std::uint64_t)>& progress_;
  VerifyReport report_;
  std::uint64_t next_name_ = 0;  // id
  bool names_damaged_ = false;
  std::vector<SampleId> candidates_;
  std::vector<std::uint64_t> hashes_, first_;  // of the names of one block
};

void Verifier::report(const Finding& finding) {
  ++report_.findings;
  if (found_) found_(finding);
}

Result<void> Verifier::walk(std::uint64_t begin, std::uint64_t end, const Visit& visit) {
  if (begin >= end) return {};
  const std::uint64_t piece_bytes = std::max<std::uint64_t>(kMinPieceBytes, superblock_.chunk_bytes);
  const std::uint64_t slots = std::max<std::uint64_t>(2, kInFlightBytes / piece_bytes);
  DLFS_TRY_ASSIGN(base::Arena memory,
                  base::Arena::create(std::min(slots * piece_bytes, round_up(end - begin, piece_bytes))));
  ReadStream stream(device_, std::move(memory), static_cast<std::uint32_t>(piece_bytes), begin, end,
                    volume_.options().timeout);
  while (!stream.done()) {
    DLFS_TRY_ASSIGN(const ReadStream::Piece piece, stream.next());
    DLFS_TRY(visit(piece));
    DLFS_TRY(advance(piece.bytes.size()));
  }
  return {};
}

Result<void> Verifier::advance(std::uint64_t bytes) {
  report_.bytes += bytes;
  if (!progress_ || progress_(report_.bytes, superblock_.device_bytes)) return {};
  return base::make_error(Code::kInterrupted, "verify was stopped after {} of {} bytes", report_.bytes,
                          superblock_.device_bytes);
}

Result<void> Verifier::superblocks() {
  DLFS_TRY_ASSIGN(const SuperblockPair pair, read_superblocks(device_, volume_.options().timeout));
  const auto expected = layout::encode(superblock_);
  for (int i = 0; i < 2; ++i) {
    const auto& slot = pair.slots[i];
    DLFS_TRY(advance(layout::kSuperblockBytes));
    if (!slot.error && std::ranges::equal(slot.raw, expected)) continue;
    Finding finding{.what = Finding::What::kSuperblock, .device_offset = layout::kSuperblockOffsets[i]};
    finding.message =
        fmt::format("superblock {} at byte {} {}", i, finding.device_offset,
                    slot.error ? "is bad: " + slot.error->message : "differs from the one that was mounted");
    report(finding);
  }
  return {};
}

// A file ends where the volume ends; a block device may go on.
void Verifier::length() {
  const std::uint64_t capacity_bytes = device_.geometry().capacity_bytes;
  if (capacity_bytes <= superblock_.device_bytes || !is_regular_file(device_.url())) return;
  Finding finding{.what = Finding::What::kPadding, .device_offset = superblock_.device_bytes};
  const std::uint64_t beyond = capacity_bytes - superblock_.device_bytes;
  finding.message = fmt::format("the file is {} byte{} longer than the volume", beyond, beyond == 1 ? "" : "s");
  report(finding);
}

Result<void> Verifier::zeros(std::uint64_t begin, std::uint64_t end) {
  return walk(begin, end, [&](const ReadStream::Piece& piece) -> Result<void> {
    Finding finding{.what = Finding::What::kPadding, .device_offset = piece.offset_bytes};
    if (piece.failed) {
      finding.what = Finding::What::kRead;
      finding.message = piece.error.message;
      report(finding);
    } else if (const auto at = first_non_zero(piece.bytes)) {
      finding.device_offset += *at;
      finding.message = fmt::format("byte {} between the sections is not zero", finding.device_offset);
      report(finding);
    }
    return {};
  });
}

// As zeros(), where `begin` is the end of a section, in the middle of a block.
Result<void> Verifier::zero_tail(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t aligned = std::min(end, round_up(begin, layout::kSectorBytes));
  if (begin < aligned) {
    const std::uint64_t block = round_down(begin, layout::kSectorBytes);
    Finding finding{.what = Finding::What::kPadding, .device_offset = begin};
    const auto sector = read_range(second_, block, layout::kSectorBytes, volume_.options().timeout);
    if (!sector.ok()) {
      finding.what = Finding::What::kRead;
      finding.message = sector.error().message;
      report(finding);
    } else if (const auto at = first_non_zero(sector->bytes().subspan(begin - block, aligned - begin))) {
      finding.device_offset += *at;
      finding.message = fmt::format("byte {} behind a section is not zero", finding.device_offset);
      report(finding);
    }
    DLFS_TRY(advance(aligned - begin));
  }
  return zeros(aligned, end);
}

Result<void> Verifier::data() {
  const Extent& extent = superblock_.data;
  ChunkChecker checker(volume_, second_, [this](const Finding& finding) { report(finding); });
  const auto check_piece = [&](const ReadStream::Piece& piece) -> Result<void> {
    if (piece.failed) return unreadable_chunks(piece, checker);
    for (std::uint64_t at = 0; at < piece.bytes.size(); at += superblock_.chunk_bytes) {
      checker.check(piece.bytes.subspan(at, superblock_.chunk_bytes));
    }
    return {};
  };
  DLFS_TRY(walk(extent.offset_bytes, extent.offset_bytes + extent.length_bytes, check_piece));
  DLFS_TRY(checker.finish());
  report_.samples = checker.samples();
  report_.bad_samples = checker.bad_samples();
  report_.bad_chunks = checker.bad_chunks();
  return {};
}

// A piece of several chunks could not be read: each of them is tried alone, so that only what is really lost is
// reported.
Result<void> Verifier::unreadable_chunks(const ReadStream::Piece& piece, ChunkChecker& checker) {
  for (std::uint64_t at = 0; at < piece.bytes.size(); at += superblock_.chunk_bytes) {
    const auto again = read_range(second_, piece.offset_bytes + at, superblock_.chunk_bytes, volume_.options().timeout);
    if (again.ok())
      checker.check(again->bytes().first(superblock_.chunk_bytes));
    else if (again.error().code == Code::kTimedOut)
      return again.error();
    else
      checker.unreadable(again.error());
  }
  return {};
}

Result<void> Verifier::names() {
  const Extent& extent = superblock_.names;
  DLFS_TRY(walk(extent.offset_bytes, extent.offset_bytes + extent.length_bytes,
                [&](const ReadStream::Piece& piece) -> Result<void> {
                  if (piece.failed) {
                    names_damaged_ = true;
                    Finding finding{.what = Finding::What::kRead, .device_offset = piece.offset_bytes};
                    finding.message = "names cannot be read: " + piece.error.message;
                    report(finding);
                    return {};
                  }
                  for (std::uint64_t at = 0; at < piece.bytes.size(); at += layout::kNameBlockBytes) {
                    name_block(piece.offset_bytes + at, piece.bytes.subspan(at, layout::kNameBlockBytes));
                  }
                  return {};
                }));
  if (volume_.directory().has_names() && !names_damaged_ && next_name_ != volume_.size()) {
    Finding finding{.what = Finding::What::kNames, .device_offset = extent.offset_bytes};
    finding.message = fmt::format("there are names for {} samples of {}", next_name_, volume_.size());
    report(finding);
  }
  return {};
}

void Verifier::name_block(std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto block = layout::NameBlock::decode(bytes, superblock_.record_salt);
  Finding finding{.what = Finding::What::kNames, .device_offset = offset};
  if (!block.ok()) {
    names_damaged_ = true;
    finding.message = fmt::format("the names at byte {} are damaged: {}", offset, block.error().message);
    return report(finding);
  }
  if (block->first_id().value != next_name_ && !names_damaged_) {
    finding.message =
        fmt::format("the names at byte {} begin with sample {}, not {}", offset, block->first_id().value, next_name_);
    report(finding);
  }
  const std::uint64_t number = (offset - superblock_.names.offset_bytes) / layout::kNameBlockBytes;
  hashes_.clear();
  for (std::size_t i = 0; i < block->count(); ++i)
    hashes_.push_back(directory::name_hash(block->name(i), superblock_.record_salt));
  first_.assign(hashes_.size(), directory::Directory::kNoCandidate);
  if (volume_.directory().has_names()) volume_.directory().first_candidates(hashes_, first_);
  for (std::size_t i = 0; i < block->count(); ++i) {
    const SampleId id{block->first_id().value + static_cast<std::uint32_t>(i)};
    const bool listed =
        first_[i] == id.value && id.value < volume_.size() && volume_.directory().name_block_of(id) == number;
    if (!listed) check_index_of(id, hashes_[i], block->name(i), number, offset);
  }
  next_name_ = std::uint64_t{block->first_id().value} + block->count();
}

// Does the index lead from this name to this sample, and from this sample to this block?
void Verifier::check_index_of(SampleId id, std::uint64_t hash, std::string_view name, std::uint64_t block,
                              std::uint64_t offset) {
  const directory::Directory& directory = volume_.directory();
  std::size_t count = 0;
  if (directory.has_names() && id.value < directory.sample_count()) {
    count = directory.candidates(hash, candidates_);
    if (count > candidates_.size()) {
      candidates_.resize(count);
      count = directory.candidates(hash, candidates_);
    }
    const auto listed = std::span(candidates_).first(std::min(count, candidates_.size()));
    if (std::ranges::find(listed, id) != listed.end() && directory.name_block_of(id) == block) return;
  }
  Finding finding{
      .what = Finding::What::kIndex, .has_id = true, .id = id, .name = base::escape(name), .device_offset = offset};
  finding.message = fmt::format("the index does not lead to sample {} by its name '{}'", id.value, finding.name);
  report(finding);
}

Result<void> Verifier::section(const char* what, const Extent& extent) {
  std::uint32_t crc = 0;
  bool failed = false;
  DLFS_TRY(walk(extent.offset_bytes, extent.offset_bytes + extent.length_bytes,
                [&](const ReadStream::Piece& piece) -> Result<void> {
                  if (piece.failed) {
                    failed = true;
                    Finding finding{.what = Finding::What::kRead, .device_offset = piece.offset_bytes};
                    finding.message = fmt::format("the {} cannot be read: {}", what, piece.error.message);
                    report(finding);
                  } else {
                    crc = base::crc32c(piece.bytes, crc);
                  }
                  return {};
                }));
  if (!failed && crc != extent.crc) {
    Finding finding{.what = Finding::What::kIndex, .device_offset = extent.offset_bytes};
    finding.message = fmt::format("the {} at byte {} is damaged: its CRC32C is {:08x}, not {:08x}", what,
                                  extent.offset_bytes, crc, extent.crc);
    report(finding);
  }
  return {};
}

Result<VerifyReport> Verifier::run() {
  candidates_.resize(16);
  DLFS_TRY(superblocks());
  DLFS_TRY(zeros(layout::kSuperblockOffsets[0] + layout::kSuperblockBytes, layout::kSuperblockOffsets[1]));
  DLFS_TRY(zeros(layout::kSuperblockOffsets[1] + layout::kSuperblockBytes, superblock_.data.offset_bytes));
  DLFS_TRY(data());
  std::uint64_t end = superblock_.data.offset_bytes + superblock_.data.length_bytes;
  const auto between =
      [&](const Extent& extent) -> Result<void> {  // from the end of what was read last to this section
    if (extent.length_bytes == 0) return {};
    DLFS_TRY(zero_tail(end, extent.offset_bytes));
    end = extent.offset_bytes + extent.length_bytes;
    return {};
  };
  DLFS_TRY(between(superblock_.names));
  DLFS_TRY(names());
  DLFS_TRY(between(superblock_.index));
  DLFS_TRY(section("index", superblock_.index));
  DLFS_TRY(between(superblock_.schema));
  DLFS_TRY(section("schema", superblock_.schema));
  DLFS_TRY(zero_tail(end, superblock_.device_bytes));
  length();
  return report_;
}

}  // namespace

Result<VerifyReport> verify(const Volume& volume, const std::function<void(const Finding&)>& found,
                            const std::function<bool(std::uint64_t, std::uint64_t)>& progress) {
  DLFS_TRY_ASSIGN(const auto device, volume.open_device(kDepth));
  DLFS_TRY_ASSIGN(const auto second, volume.open_device(kDepth));
  return Verifier(volume, *device, *second, found, progress).run();
}

}  // namespace dlfs::volume
