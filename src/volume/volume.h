// A mounted volume: devices + superblock + schema + directory, and random access by id and name. Iteration is the
// reader's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "block/device.h"
#include "directory/directory.h"
#include "layout/record.h"

namespace dlfs::volume {

struct MountOptions {
  std::chrono::milliseconds timeout{30'000};  // for each request to a device
  bool direct = true;                         // O_DIRECT where possible
  // How devices are opened; empty: block::open_device. Tests give one that fails, delays or forgets.
  std::function<Result<std::unique_ptr<block::BlockDevice>>(std::string_view, const block::OpenOptions&)> open_device =
      {};
};

// One sample's bytes, verified; `fields` are views into `bytes`.
struct OwnedRecord {
  std::vector<std::byte> bytes;
  std::vector<layout::FieldValue> fields;
};

// The chunk of a large sample in which the last read of it ended. **Thread**: any; whoever finds it taken does without,
// a forked child for ever where another thread of the parent had it.
struct KeptPiece {
  std::mutex mutex;
  std::uint64_t index = 0;
  std::vector<std::byte> bytes;  // verified; empty: none
};

// **Thread**: all const functions from any thread. **Lifetime**: shared; readers and files keep it alive.
// **fork**: usable in a child; its device handles are opened anew there at first use.
class Volume : public std::enable_shared_from_this<Volume> {
 public:
  // Reads superblocks, schema and index. **Blocks**. **Errors**: kNotFound (says so when URL.partial is an incomplete
  // pack), kForeign, kIncomplete, kUnsupportedVersion, kTruncated, kCorrupt, kIo, kTimedOut; each says what is wrong
  // and where.
  static Result<std::shared_ptr<const Volume>> mount(std::string_view url, const MountOptions& options = {});

  const std::string& url() const noexcept;
  const MountOptions& options() const noexcept;
  const layout::Superblock& superblock() const noexcept;
  const layout::Schema& schema() const noexcept;
  const directory::Directory& directory() const noexcept;
  const layout::RecordLayout& record_layout() const noexcept;
  std::uint64_t size() const noexcept { return directory().sample_count(); }
  std::uint64_t fingerprint() const noexcept;  // of (volume id, generation); for order::Position
  // What mount did, for people: time, index bytes, page kind of the directory, fallbacks of the device.
  struct MountReport {
    std::chrono::nanoseconds elapsed{};
    std::uint64_t index_bytes = 0, resident_bytes = 0;
    std::string page_kind, engine, notes;
    std::string warning;  // e.g. one of the two superblocks is damaged; empty when all is well
  };
  const MountReport& report() const noexcept;

  // A device handle of the caller's own (one thread), and where a data address lies on it.
  Result<std::unique_ptr<block::BlockDevice>> open_device(std::uint32_t queue_depth) const;
  std::uint64_t device_offset(std::uint64_t data_address) const noexcept;
  // Calls `use` with one of the handles that random access keeps open; nobody else uses it meanwhile. **Thread**: any.
  // **Errors**: of opening a device, and those of `use`, which leaves nothing in flight unless it timed out.
  Result<void> with_device(const std::function<Result<void>(block::BlockDevice&)>& use) const;

  // **Blocks**. **Errors**: kNotFound, kCorrupt (names sample, device and address), kIo, kTimedOut.
  Result<SampleId> find(std::string_view name) const;
  Result<std::string> name(SampleId id) const;  // empty when the volume has no names
  Result<OwnedRecord> read(SampleId id) const;
  // Reads [offset, offset + into.size()) of one field, verified; a large sample is not read whole. Returns the bytes
  // read (short at the end). `kept`, of the same sample, spares those who read it in small parts from reading and
  // verifying a whole chunk each time.
  Result<std::uint64_t> read_field(SampleId id, std::size_t field, std::uint64_t offset, std::span<std::byte> into,
                                   KeptPiece* kept = nullptr) const;
  Result<std::vector<std::uint64_t>> field_lengths(SampleId id) const;
  // "sample 17 ('train/cat/1.jpg') on file:/x/train.dlfs at byte 1234567": for errors. Reads the name; never fails.
  std::string describe(SampleId id) const;

  // All names in id order, in pieces: `visit(first_id, names)` until it returns false. For ls and export.
  Result<void> names(SampleId first,
                     const std::function<bool(SampleId, std::span<const std::string_view>)>& visit) const;

 private:
  Volume() = default;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace dlfs::volume
