#include <algorithm>
#include <cstring>
#include <new>

#include "base/arena.h"
#include "base/error.h"
#include "base/try.h"
#include "volume/device_io.h"
#include "volume/volume_impl.h"

namespace dlfs::volume {
namespace {

using layout::Location;

constexpr std::uint64_t kLargeReadAheadBytes = 8u << 20;
// No record is longer: the fields, and less than a thousandth for head, alignment and table.
constexpr std::uint64_t kMaxRecordBytes = layout::kMaxSampleBytes + layout::kMaxSampleBytes / 1024;

}  // namespace

Result<OwnedRecord> Volume::Impl::read_ordinary(SampleId id, const Location& location) const {
  OwnedRecord record;
  record.fields.resize(schema.fields.size());
  record.bytes.resize(location.length_bytes);
  DLFS_TRY(pool.with([&](DeviceLease& lease) -> Result<void> {
    DLFS_TRY_ASSIGN(const auto bytes,
                    lease.read(device_offset(location.address_bytes), location.length_bytes, options.timeout));
    std::ranges::copy(bytes, record.bytes.begin());
    return {};
  }));
  if (!record_layout.decode(record.bytes, id, record.fields)) return corrupt(id, "its bytes do not match their CRC32C");
  return record;
}

Result<std::shared_ptr<const LargeSample>> Volume::Impl::large_sample(SampleId id, const Location& location) const {
  if (auto cached = pool.cached_large(id)) return cached;
  const std::uint64_t begin = device_offset(location.address_bytes);
  const std::uint64_t limit = std::min(location.length_bytes, superblock.data.length_bytes - location.address_bytes);
  auto sample = pool.with([&](DeviceLease& lease) -> Result<std::shared_ptr<const LargeSample>> {
    const std::uint64_t head_bytes = layout::LargeRecordHead::bytes_needed(record_layout);
    DLFS_TRY_ASSIGN(const auto front, lease.read(begin, head_bytes, options.timeout));
    auto head = layout::LargeRecordHead::decode(record_layout, front, id, limit);
    if (!head || head->shape().record_bytes > kMaxRecordBytes)
      return base::make_error(Code::kCorrupt, "its head does not match its CRC32C");
    const layout::LargeShape shape = head->shape();
    DLFS_TRY_ASSIGN(const auto table, lease.read(begin + shape.table_offset, shape.table_bytes(), options.timeout));
    if (!head->verify_table(table))
      return base::make_error(Code::kCorrupt, "its table of sums does not match its CRC32C");
    return std::make_shared<const LargeSample>(LargeSample{*std::move(head), {table.begin(), table.end()}});
  });
  if (!sample.ok()) return sample.error().code == Code::kCorrupt ? corrupt(id, sample.error().message) : sample.error();
  pool.cache_large(*sample);
  return sample;
}

Result<void> Volume::Impl::visit_pieces(SampleId id, const Location& location, const LargeSample& sample,
                                        std::uint64_t first, std::uint64_t last, const VisitPiece& visit) const {
  const std::uint64_t chunk = superblock.chunk_bytes;
  const std::uint64_t pieces =
      std::clamp<std::uint64_t>(kLargeReadAheadBytes / chunk, 2, last - first + 1 > 1 ? last - first + 1 : 2);
  DLFS_TRY_ASSIGN(base::Arena memory, base::Arena::create(pieces * chunk));
  const std::uint64_t begin = device_offset(location.address_bytes);
  const std::uint64_t end = begin + std::min((last + 1) * chunk, sample.head.shape().table_offset);
  return pool.with([&](DeviceLease& lease) -> Result<void> {
    ReadStream stream(lease.device(), std::move(memory), superblock.chunk_bytes, begin + first * chunk, end,
                      options.timeout);
    for (std::uint64_t i = first; i <= last; ++i) {
      DLFS_TRY_ASSIGN(const ReadStream::Piece piece, stream.next());
      if (piece.failed) return piece.error;
      if (!sample.head.verify_piece(sample.table, i, piece.bytes)) {
        return corrupt(id,
                       fmt::format("its bytes at byte {} of the device do not match their CRC32C", piece.offset_bytes));
      }
      visit(i * chunk, piece.bytes);
    }
    return {};
  });
}

Result<OwnedRecord> Volume::Impl::read_large(SampleId id, const Location& location) const {
  DLFS_TRY_ASSIGN(const auto sample, large_sample(id, location));
  const layout::LargeShape& shape = sample->head.shape();
  OwnedRecord record;
  try {
    record.bytes.resize(shape.table_offset);
  } catch (const std::bad_alloc&) {
    return base::make_error(Code::kOutOfMemory, "{} has {} bytes, more than there is memory for; read it in parts",
                            describe(id), shape.table_offset);
  }
  DLFS_TRY(visit_pieces(id, location, *sample, 0, shape.chunk_count - 1,
                        [&](std::uint64_t offset, std::span<const std::byte> piece) {
                          std::memcpy(record.bytes.data() + offset, piece.data(), piece.size());
                        }));
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    const auto range = sample->head.field(i);
    record.fields.push_back(std::span(record.bytes).subspan(range.offset_bytes, range.length_bytes));
  }
  return record;
}

