#include "ingest/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/try.h"

namespace dlfs::ingest {
namespace {

constexpr std::size_t kBufferBytes = 256u << 10;

int open_unnamed(const std::string& directory) {
  const int fd = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)) return fd;
  std::string path = directory + "/.dlfs-spool-XXXXXX";  // file systems without O_TMPFILE
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

}  // namespace

Result<Spool> Spool::create(const std::string& directory) {
  std::vector<std::string> candidates;
  if (!directory.empty()) candidates.push_back(directory);
  if (const char* temporary = std::getenv("TMPDIR"); temporary != nullptr && *temporary != '\0') {
    candidates.emplace_back(temporary);
  }
  candidates.emplace_back("/var/tmp");
  candidates.emplace_back("/tmp");
  int first_errno = 0;
  for (const std::string& candidate : candidates) {
    const int fd = open_unnamed(candidate);
    if (fd >= 0) return Spool(fd, candidate);
    if (first_errno == 0) first_errno = errno;
  }
  return base::errno_error(first_errno,
                           fmt::format("cannot make a temporary file in '{}' (set TMPDIR to a writable folder)",
                                       base::escape(candidates.front())));
}

Spool::Spool(Spool&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      directory_(std::move(other.directory_)),
      written_(std::exchange(other.written_, 0)),
      buffer_(std::move(other.buffer_)) {}

Spool& Spool::operator=(Spool&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(directory_, other.directory_);
  std::swap(written_, other.written_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

Spool::~Spool() {
  if (fd_ >= 0) close(fd_);
}

Result<void> Spool::write_out(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(written_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return base::errno_error(errno, fmt::format("cannot write a temporary file in '{}'", base::escape(directory_)));
    }
    written_ += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> Spool::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) DLFS_TRY(flush());
  if (bytes.size() >= kBufferBytes) return write_out(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Result<void> Spool::flush() {
  DLFS_TRY(write_out(buffer_));
  buffer_.clear();
  return {};
}

Result<std::size_t> Spool::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = pread(fd_, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return base::errno_error(errno, fmt::format("cannot read a temporary file in '{}'", base::escape(directory_)));
    }
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

}  // namespace dlfs::ingest
