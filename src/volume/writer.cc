#include "volume/writer.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/try.h"
#include "directory/directory.h"
#include "layout/large_record.h"
#include "volume/destination.h"
#include "volume/name_section.h"
#include "volume/name_spool.h"
#include "volume/placer.h"
#include "volume/sample_check.h"
#include "volume/section_writer.h"
#include "volume/superblocks.h"
#include "volume/write_queue.h"
#include "volume/writer_internal.h"

namespace dlfs::volume {
namespace {

using layout::FieldValue;
using layout::Superblock;

constexpr std::uint64_t kWriteAheadBytes = 8u << 20;  // being written while the next chunks are filled
constexpr std::size_t kMinWriteAhead = 4;             // buffers

Result<void> fill_random(std::span<std::byte> bytes) {
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return base::errno_error(errno, "cannot draw random bytes for the volume's identity");
  }
  return {};
}

std::vector<std::string> spool_directories(const WriterOptions& options, const std::string& beside) {
  if (!options.spool_directory.empty()) return {options.spool_directory};
  std::vector<std::string> directories;
  if (!beside.empty()) directories.push_back(beside);
  const char* temporary = std::getenv("TMPDIR");
  directories.emplace_back(temporary != nullptr && *temporary != 0 ? temporary : "/tmp");
  return directories;
}

// **Memory** a sample, beside the fixed buffers: the directory's builder keeps 24 bytes (its arrays double when they
// grow: at most 48, and 8 more while one of them is copied), a sample of an open chunk 24 bytes until its chunk is
// written (it is not in the builder yet), append_at() one bit. At commit 8 bytes hold the hashes for the search for
// duplicate names, and are gone before the builder makes the index. At no time is it more than 64 bytes a sample.
class VolumeWriter final : public Writer {
 public:
  VolumeWriter(std::unique_ptr<Destination> destination, const layout::Schema& schema, const WriterOptions& options,
               const Superblock& superblock)
      : schema_(schema),
        options_(options),
        superblock_(superblock),
        layout_(schema, options.chunk_bytes, superblock.record_salt),
        builder_(options.chunk_bytes, options.names),
        destination_(std::move(destination)) {}
  ~VolumeWriter() override { release(); }

  Result<void> start();
  Result<void> append(std::string_view name, std::span<const FieldValue> fields) override;
  Result<void> append_at(SampleId id, std::string_view name, std::span<const FieldValue> fields) override;
  Result<void> append_stream_at(SampleId id, std::string_view name, std::span<const FieldValue> other_fields,
                                std::uint64_t length_bytes, const Source& source) override;
  std::uint64_t count() const noexcept override { return count_; }
  Result<Superblock> commit() override;

 private:
  using FieldSource = layout::LargeRecordEncoder::Source;
  Result<void> prepare();
  Result<void> usable() const;
  Result<void> check_id(SampleId id);
  Result<void> check_name(SampleId id, std::string_view name) const;
  Result<void> add(SampleId id, std::string_view name, std::span<const FieldValue> fields, bool shuffle);
  Result<void> add_stream(SampleId id, std::string_view name, std::span<const FieldValue> fields, std::size_t streamed,
                          const Source& source);
  Result<void> add_large(SampleId id, std::span<const std::uint64_t> lengths, std::uint64_t hash,
                         const FieldSource& source);
  Result<void> write_large(layout::LargeRecordEncoder& encoder, std::uint64_t address, const FieldSource& source);
  Result<void> record_added(SampleId id, std::string_view name, std::uint64_t payload, std::uint64_t record);
  std::uint64_t hash_of(std::string_view name) const noexcept;
  Result<void> write_at(std::span<std::byte> buffer, std::uint64_t length, std::uint64_t offset);
  Result<void> write_zeros(std::uint64_t begin, std::uint64_t end);
  Result<void> mark_incomplete();
  Result<void> write_sections();
  Result<void> write_names(SectionWriter& section);
  Result<void> finish_device();
  Error fail(Error error);
  void release() noexcept;
  template <class T>
  Result<T> or_fail(Result<T> result) {
    return result.ok() ? std::move(result) : Result<T>(fail(std::move(result).error()));
  }

