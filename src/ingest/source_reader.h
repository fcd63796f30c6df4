// Reads one source file, and notices when it is not, or does not stay, the file that was listed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ingest/catalog.h"
#include "ingest/folder.h"

namespace dlfs::ingest {

// An open source file. **Thread**: one. **Lifetime**: `folder` must outlive it.
class SourceReader {
 public:
  // Opens `file` and compares size and time of change with the listing.
  // **Errors** here and below: kSourceChanged, naming the file and what happened to it.
  static Result<SourceReader> open(const Folder& folder, const SourceFile& file);
  SourceReader(SourceReader&& other) noexcept;
  SourceReader& operator=(SourceReader&&) = delete;
  ~SourceReader();

  // The next into.size() bytes, all of them.
  Result<void> read(std::span<std::byte> into);
  // After the last byte: nothing may follow, and size and time must still be those of the listing.
  Result<void> finish();

 private:
  SourceReader(const Folder& folder, const SourceFile& file, int fd) : folder_(&folder), file_(&file), fd_(fd) {}
  Result<void> check_status() const;
  Error changed(std::string_view what, int errno_value = 0) const;

  const Folder* folder_;
  const SourceFile* file_;
  int fd_;
  std::uint64_t read_ = 0;
};

// The whole of a file, in one go. `into` is resized to file.size_bytes.
Result<void> read_whole(const Folder& folder, const SourceFile& file, std::vector<std::byte>& into);

// A verified private copy of a file on disk, mapped into memory: for files too large to hold, where the bytes must be
// known to be good before the first of them is used.
class MappedCopy {
 public:
  static Result<MappedCopy> make(const Folder& folder, const SourceFile& file, const std::string& spool_directory);
  MappedCopy(MappedCopy&& other) noexcept;
  MappedCopy& operator=(MappedCopy&&) = delete;
  ~MappedCopy();
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  explicit MappedCopy(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace dlfs::ingest
