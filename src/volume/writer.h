// Packing: records into chunks, chunks onto the device, the index behind them, the superblocks last.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/types.h"
#include "layout/format.h"
#include "layout/record.h"

namespace dlfs::volume {

struct WriterOptions {
  std::uint32_t chunk_bytes = layout::kDefaultChunkBytes;
  bool overwrite = false;                // --force: the destination may hold a volume or foreign data
  bool shuffle = true;                   // append(): place through a pool of open chunks
  std::uint64_t pool_bytes = 64u << 20;  // of open chunks, for append()
  std::uint64_t seed = 0;                // of the placement
  bool names = true;
  std::string spool_directory{};  // temporary names; empty: the destination's directory, else TMPDIR
};

// Regular files are written as "PATH.partial", locked, and renamed over PATH at commit; block devices in place, marked
// incomplete first. **Thread**: one. **Memory**: pool_bytes + write buffers + at most 64 bytes a sample.
// A Writer that is destroyed without commit() leaves the destination as it was (file) or marked incomplete (device).
class Writer {
 public:
  // **Errors**: kExists (says --force), kBusy (another packer), kReadOnly, kNoSpace, kInvalidArgument, kIo.
  static Result<std::unique_ptr<Writer>> create(std::string_view url, const layout::Schema& schema,
                                                const WriterOptions& options);
  virtual ~Writer() = default;

  // Adds the next sample in source order (id = count so far). One value a schema field, in schema order. The bytes are
  // copied.
  // **Errors**: kSchemaMismatch (sample, field, expected and got), kInvalidArgument (name), kNoSpace, kIo. After an I/O
  // error the writer is dead.
  virtual Result<void> append(std::string_view name, std::span<const layout::FieldValue> fields) = 0;
  // Adds sample `id` in whatever order the caller visits them; records are placed in that order. Do not mix with
  // append().
  virtual Result<void> append_at(SampleId id, std::string_view name, std::span<const layout::FieldValue> fields) = 0;
  // The same for a sample too large to hold in memory: the last variable field, of `length_bytes`, is drawn from
  // `source`, which fills the whole span.
  using Source = std::function<Result<void>(std::span<std::byte> into)>;
  virtual Result<void> append_stream_at(SampleId id, std::string_view name,
                                        std::span<const layout::FieldValue> other_fields, std::uint64_t length_bytes,
                                        const Source& source) = 0;
  virtual std::uint64_t count() const noexcept = 0;

  // Writes names and index, flushes, writes the superblocks, flushes, renames. **Errors**: kDuplicateName (names both),
  // as append.
  virtual Result<layout::Superblock> commit() = 0;
};

}  // namespace dlfs::volume
