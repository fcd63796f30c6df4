#include "block/open_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "base/arena.h"
#include "base/error.h"
#include "base/try.h"

namespace dlfs::block {
namespace {

constexpr std::uint32_t kSectorBytes = 512;
constexpr std::uint32_t kPageBytes = 4096;  // the strictest alignment that volumes are laid out for
constexpr std::uint32_t kPreferredTransferBytes = 256u << 10;
constexpr std::uint32_t kMaxTransferBytes = 4u << 20;
constexpr std::uint32_t kMaxQueueDepth = 4096;

struct Alignment {
  std::uint32_t block_bytes = 0;
  std::uint32_t memory_bytes = 0;
  bool usable() const {
    return std::has_single_bit(block_bytes) && std::has_single_bit(memory_bytes) && block_bytes <= kPageBytes &&
           memory_bytes <= kPageBytes;
  }
};

Error open_error(const std::string& path, const OpenOptions& options, int error) {
  Error failure = base::errno_error(error, fmt::format("cannot open {} for {}", base::escape(path),
                                                       options.write || options.create ? "writing" : "reading"));
  switch (error) {
    case ENOENT:
      failure.message += options.create ? "; make its folder first" : "; check the path";
      break;
    case EACCES:
    case EPERM:
      if (!options.write && !options.create) failure.code = Code::kIo;
      failure.message += "; ask for the permission, or run as a user who has it";
      break;
    case EROFS:
      failure.message += "; choose a destination on a writable file system";
      break;
    default:
      break;
  }
  return failure;
}

Result<void> check_kind(const std::string& path, const struct stat& status) {
  if (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode)) return {};
  const char* kind = S_ISDIR(status.st_mode)    ? "a folder"
                     : S_ISCHR(status.st_mode)  ? "a character device"
                     : S_ISFIFO(status.st_mode) ? "a pipe"
                                                : "a socket";
  return base::make_error(Code::kInvalidArgument, "{} is {}; name a regular file or a block device", base::escape(path),
                          kind);
}

// What the kernel says that O_DIRECT needs: nothing when it does not say, zeros when O_DIRECT is refused.
std::optional<Alignment> stated_alignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx extended = {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &extended) == 0 && (extended.stx_mask & STATX_DIOALIGN) != 0) {
    return Alignment{.block_bytes = extended.stx_dio_offset_align, .memory_bytes = extended.stx_dio_mem_align};
  }
#endif
  return std::nullopt;
}