  layout::Schema schema_;
  WriterOptions options_;
  Superblock superblock_;
  layout::RecordLayout layout_;
  directory::Builder builder_;
  std::unique_ptr<WriteQueue> queue_;
  std::optional<Placer> placer_;
  std::optional<NameSpool> names_;
  std::unique_ptr<Destination> destination_;
  std::vector<std::uint64_t> lengths_;  // of the sample at hand, reused
  std::vector<bool> seen_;              // by id, for append_at()
  std::uint64_t count_ = 0, record_bytes_ = 0;
  std::optional<Error> dead_;
  bool source_failed_ = false;  // the error at hand is the source's, not the device's
};

Result<void> VolumeWriter::start() {
  auto prepared = prepare();
  return prepared.ok() ? std::move(prepared) : Result<void>(fail(std::move(prepared).error()));
}

Result<void> VolumeWriter::prepare() {
  const std::size_t open_chunks = std::max<std::uint64_t>(1, options_.pool_bytes / options_.chunk_bytes);
  const std::size_t ahead = std::max<std::size_t>(kMinWriteAhead, kWriteAheadBytes / options_.chunk_bytes);
  DLFS_TRY_ASSIGN(queue_, WriteQueue::create(destination_->device(), options_.chunk_bytes, open_chunks + ahead,
                                             block::kDefaultTimeout));
  placer_.emplace(
      *queue_, open_chunks, options_.seed,
      [this](const PlacedRecord& record, std::uint64_t address) {
        builder_.add(record.id, {.address_bytes = address, .length_bytes = record.length_bytes, .large = false},
                     record.hash);
      },
      [this](std::span<std::byte> chunk, std::uint64_t address) {
        return write_at(chunk, chunk.size(), superblock_.data.offset_bytes + address);
      });
  if (options_.names) {
    DLFS_TRY_ASSIGN(names_, NameSpool::create(spool_directories(options_, destination_->directory())));
  }
  return mark_incomplete();
}

// From here on whatever happens leaves a volume that says 'incomplete', until commit() says otherwise.
Result<void> VolumeWriter::mark_incomplete() {
  Superblock incomplete = superblock_;
  incomplete.data = {};
  DLFS_TRY(write_superblocks(destination_->device(), incomplete, block::kDefaultTimeout));
  if (!destination_->in_place()) return {};  // a new file reads as zeros between the slots
  for (const std::uint64_t offset : layout::kSuperblockOffsets) {
    const std::uint64_t end = offset == 0 ? layout::kSuperblockOffsets[1] : superblock_.data.offset_bytes;
    DLFS_TRY(write_zeros(offset + layout::kSuperblockBytes, end));
  }
  return {};
}

Result<void> VolumeWriter::write_zeros(std::uint64_t begin, std::uint64_t end) {
  SectionWriter section(*queue_, begin,
                        [this](auto buffer, auto length, auto offset) { return write_at(buffer, length, offset); });
  const std::vector<std::byte> zeros(layout::kSectorBytes);
  while (section.position() < end) DLFS_TRY(section.append(zeros));
  return section.finish();
}

Result<void> VolumeWriter::write_at(std::span<std::byte> buffer, std::uint64_t length, std::uint64_t offset) {
  const block::Geometry& geometry = destination_->device().geometry();
  if (!geometry.growable && offset + length > geometry.capacity_bytes) {
    queue_->release(buffer);
    return base::make_error(Code::kNoSpace, "{} is too small: more than {} bytes are needed, {} are available",
                            destination_->name(), offset + length, geometry.capacity_bytes);
  }
  return queue_->write(buffer, length, offset);
}

// The writer is dead: whatever is half written goes, the same error is given to every later call.
Error VolumeWriter::fail(Error error) {
  if (dead_) return *dead_;
  if (error.code == Code::kNoSpace && error.errno_value != 0) {
    error.message = fmt::format("no space is left for {}; free some or choose another destination ({})",
                                destination_->name(), error.message);
  }
  dead_ = error;
  release();
  return error;
}

// After the end, good or bad, nothing is kept but the answer to later calls.
void VolumeWriter::release() noexcept {
  destination_->abandon();  // the device first: it may still be writing the buffers
  placer_.reset();
  queue_.reset();
  names_.reset();
}

Result<void> VolumeWriter::usable() const {
  if (dead_) return *dead_;
  if (destination_->forked()) {
    return base::make_error(Code::kForked,
                            "the pack of {} belongs to the parent process; make another Writer for another volume",
                            destination_->name());
  }
  return {};
}

Result<void> VolumeWriter::check_id(SampleId id) {
  if (id.value < seen_.size() && seen_[id.value]) {
    return base::make_error(Code::kInvalidArgument, "sample {} was appended before; every id is given once", id.value);
  }
  return {};
}

Result<void> VolumeWriter::check_name(SampleId id, std::string_view name) const {
  return options_.names ? volume::check_name(id, name) : Result<void>();
}

std::uint64_t VolumeWriter::hash_of(std::string_view name) const noexcept {
  return options_.names ? directory::name_hash(name, superblock_.record_salt) : 0;
}

Result<void> VolumeWriter::append(std::string_view name, std::span<const FieldValue> fields) {
  DLFS_TRY(usable());
  if (count_ > 0xFFFFFFFFu) return base::make_error(Code::kInvalidArgument, "a volume holds at most 2^32 samples");
  return add(SampleId{static_cast<std::uint32_t>(count_)}, name, fields, options_.shuffle);
}

Result<void> VolumeWriter::append_at(SampleId id, std::string_view name, std::span<const FieldValue> fields) {
  DLFS_TRY(usable());
  DLFS_TRY(check_id(id));
  DLFS_TRY(add(id, name, fields, false));
  if (id.value >= seen_.size()) seen_.resize(std::size_t{id.value} + 1);
  seen_[id.value] = true;
  return {};
}

Result<void> VolumeWriter::add(SampleId id, std::string_view name, std::span<const FieldValue> fields, bool shuffle) {
  DLFS_TRY(check_name(id, name));
  DLFS_TRY(check_fields(schema_, id, name, fields));
  lengths_.clear();
  std::uint64_t payload = 0;
  for (const FieldValue& field : fields) {
    lengths_.push_back(field.size());
    payload += field.size();
  }
  const std::uint64_t bytes = layout_.record_bytes(lengths_);
  const std::uint64_t hash = hash_of(name);
  if (layout_.large(bytes)) {
    DLFS_TRY(add_large(id, lengths_, hash,
                       [&](std::size_t field, std::uint64_t offset, std::span<std::byte> into) -> Result<void> {
                         std::memcpy(into.data(), fields[field].data() + offset, into.size());
                         return {};
                       }));
  } else {
    auto room = or_fail(placer_->place(id, static_cast<std::uint32_t>(bytes), hash, shuffle));
    if (!room.ok()) return room.error();
    layout_.encode(id, fields, *room);
  }
  return record_added(id, name, payload, bytes);
}

Result<void> VolumeWriter::append_stream_at(SampleId id, std::string_view name,
                                            std::span<const FieldValue> other_fields, std::uint64_t length_bytes,
                                            const Source& source) {
  DLFS_TRY(usable());
  DLFS_TRY(check_id(id));
  const auto last = std::find_if(schema_.fields.rbegin(), schema_.fields.rend(),
                                 [](const layout::Field& field) { return !field.fixed(); });
  if (last == schema_.fields.rend()) {
    return base::make_error(Code::kInvalidArgument, "the schema '{}' has no bytes or text field to stream into",
                            schema_.to_string());
  }
  const auto streamed = static_cast<std::size_t>(schema_.fields.rend() - last) - 1;
  DLFS_TRY(check_name(id, name));
  DLFS_TRY(check_stream_fields(schema_, id, name, other_fields, streamed, length_bytes));
  // A placeholder keeps the streamed field's place; its length is all that is used of it.
  std::vector<FieldValue> fields(other_fields.begin(), other_fields.end());
  fields.insert(fields.begin() + static_cast<std::ptrdiff_t>(streamed), FieldValue());
  lengths_.clear();
  for (const FieldValue& field : fields) lengths_.push_back(field.size());
  lengths_[streamed] = length_bytes;
  DLFS_TRY(add_stream(id, name, fields, streamed, source));
  if (id.value >= seen_.size()) seen_.resize(std::size_t{id.value} + 1);
  seen_[id.value] = true;
  return {};
}

Result<void> VolumeWriter::add_stream(SampleId id, std::string_view name, std::span<const FieldValue> fields,
                                      std::size_t streamed, const Source& source) {
  const std::uint64_t bytes = layout_.record_bytes(lengths_);
  if (!layout_.large(bytes)) {  // a record of one chunk at most: drawn whole, then as any other
    std::vector<std::byte> value(lengths_[streamed]);
    DLFS_TRY(source(value));
    std::vector<FieldValue> whole(fields.begin(), fields.end());
    whole[streamed] = value;
    return add(id, name, whole, false);
  }
  std::uint64_t payload = 0;
  for (const std::uint64_t length : lengths_) payload += length;
  DLFS_TRY(add_large(id, lengths_, hash_of(name),
                     [&](std::size_t field, std::uint64_t offset, std::span<std::byte> into) -> Result<void> {
                       if (field == streamed) return source(into);
                       std::memcpy(into.data(), fields[field].data() + offset, into.size());
                       return {};
                     }));
  return record_added(id, name, payload, bytes);
}

Result<void> VolumeWriter::add_large(SampleId id, std::span<const std::uint64_t> lengths, std::uint64_t hash,
                                     const FieldSource& source) {
  layout::LargeRecordEncoder encoder(layout_, id, lengths);
  const std::uint64_t address =
      placer_->take_chunks((encoder.record_bytes() + options_.chunk_bytes - 1) / options_.chunk_bytes);
  source_failed_ = false;
  if (auto written = write_large(encoder, address, source); !written.ok()) {
    if (!source_failed_) return fail(std::move(written).error());
    // The source failed, not the device: the chunks are used again, once nothing is being written to them any more.
    if (auto drained = queue_->drain(); !drained.ok()) return fail(std::move(drained).error());
    placer_->give_back_chunks(address);
    return written;
  }
  builder_.add(id, {.address_bytes = address, .length_bytes = encoder.record_bytes(), .large = true}, hash);
  return {};
}

Result<void> VolumeWriter::write_large(layout::LargeRecordEncoder& encoder, std::uint64_t address,
                                       const FieldSource& source) {
  while (!encoder.done()) {
    const std::uint64_t offset = superblock_.data.offset_bytes + address + encoder.written_bytes();
    DLFS_TRY_ASSIGN(const std::span<std::byte> buffer, queue_->acquire());
    const auto count = encoder.next(buffer, source);
    if (!count.ok()) {
      queue_->release(buffer);
      source_failed_ = true;
      return count.error();
    }
    std::memset(buffer.data() + *count, 0, buffer.size() - *count);
    DLFS_TRY(write_at(buffer, buffer.size(), offset));
  }
  return {};
}

Result<void> VolumeWriter::record_added(SampleId id, std::string_view name, std::uint64_t payload,
                                        std::uint64_t record) {
  superblock_.payload_bytes += payload;
  record_bytes_ += record;
  ++count_;
  return options_.names ? or_fail(names_->add(id, name)) : Result<void>();
}

Result<Superblock> VolumeWriter::commit() {
  DLFS_TRY(usable());
  auto committed = write_sections();
  if (committed.ok()) committed = finish_device();
  if (!committed.ok()) return fail(std::move(committed).error());
  dead_ = base::make_error(Code::kInvalidArgument, "the volume is committed; make another Writer for another volume");
  release();
  return superblock_;
}

Result<void> VolumeWriter::write_sections() {
  DLFS_TRY(placer_->finish());
  superblock_.sample_count = count_;
  superblock_.data.length_bytes = placer_->used_bytes();
  superblock_.record_bytes = record_bytes_ - superblock_.payload_bytes;
  superblock_.padding_bytes = superblock_.data.length_bytes - record_bytes_;
  SectionWriter section(*queue_, superblock_.data.offset_bytes + superblock_.data.length_bytes,
                        [this](auto buffer, auto length, auto offset) { return write_at(buffer, length, offset); });
  superblock_.names.offset_bytes = section.position();
  if (options_.names) DLFS_TRY(write_names(section));
  superblock_.names.length_bytes = section.position() - superblock_.names.offset_bytes;
  const auto write_section = [&section](layout::Extent& extent, std::span<const std::byte> bytes) -> Result<void> {
    extent = {.offset_bytes = section.position(), .length_bytes = bytes.size(), .crc = base::crc32c(bytes)};
    DLFS_TRY(section.append(bytes));
    return section.align(layout::kSectorBytes);
  };
  DLFS_TRY(section.align(layout::kSectorBytes));
  DLFS_TRY_ASSIGN(const std::vector<std::byte> index, builder_.finish(superblock_));
  DLFS_TRY(write_section(superblock_.index, index));
  DLFS_TRY(write_section(superblock_.schema, layout::encode(schema_)));
  superblock_.device_bytes = section.position();
  DLFS_TRY(section.finish());
  return queue_->drain();
}

Result<void> VolumeWriter::write_names(SectionWriter& section) {
  NameSectionWriter writer(
      superblock_.record_salt, count_, [this](SampleId first) { builder_.add_name_block(first); },
      [&section](std::span<const std::byte> block) { return section.append(block); });
  DLFS_TRY(names_->for_each([&](SampleId id, std::string_view name) -> Result<bool> {
    auto added = writer.add(id, name);
    return added.ok() ? Result<bool>(true) : Result<bool>(std::move(added).error());
  }));
  DLFS_TRY(writer.finish());
  return refuse_duplicates(*names_, std::move(writer).take_hashes(), superblock_.record_salt);
}

// The commit: everything else is on the media before the superblocks say so, and those before the name does.
Result<void> VolumeWriter::finish_device() {
  DLFS_TRY(destination_->set_length(superblock_.device_bytes));
  DLFS_TRY(queue_->settle());
  superblock_.state = layout::State::kCommitted;
  DLFS_TRY(write_superblocks(destination_->device(), superblock_, block::kDefaultTimeout));
  return destination_->publish();
}

Result<void> check_options(const WriterOptions& options) {
  const std::uint32_t chunk = options.chunk_bytes;
  const bool power = chunk != 0 && (chunk & (chunk - 1)) == 0;
  if (!power || chunk < layout::kMinChunkBytes || chunk > layout::kMaxChunkBytes) {
    return base::make_error(Code::kInvalidArgument,
                            "chunks of {} bytes are not possible; choose a power of two from 64 KiB to 16 MiB", chunk);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Writer>> create_writer(std::string_view url, const layout::Schema& schema,
                                              const WriterOptions& options, const OpenDevice& open_device) {
  DLFS_TRY(layout::validate(schema));
  DLFS_TRY(check_options(options));
  Superblock superblock;
  DLFS_TRY(fill_random(superblock.volume_id));
  DLFS_TRY(fill_random(std::as_writable_bytes(std::span(&superblock.record_salt, 1))));
  superblock.chunk_bytes = options.chunk_bytes;
  superblock.data.offset_bytes = data_begin(options.chunk_bytes);
  superblock.unix_time_s = static_cast<std::uint64_t>(std::time(nullptr));
  superblock.writer = "dlfs " DLFS_VERSION;
  DLFS_TRY_ASSIGN(auto destination, Destination::open(url, options.overwrite, open_device));
  superblock.generation = destination->previous_generation() + 1;
  auto writer = std::make_unique<VolumeWriter>(std::move(destination), schema, options, superblock);
  DLFS_TRY(writer->start());
  return std::unique_ptr<Writer>(std::move(writer));
}

Result<std::unique_ptr<Writer>> Writer::create(std::string_view url, const layout::Schema& schema,
                                               const WriterOptions& options) {
  return create_writer(url, schema, options, default_open_device());
}

}  // namespace dlfs::volume
