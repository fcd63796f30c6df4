#include "volume/chunk_check.h"

#include <algorithm>
#include <utility>

#include "base/arena.h"
#include "base/endian.h"
#include "base/error.h"
#include "base/try.h"
#include "volume/device_io.h"

namespace dlfs::volume {

std::optional<std::uint64_t> first_non_zero(std::span<const std::byte> bytes) noexcept {
  std::size_t i = 0;
  while (i + 8 <= bytes.size() && base::load_le<std::uint64_t>(bytes.data() + i) == 0) i += 8;
  for (; i < bytes.size(); ++i) {
    if (bytes[i] != std::byte{0}) return i;
  }
  return std::nullopt;
}

ChunkChecker::ChunkChecker(const Volume& volume, block::BlockDevice& device, std::function<void(Finding)> found)
    : volume_(volume),
      device_(device),
      found_(std::move(found)),
      chunk_bytes_(volume.superblock().chunk_bytes),
      fields_(volume.schema().fields.size()) {}

void ChunkChecker::report(Finding finding) {
  finding.chunk = chunk_;
  if (!std::exchange(chunk_bad_, true)) ++bad_chunks_;
  found_(std::move(finding));
}

void ChunkChecker::bad_sample(Finding::What what, SampleId id, std::uint64_t address, std::string message) {
  ++bad_samples_;
  Finding finding{.what = what,
                  .has_id = true,
                  .id = id,
                  .device_offset = volume_.device_offset(address),
                  .message = std::move(message)};
  if (const auto name = volume_.name(id); name.ok()) finding.name = base::escape(*name);
  report(std::move(finding));
}

void ChunkChecker::look_ahead() noexcept {
  const directory::Directory& directory = volume_.directory();
  ahead_begin_ = slot_;
  ahead_end_ = std::min<std::uint64_t>(slot_ + kLookAhead, volume_.size());
  const std::size_t count = ahead_end_ - ahead_begin_;
  for (std::size_t i = 0; i < count; ++i)
    ahead_ids_[i] = directory.id_of(Slot{static_cast<std::uint32_t>(slot_ + i)}).value;
  directory.locations(std::span(ahead_ids_).first(count), std::span(ahead_).first(count));
}

bool ChunkChecker::at_slot_in(std::uint64_t end) noexcept {
  if (slot_ >= volume_.size()) return false;
  if (slot_ >= ahead_end_) look_ahead();
  return ahead_[slot_ - ahead_begin_].address_bytes < end;
}

void ChunkChecker::next_chunk() noexcept {
  ++chunk_;
  chunk_bad_ = false;
}

void ChunkChecker::check(std::span<const std::byte> chunk) {
  std::uint64_t checked = 0;  // bytes of the chunk
  if (large_ && at_slot_in(begin() + 1)) large_.reset();
  while (at_slot_in(begin() + chunk_bytes_)) {
    const std::uint64_t next = slot_++ - ahead_begin_;
    const SampleId id{ahead_ids_[next]};
    const layout::Location location = ahead_[next];
    if (location.large) {
      begin_large(chunk, id, location);
      continue;
    }
    const std::uint64_t from = location.address_bytes - begin();
    check_zero(chunk, checked, from, "before a record");
    check_ordinary(chunk, id, location);
    checked = std::max(checked, std::min(chunk_bytes_, from + location.length_bytes));
  }
  if (large_)
    check_large(chunk);
  else
    check_zero(chunk, checked, chunk_bytes_, "behind the last record of a chunk");
  next_chunk();
}

void ChunkChecker::check_zero(std::span<const std::byte> chunk, std::uint64_t from, std::uint64_t to,
                              const char* where) {
  if (from >= to) return;
  const auto at = first_non_zero(chunk.subspan(from, to - from));
  if (!at) return;
  Finding finding{.what = Finding::What::kPadding, .device_offset = volume_.device_offset(begin() + from + *at)};
  finding.message =
      fmt::format("chunk {}: byte {} of the device, {}, is not zero", chunk_, finding.device_offset, where);
  report(std::move(finding));
}

void ChunkChecker::check_ordinary(std::span<const std::byte> chunk, SampleId id, const layout::Location& location) {
  const std::uint64_t from = location.address_bytes - begin();
  const bool inside = from <= chunk.size() && location.length_bytes <= chunk.size() - from;
  if (inside && volume_.record_layout().decode(chunk.subspan(from, location.length_bytes), id, fields_)) return;
  bad_sample(Finding::What::kRecord, id, location.address_bytes,
             inside ? "the record does not match its CRC32C" : "the record crosses the edge of its chunk");
}

void ChunkChecker::begin_large(std::span<const std::byte> chunk, SampleId id, const layout::Location& location) {
  large_.emplace(Large{.id = id, .address = location.address_bytes, .bad = false, .head = {}, .table = {}});
  if (location.address_bytes != begin())
    return bad_large(location.address_bytes, "it does not begin at the edge of a chunk");
  const std::uint64_t limit =
      std::min(location.length_bytes, volume_.superblock().data.length_bytes - location.address_bytes);
  large_->head = layout::LargeRecordHead::decode(volume_.record_layout(), chunk, id, limit);
  if (!large_->head) return bad_large(location.address_bytes, "its head does not match its CRC32C");
  read_table(location);
}

void ChunkChecker::read_table(const layout::Location& location) {
  const layout::LargeShape shape = large_->head->shape();
  const std::uint64_t address = location.address_bytes + shape.table_offset;
  const std::uint64_t offset = volume_.device_offset(address);
  const std::uint64_t unit = request_unit(device_.geometry());
  const std::uint64_t from = round_down(offset, unit);
  const std::uint64_t length = round_up(offset + shape.table_bytes(), unit) - from;
  const auto memory = read_range(device_, from, length, volume_.options().timeout);
  if (!memory.ok()) return bad_large(address, "its table of sums cannot be read: " + memory.error().message);
  const auto table = memory->bytes().subspan(offset - from, shape.table_bytes());
  if (!large_->head->verify_table(table)) return bad_large(address, "its table of sums does not match its CRC32C");
  large_->table.assign(table.begin(), table.end());
}

void ChunkChecker::bad_large(std::uint64_t address, std::string_view what) {
  const bool first = !std::exchange(large_->bad, true);
  if (!first) --bad_samples_;  // bad_sample() counts it again
  bad_sample(Finding::What::kLargeRecord, large_->id, address, fmt::format("the large record is damaged: {}", what));
}

void ChunkChecker::check_large(std::span<const std::byte> chunk) {
  if (!large_->head) return;  // reported; nothing more can be said about its chunks
  const layout::LargeShape shape = large_->head->shape();
  const std::uint64_t position = begin() - large_->address;
  const std::uint64_t body = std::min<std::uint64_t>(chunk.size(), std::max(shape.table_offset, position) - position);
  if (body > 0 && !large_->table.empty() &&
      !large_->head->verify_piece(large_->table, position / chunk_bytes_, chunk.first(body))) {
    bad_large(begin(), fmt::format("its piece {} does not match its CRC32C", position / chunk_bytes_));
  }
  // The table again, as the stream sees it.
  const std::uint64_t table_end =
      std::min<std::uint64_t>(chunk.size(), std::max(shape.record_bytes, position) - position);
  if (body < table_end && !large_->table.empty()) {
    const auto expected = std::span(large_->table).subspan(position + body - shape.table_offset, table_end - body);
    if (!std::ranges::equal(expected, chunk.subspan(body, table_end - body)))
      bad_large(begin() + body, "its table of sums reads differently twice");
  }
  check_zero(chunk, std::max(body, table_end), chunk.size(), "behind a large record");
}

void ChunkChecker::unreadable(const Error& error) {
  Finding finding{.what = Finding::What::kRead, .device_offset = volume_.device_offset(begin())};
  finding.message = fmt::format("chunk {} cannot be read: {}", chunk_, error.message);
  report(std::move(finding));
  if (large_ && at_slot_in(begin() + 1)) large_.reset();
  if (large_) bad_large(begin(), "a part cannot be read: " + error.message);
  while (at_slot_in(begin() + chunk_bytes_)) {
    const std::uint64_t next = slot_++ - ahead_begin_;
    const SampleId id{ahead_ids_[next]};
    const layout::Location location = ahead_[next];
    if (location.large)
      large_.emplace(Large{.id = id, .address = location.address_bytes, .bad = true, .head = {}, .table = {}});
    bad_sample(Finding::What::kRead, id, location.address_bytes, "the record cannot be read: " + error.message);
  }
  next_chunk();
}

Result<void> ChunkChecker::finish() {
  if (slot_ == volume_.size()) return {};
  return base::make_error(Code::kCorrupt, "the index places {} samples behind the end of the data",
                          volume_.size() - slot_);
}

}  // namespace dlfs::volume