// Reads one block with O_DIRECT; some file systems take the flag at open and refuse the transfer. 0 or an errno.
int try_direct_read(int fd, const Alignment& alignment) {
  auto memory = base::Arena::create(kPageBytes, false);
  if (!memory.ok()) return ENOMEM;
  ssize_t result = 0;
  do {
    result = pread(fd, memory->bytes().data(), alignment.block_bytes, 0);
  } while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

int clear_direct(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags < 0 || fcntl(fd, F_SETFL, flags & ~O_DIRECT) < 0 ? errno : 0;
}

// Decides whether `file.fd`, opened with O_DIRECT, can be used so, and with which alignment.
Result<void> settle_direct(OpenedFile& file, std::uint32_t sector_bytes) {
  const std::optional<Alignment> stated = stated_alignment(file.fd.get());
  const std::uint32_t guess = file.regular ? kPageBytes : sector_bytes;
  Alignment alignment = stated.value_or(Alignment{.block_bytes = guess, .memory_bytes = kPageBytes});
  alignment.block_bytes = std::max(alignment.block_bytes, sector_bytes);
  std::string reason;
  if (!alignment.usable()) {
    reason = stated->block_bytes == 0 ? "the file system does not support it"
                                      : fmt::format("it needs blocks of {} bytes, and volumes are laid out in {}",
                                                    stated->block_bytes, kPageBytes);
  } else if (const int error = try_direct_read(file.fd.get(), alignment); error == EINVAL || error == EOPNOTSUPP) {
    reason = fmt::format("the first read with it failed ({})", std::strerror(error));
  }
  if (reason.empty()) {  // other errors of the trial are the device's: the reads that matter will report them
    file.direct = true;
    file.geometry.block_bytes = alignment.block_bytes;
    file.geometry.memory_alignment_bytes = alignment.memory_bytes;
    return {};
  }
  if (const int error = clear_direct(file.fd.get()); error != 0) {
    return base::errno_error(error, fmt::format("cannot turn O_DIRECT off for {}", base::escape(file.url)));
  }
  file.notes = buffered_note(file.url, reason);
  return {};
}

Result<void> learn_block_device(OpenedFile& file, const OpenOptions& options, std::uint32_t& sector_bytes) {
  std::uint64_t capacity = 0;
  int sector = 0;
  int read_only = 0;
  const int fd = file.fd.get();
  if (ioctl(fd, BLKGETSIZE64, &capacity) != 0 || ioctl(fd, BLKSSZGET, &sector) != 0 ||
      ioctl(fd, BLKROGET, &read_only) != 0) {
    return base::errno_error(errno, fmt::format("cannot ask {} for its size", base::escape(file.url)));
  }
  if (read_only != 0 && options.write) {
    return base::make_error(Code::kReadOnly, "{} is a read-only device; open it for reading, or choose another",
                            base::escape(file.url));
  }
  file.geometry.capacity_bytes = capacity;
  if (sector > 0 && std::has_single_bit(static_cast<unsigned>(sector)))
    sector_bytes = static_cast<std::uint32_t>(sector);
  return {};
}

// Opens with O_DIRECT if asked; `direct_error` is the errno when only the flag was refused.
int open_descriptor(const std::string& path, const OpenOptions& options, int& direct_error) {
  const bool write = options.write || options.create;
  const int flags = O_CLOEXEC | (write ? O_RDWR : O_RDONLY) | (options.create ? O_CREAT : 0);
  constexpr mode_t kMode = 0666;  // less the umask
  int fd = -1;
  if (options.direct) {
    do {
      fd = open(path.c_str(), flags | O_DIRECT, kMode);
    } while (fd < 0 && errno == EINTR);
    if (fd >= 0 || errno != EINVAL) return fd;
    direct_error = errno;
  }
  do {
    fd = open(path.c_str(), flags, kMode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

std::string absolute_url(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr), &std::free);
  return "file:" + (resolved ? std::string(resolved.get()) : path);
}

}  // namespace

std::string buffered_note(const std::string& url, std::string_view reason) {
  return fmt::format("O_DIRECT is not used for {}: {}; reading and writing through the page cache", base::escape(url),
                     reason);
}

Result<OpenedFile> open_file(const std::string& path, const OpenOptions& options) {
  struct stat status = {};
  // Looked at first because opening a pipe or a tape blocks or has effects.
  if (stat(path.c_str(), &status) == 0) {
    DLFS_TRY(check_kind(path, status));
  } else if (errno != ENOENT || !options.create) {
    return open_error(path, options, errno);
  }
  OpenedFile file;
  int direct_error = 0;
  file.fd = Descriptor(open_descriptor(path, options, direct_error));
  if (!file.fd.valid()) return open_error(path, options, errno);
  if (fstat(file.fd.get(), &status) != 0) return open_error(path, options, errno);
  DLFS_TRY(check_kind(path, status));

  const bool write = options.write || options.create;
  file.url = absolute_url(path);
  file.regular = S_ISREG(status.st_mode);
  file.geometry = {.capacity_bytes = static_cast<std::uint64_t>(status.st_size),
                   .block_bytes = kSectorBytes,
                   .memory_alignment_bytes = 1,
                   .preferred_transfer_bytes = kPreferredTransferBytes,
                   .max_transfer_bytes = kMaxTransferBytes,
                   .max_in_flight = std::clamp(options.queue_depth, 1u, kMaxQueueDepth),
                   .read_only = !write,
                   .growable = write && file.regular};
  std::uint32_t sector_bytes = kSectorBytes;
  if (!file.regular) DLFS_TRY(learn_block_device(file, options, sector_bytes));
  file.geometry.block_bytes = std::min(sector_bytes, kPageBytes);
  if (direct_error != 0) {
    file.notes = buffered_note(file.url, fmt::format("the file system refused it ({})", std::strerror(direct_error)));
  } else if (options.direct) {
    DLFS_TRY(settle_direct(file, sector_bytes));
  }
  return file;
}

}  // namespace dlfs::block
