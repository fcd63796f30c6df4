#include "ingest/source_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/try.h"

namespace dlfs::ingest {
namespace {

constexpr std::size_t kCopyBytes = 1u << 20;

Error source_error(const Folder& folder, const SourceFile& file, std::string_view what, int errno_value) {
  std::string sentence = fmt::format("'{}' in '{}' {}", base::escape(file.name), base::escape(folder.path()), what);
  if (errno_value != 0) sentence += fmt::format(": {}", std::strerror(errno_value));
  return Error{Code::kSourceChanged, std::move(sentence), errno_value};
}

}  // namespace

Result<SourceReader> SourceReader::open(const Folder& folder, const SourceFile& file) {
  // O_NONBLOCK: a pipe that took the file's place must not block the pack.
  const int fd = openat(folder.descriptor(), file.name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) {
    return source_error(folder, file, errno == ENOENT ? "vanished while it was being packed" : "cannot be read", errno);
  }
  SourceReader reader(folder, file, fd);
  DLFS_TRY(reader.check_status());
  return reader;
}

SourceReader::SourceReader(SourceReader&& other) noexcept
    : folder_(other.folder_), file_(other.file_), fd_(std::exchange(other.fd_, -1)), read_(other.read_) {}

SourceReader::~SourceReader() {
  if (fd_ >= 0) close(fd_);
}

Error SourceReader::changed(std::string_view what, int errno_value) const {
  return source_error(*folder_, *file_, what, errno_value);
}

Result<void> SourceReader::check_status() const {
  struct stat status{};
  if (fstat(fd_, &status) != 0) return changed("cannot be read", errno);
  const std::int64_t modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (!S_ISREG(status.st_mode)) return changed("is no longer a regular file");
  if (static_cast<std::uint64_t>(status.st_size) != file_->size_bytes) {
    return changed(fmt::format("changed while it was being packed: it was listed with {} bytes and now has {}",
                               file_->size_bytes, status.st_size));
  }
  if (modified_ns != file_->modified_ns) return changed("changed while it was being packed: it was written to");
  return {};
}

Result<void> SourceReader::read(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t n = ::read(fd_, into.data(), into.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return changed(fmt::format("cannot be read at byte {}", read_), errno);
    if (n == 0) {
      return changed(
          fmt::format("changed while it was being packed: it ends at byte {} of {}", read_, file_->size_bytes));
    }
    read_ += static_cast<std::uint64_t>(n);
    into = into.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> SourceReader::finish() {
  std::byte extra;
  const ssize_t n = ::read(fd_, &extra, 1);
  if (n < 0) return changed("cannot be read to its end", errno);
  if (n > 0)
    return changed(fmt::format("changed while it was being packed: it grew beyond {} bytes", file_->size_bytes));
  return check_status();
}

Result<void> read_whole(const Folder& folder, const SourceFile& file, std::vector<std::byte>& into) {
  DLFS_TRY_ASSIGN(SourceReader reader, SourceReader::open(folder, file));
  into.resize(file.size_bytes);
  DLFS_TRY(reader.read(into));
  return reader.finish();
}

Result<MappedCopy> MappedCopy::make(const Folder& folder, const SourceFile& file, const std::string& spool_directory) {
  DLFS_TRY_ASSIGN(SourceReader reader, SourceReader::open(folder, file));
  DLFS_TRY_ASSIGN(Spool copy, Spool::create(spool_directory));
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kCopyBytes, file.size_bytes));
  for (std::uint64_t left = file.size_bytes; left > 0;) {
    const std::span<std::byte> part(buffer.data(), std::min<std::uint64_t>(buffer.size(), left));
    DLFS_TRY(reader.read(part));
    DLFS_TRY(copy.append(part));
    left -= part.size();
  }
  DLFS_TRY(reader.finish());
  DLFS_TRY(copy.flush());
  if (file.size_bytes == 0) return MappedCopy({});
  void* data = mmap(nullptr, file.size_bytes, PROT_READ, MAP_PRIVATE, copy.descriptor(), 0);
  if (data == MAP_FAILED) return base::errno_error(errno, "cannot map a temporary file into memory");
  madvise(data, file.size_bytes, MADV_SEQUENTIAL);
  return MappedCopy({static_cast<std::byte*>(data), file.size_bytes});
}

MappedCopy::MappedCopy(MappedCopy&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedCopy::~MappedCopy() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace dlfs::ingest