Result<OwnedRecord> Volume::read(SampleId id) const {
  DLFS_TRY(impl_->check_id(id));
  const Location location = impl_->directory.location(id);
  return location.large ? impl_->read_large(id, location) : impl_->read_ordinary(id, location);
}

Result<std::uint64_t> Volume::Impl::read_large_field(SampleId id, const Location& location, std::size_t field,
                                                     std::uint64_t offset, std::span<std::byte> into,
                                                     KeptPiece* kept) const {
  DLFS_TRY_ASSIGN(const auto sample, large_sample(id, location));
  const auto range = sample->head.field(field);
  const std::uint64_t count =
      offset >= range.length_bytes ? 0 : std::min<std::uint64_t>(into.size(), range.length_bytes - offset);
  if (count == 0) return count;
  const std::uint64_t chunk = superblock.chunk_bytes;
  const std::uint64_t begin = range.offset_bytes + offset;  // within the record
  const std::uint64_t end = begin + count;
  const auto copy = [&](std::uint64_t piece_begin, std::span<const std::byte> piece) {
    const std::uint64_t from = std::max(begin, piece_begin);
    const std::uint64_t to = std::min(end, piece_begin + piece.size());
    std::memcpy(into.data() + (from - begin), piece.data() + (from - piece_begin), to - from);
  };
  std::uint64_t first = begin / chunk;
  const std::uint64_t last = (end - 1) / chunk;
  const auto lock = kept == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(kept->mutex, std::try_to_lock);
  if (lock && !kept->bytes.empty() && kept->index == first) copy(chunk * first++, kept->bytes);
  if (first > last) return count;
  DLFS_TRY(visit_pieces(id, location, *sample, first, last,
                        [&](std::uint64_t piece_begin, std::span<const std::byte> piece) {
                          copy(piece_begin, piece);
                          if (!lock || end >= piece_begin + piece.size()) return;
                          kept->bytes.assign(piece.begin(), piece.end());
                          kept->index = last;
                        }));
  return count;
}

Result<std::uint64_t> Volume::read_field(SampleId id, std::size_t field, std::uint64_t offset,
                                         std::span<std::byte> into, KeptPiece* kept) const {
  DLFS_TRY(impl_->check_id(id));
  if (field >= schema().fields.size()) {
    return base::make_error(Code::kInvalidArgument, "there is no field {}; the schema is '{}'", field,
                            schema().to_string());
  }
  const Location location = impl_->directory.location(id);
  if (location.large) return impl_->read_large_field(id, location, field, offset, into, kept);
  DLFS_TRY_ASSIGN(const OwnedRecord record, impl_->read_ordinary(id, location));
  const layout::FieldValue value = record.fields[field];
  const std::uint64_t count = offset >= value.size() ? 0 : std::min<std::uint64_t>(into.size(), value.size() - offset);
  if (count > 0) std::memcpy(into.data(), value.data() + offset, count);
  return count;
}

Result<std::vector<std::uint64_t>> Volume::field_lengths(SampleId id) const {
  DLFS_TRY(impl_->check_id(id));
  const Location location = impl_->directory.location(id);
  std::vector<std::uint64_t> lengths;
  if (location.large) {
    DLFS_TRY_ASSIGN(const auto sample, impl_->large_sample(id, location));
    for (std::size_t i = 0; i < schema().fields.size(); ++i) lengths.push_back(sample->head.field(i).length_bytes);
    return lengths;
  }
  DLFS_TRY_ASSIGN(const OwnedRecord record, impl_->read_ordinary(id, location));
  for (const layout::FieldValue& field : record.fields) lengths.push_back(field.size());
  return lengths;
}

}  // namespace dlfs::volume
