// A temporary file without a name: what does not fit in memory waits here, and vanishes with the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dlfs/result.h"

namespace dlfs::ingest {

// Appended to by one thread; once flush() has returned, read_at() may be called from any thread.
class Spool {
 public:
  // In `directory`, or, when that is empty or cannot hold a file, in $TMPDIR, /var/tmp or /tmp. **Errors**: kIo,
  // kNoSpace, kReadOnly.
  static Result<Spool> create(const std::string& directory);
  Spool(Spool&& other) noexcept;
  Spool& operator=(Spool&& other) noexcept;
  ~Spool();

  // **Errors**: kNoSpace, kIo, naming the directory.
  Result<void> append(std::span<const std::byte> bytes);
  Result<void> flush();
  std::uint64_t size() const noexcept { return written_ + buffer_.size(); }
  // Reads up to into.size() bytes at `offset`; short only at the end of what has been flushed.
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) const;
  int descriptor() const noexcept { return fd_; }

 private:
  Spool(int fd, std::string directory) : fd_(fd), directory_(std::move(directory)) {}
  Result<void> write_out(std::span<const std::byte> bytes);

  int fd_ = -1;
  std::string directory_;
  std::uint64_t written_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace dlfs::ingest
