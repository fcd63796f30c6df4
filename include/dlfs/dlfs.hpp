// DLFS for C++20: mount a volume, read samples by id or name, draw random mini-batches, pack new volumes.
//
//   auto volume = dlfs::Volume::mount("train.dlfs").value();
//   auto sequence = volume.sequence({.mode = dlfs::Mode::kChunk, .seed = 1, .batch = 256}).value();
//   while (auto batch = sequence.next().value()) use(batch->ids(), batch->field(0, "image"));
//
// No third-party types; every class is a handle. Functions that can fail return dlfs::Result (result.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dlfs/result.h"

namespace dlfs {

using Bytes = std::span<const std::byte>;

enum class Mode : std::uint8_t { kSequential = 0, kFull = 1, kChunk = 2 };
enum class Tail : std::uint8_t { kDrop = 0, kShort = 1, kPad = 2 };  // of an epoch's last, smaller batch
enum class OnError : std::uint8_t { kRaise = 0, kSkip = 1 };         // what a bad sample does
enum class Kind : std::uint8_t { kBytes = 0, kText = 1, kTensor = 2 };

struct Field {
  std::string name;
  Kind kind = Kind::kBytes;
  std::string dtype;                 // kTensor: NumPy's name, "int64", "float32", "bfloat16"
  std::vector<std::uint64_t> shape;  // kTensor: empty for a scalar
};

struct Schema {
  std::vector<Field> fields;
  std::vector<std::pair<std::string, std::string>> attributes;
  // "image: bytes, label: int64, mask: uint8[256,256]". **Thread**: any. **Errors**: kInvalidArgument says what is
  // wrong where.
  static Result<Schema> parse(std::string_view text);
  // The same text. **Thread**: any.
  std::string to_string() const;
};

struct MountOptions {
  std::chrono::milliseconds timeout{30'000};  // for each request to a device
  bool direct = true;                         // bypass the page cache where the file system can
};

struct SequenceOptions {
  Mode mode = Mode::kChunk;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t epochs = 1;   // goes on to the next epochs by itself; 0: endless
  std::uint32_t batch = 256;  // global batch: samples over all ranks
  std::uint32_t rank = 0, ranks = 1;
  Tail tail = Tail::kShort;
  std::uint32_t lanes = 240, window = 1;  // chunk mode
  std::uint64_t start_batch = 0;
  std::uint64_t cache_bytes = 0;       // bound on memory for samples; 0: 256 MiB, or more if batches need it
  std::uint32_t depth = 128;           // requests in flight
  std::uint32_t prefetch_batches = 0;  // ready ahead of the consumer; 0: as many as the memory allows
  OnError on_error = OnError::kRaise;
  bool verify = true;  // off for benchmarks only
};

struct VolumeInfo {  // all sizes in bytes
  std::string url, volume_id, writer, engine, page_kind, notes;
  std::uint64_t generation = 0, samples = 0, chunk_bytes = 0, chunks = 0, device_bytes = 0;
  std::uint64_t payload_bytes = 0, record_bytes = 0, padding_bytes = 0;
  std::uint64_t index_bytes = 0, name_bytes = 0, schema_bytes = 0;
  std::uint64_t directory_bytes = 0;  // resident
  double mount_s = 0;
  std::uint64_t created_unix_s = 0;
};

struct Percentiles {
  double p50_us = 0, p95_us = 0, p99_us = 0, total_s = 0;
};

struct SequenceStatistics {  // since the sequence was opened
  std::uint64_t samples = 0, batches = 0, payload_bytes = 0, device_bytes = 0, device_requests = 0;
  std::uint64_t cache_hits = 0, skipped = 0, memory_bytes = 0, memory_peak_bytes = 0;
  std::uint64_t memory_limit_bytes = 0;  // cache_bytes, or what was chosen for it
  double amplification = 0;              // device bytes to sample bytes
  double poller_cpu_s = 0;
  Percentiles wait, device, queue, verify, copy;  // the consumer's waiting, and where it comes from
};

// One mini-batch: views into the reader's cache. **Lifetime**: views are valid until the Batch is destroyed, which
// may come after the sequence and the volume are gone. **Thread**: one at a time; may be destroyed on any. A batch
// that was moved from can only be destroyed or assigned to. No function fails.
class Batch {
 public:
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;
  ~Batch();
  std::uint64_t epoch() const noexcept;
  std::uint64_t number() const noexcept;                // within the epoch; 0 from Volume::read
  std::size_t size() const noexcept;                    // samples
  std::uint32_t padding() const noexcept;               // how many samples at the end are repeats (Tail::kPad)
  std::span<const std::uint32_t> ids() const noexcept;  // without skipped samples. **Lifetime**: as the batch
  // **Preconditions**: i < size(), field < the schema's fields.
  Bytes field(std::size_t i, std::size_t field) const noexcept;
  // Copies one field of all samples back to back into `into`; offsets, if not empty, has size() + 1 entries and is
  // filled in any case. Returns the bytes needed; copies nothing when `into` is smaller. **Precondition**: field <
  // the schema's fields.
  std::uint64_t gather(std::size_t field, std::span<std::byte> into,
                       std::span<std::uint64_t> offsets = {}) const noexcept;

  struct Impl;
  explicit Batch(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

// A rank's walk through shuffled epochs. **Thread**: one consumer. **Lifetime**: keeps what it needs of the volume;
// destroying it stops reading ahead. **fork**: belongs to the parent; next() in a child is kForked.
class Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();
  // The next batch, or nothing after the last epoch. **Blocks** until it is there, at most `timeout`. **Errors**:
  // kTimedOut (call again to go on waiting); kCorrupt, kIo, kDeviceLost name sample, device and address, and come
  // again on the next call; kForked.
  Result<std::optional<Batch>> next(std::chrono::milliseconds timeout = std::chrono::hours(24));
  std::uint64_t batches_per_epoch() const noexcept;  // the same for every rank
  // In front of the next batch, at most 64 bytes: pass it to Volume::resume, with any number of ranks.
  std::vector<std::byte> state() const;
  std::uint64_t epoch() const noexcept;  // of the next batch
  std::uint64_t next_batch() const noexcept;
  std::uint32_t batch() const noexcept;  // the global batch: samples over all ranks
  SequenceStatistics statistics() const;
  std::string notes() const;  // what the reader does for want of memory or of a kernel's help; empty when all is well

  struct Impl;
  explicit Sequence(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

// A sample opened for reading in parts. **Thread**: any; reads do not share a position. **Lifetime**: keeps the
// volume. Of a sample larger than a chunk it keeps the chunk in which the last read ended, so that many small reads in
// a row cost what few long ones do.
class File {
 public:
  std::uint32_t id() const noexcept;
  std::uint64_t size() const noexcept;  // of the field opened, in bytes
  // Returns the bytes read: fewer than asked only at the end. Nothing that fails its check is copied. **Blocks** for
  // large samples. **Errors**: kCorrupt (names sample, device and address), kIo, kTimedOut, kDeviceLost.
  Result<std::uint64_t> read(std::span<std::byte> into, std::uint64_t offset) const;

  struct Impl;
  explicit File(std::shared_ptr<const Impl> impl) noexcept;

 private:
  std::shared_ptr<const Impl> impl_;
};

// A mounted volume. Copies share it. **Thread**: any. **fork**: a child may go on using it (it opens the devices
// anew).
class Volume {
 public:
  // "train.dlfs", "file:train.dlfs", "/dev/nvme1n1", "mem:NAME". **Blocks** for a sequential read of superblock and
  // index. **Errors**: kNotFound, kForeign, kIncomplete, kUnsupportedVersion, kTruncated, kCorrupt, kIo, kTimedOut;
  // each says what is wrong where.
  static Result<Volume> mount(std::string_view url, const MountOptions& options = {});
  std::uint64_t size() const noexcept;    // samples; their ids are 0 to size() - 1
  const Schema& schema() const noexcept;  // **Lifetime**: as long as any copy of the volume
  VolumeInfo info() const;

  // The name is confirmed on the volume: never another sample's id. **Blocks**. **Errors**: kNotFound, kCorrupt, kIo,
  // kTimedOut.
  Result<std::uint32_t> find(std::string_view name) const;
  // Empty in a volume without names. **Blocks**. **Errors**: kNotFound (no such id), kCorrupt, kIo, kTimedOut.
  Result<std::string> name(std::uint32_t id) const;
  // Visits the names from id `first` on, in id order, until `visit` returns false. The view is good during the call.
  // **Blocks**. **Errors**: as name().
  Result<void> names(std::uint32_t first, const std::function<bool(std::uint32_t, std::string_view)>& visit) const;

  // The samples with these ids, in this order, all in flight at once. **Blocks**. **Errors**: kNotFound (no such id),
  // kCorrupt, kIo, kDeviceLost (name sample, device and address), kTimedOut. Under kSkip bad samples are absent.
  Result<Batch> read(std::span<const std::uint32_t> ids, OnError on_error = OnError::kRaise) const;
  // **Blocks** for at most two reads. **Errors**: kNotFound, kInvalidArgument (no such field), kCorrupt, kIo,
  // kTimedOut.
  Result<File> open(std::string_view name, std::size_t field = 0) const;
  Result<File> open_id(std::uint32_t id, std::size_t field = 0) const;
  // Bytes of one field of a sample, for listings: without reading the sample where the schema has one variable field
  // and the sample fits in a chunk. **Blocks** otherwise. **Errors**: as open_id().
  Result<std::uint64_t> field_size(std::uint32_t id, std::size_t field = 0) const;

  // **Errors**: kInvalidArgument (batch, ranks, lanes, ...: says which value would do), kOutOfMemory (cache_bytes:
  // says how many would do), device errors.
  Result<Sequence> sequence(const SequenceOptions& options) const;
  // Goes on where `state` was taken; rank, ranks, memory and error options come from `options`, the order from the
  // state. With the options of the interrupted walk it ends where that would have: after epoch options.epoch +
  // options.epochs - 1 (0: endless). An epoch that is under way is always finished. **Errors**: kInvalidArgument
  // (another volume's state), kCorrupt, as sequence().
  Result<Sequence> resume(std::span<const std::byte> state, SequenceOptions options) const;
  // This rank's ids, batch by batch, for one epoch, without reading any sample; `visit(batch, ids)` until it returns
  // false. **Errors**: kInvalidArgument, as sequence().
  Result<void> order(const SequenceOptions& options,
                     const std::function<bool(std::uint64_t, std::span<const std::uint32_t>)>& visit) const;

  struct Finding {
    std::string what, name, message;  // name: escaped, empty when unknown
    std::optional<std::uint32_t> id;
    std::uint64_t chunk = 0, device_offset = 0;
  };
  struct VerifyReport {
    std::uint64_t samples = 0, bytes = 0, bad_samples = 0, bad_chunks = 0, findings = 0;
  };
  // Reads and checks every byte. `found` is called for everything that is not as it was written; `progress(bytes
  // done, bytes in all)` now and then, and stops it by returning false. **Blocks** long. **Errors**: kInterrupted,
  // kDeviceLost; a bad sample is a finding.
  Result<VerifyReport> verify(const std::function<void(const Finding&)>& found,
                              const std::function<bool(std::uint64_t, std::uint64_t)>& progress = {}) const;

  struct Impl;
  explicit Volume(std::shared_ptr<const Impl> impl) noexcept;

 private:
  std::shared_ptr<const Impl> impl_;
};

struct WriterOptions {
  std::uint32_t chunk_bytes = 256u << 10;  // a power of two, 64 KiB to 16 MiB
  bool overwrite = false;                  // the destination may hold a volume or foreign data
  bool shuffle = true;                     // append() places samples in random order
  bool names = true;
  std::uint64_t seed = 0, pool_bytes = 64u << 20;  // of the shuffled placement
};

// Packs a volume. Nothing is visible at the destination before commit(). **Thread**: one. **Memory**: pool_bytes,
// write buffers and at most 64 bytes a sample.
class Writer {
 public:
  // **Errors**: kExists (overwrite), kBusy (another packer), kReadOnly, kNoSpace, kInvalidArgument (schema,
  // chunk_bytes), kIo.
  static Result<Writer> create(std::string_view url, const Schema& schema, const WriterOptions& options = {});
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();  // without commit(): the destination stays as it was (file) or is marked incomplete (device)
  // The next sample; its id is count(). One value a field, in schema order; the bytes are copied. **Errors**:
  // kSchemaMismatch (sample, field, expected and got), kInvalidArgument (name), kNoSpace, kIo. After kNoSpace or kIo
  // the writer is dead.
  Result<void> append(std::string_view name, std::span<const Bytes> fields);
  // Sample `id` in whatever order the caller visits them; they are placed in that order. By the commit each id from 0
  // to the highest must have come once. Not to be mixed with append(). **Errors**: as append().
  Result<void> append_at(std::uint32_t id, std::string_view name, std::span<const Bytes> fields);
  // The last bytes or text field, of `length` bytes, is drawn from `source`, which fills each span it is given.
  // **Errors**: as append(), and what `source` returns.
  Result<void> append_stream_at(std::uint32_t id, std::string_view name, std::span<const Bytes> other_fields,
                                std::uint64_t length, const std::function<Result<void>(std::span<std::byte>)>& source);
  std::uint64_t count() const noexcept;
  // Makes the volume visible, once, when all of it is on the device. Only destruction may follow. **Blocks**.
  // **Errors**: kDuplicateName (names both), as append().
  Result<VolumeInfo> commit();

  struct Impl;
  explicit Writer(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

// A placement permutation for packers that can visit their source in any order: position -> id, 0..n-1, from a seed.
// **Precondition**: position < n. **Thread**: any. The same on every machine.
std::uint32_t placement(std::uint32_t position, std::uint32_t n, std::uint64_t seed) noexcept;

// "0.1.0". Static storage.
const char* version() noexcept;

}  // namespace dlfs
