#include "volume/destination.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "base/arena.h"
#include "base/error.h"
#include "base/try.h"
#include "block/url.h"
#include "volume/superblocks.h"

namespace dlfs::volume {
namespace {

std::string quoted(std::string_view path) { return "'" + base::escape(path) + "'"; }

// What a superblock pair says about the data under it, or nothing when there is no volume.
std::string volume_description(const SuperblockPair& pair) {
  const layout::Superblock* superblock = pair.chosen();
  if (superblock == nullptr) {
    for (const auto& slot : pair.slots) {
      if (slot.error && slot.error->code == Code::kUnsupportedVersion) return "a DLFS volume of a newer format";
      if (slot.error && slot.error->code == Code::kCorrupt) return "a damaged DLFS volume";
    }
    return {};
  }
  if (superblock->state != layout::State::kCommitted) return "an incomplete DLFS volume (a pack that was not finished)";
  return fmt::format("a DLFS volume of {} samples", superblock->sample_count);
}

Error exists_error(const std::string& name, const std::string& what) {
  return base::make_error(Code::kExists, "{} holds {}; it is overwritten only with --force (in programs: overwrite)",
                          name, what);
}

// The first bytes of a device, as many as it has of kHeaderBytes in whole blocks.
Result<std::vector<std::byte>> read_beginning(block::BlockDevice& device) {
  const std::uint64_t unit = request_unit(device.geometry());
  const std::uint64_t length = round_down(std::min(kHeaderBytes, device.geometry().capacity_bytes), unit);
  DLFS_TRY_ASSIGN(const base::Arena buffer, read_range(device, 0, length, block::kDefaultTimeout));
  return std::vector<std::byte>(buffer.bytes().begin(), buffer.bytes().begin() + static_cast<std::ptrdiff_t>(length));
}

// Says what a file holds, for the refusal to overwrite it.
std::string file_description(const std::string& path, std::uint64_t size, const OpenDevice& open_device) {
  std::string foreign = fmt::format("{} bytes of foreign data", size);
  auto device = open_device("file:" + path, {});
  if (!device.ok()) return foreign;
  const auto pair = read_superblocks(**device, block::kDefaultTimeout);
  if (!pair.ok()) return foreign;
  std::string volume = volume_description(*pair);
  if (!volume.empty()) return volume;
  const auto beginning = read_beginning(**device);
  if (!beginning.ok() || beginning->empty()) return foreign;
  return fmt::format("{} ({})", foreign, foreign_description(*beginning));
}

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

}  // namespace

std::string parent_directory(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::unique_ptr<Destination>> Destination::open(std::string_view url, bool overwrite,
                                                       const OpenDevice& open_device) {
  std::unique_ptr<Destination> destination(new Destination);
  destination->name_ = quoted(url);
  DLFS_TRY_ASSIGN(const block::Url parsed, block::parse_url(url));
  struct stat status{};
  const bool file = parsed.scheme == block::Scheme::kFile;
  const bool node = file && stat(parsed.path.c_str(), &status) == 0 && S_ISBLK(status.st_mode);
  if (file && !node) {
    DLFS_TRY(destination->open_file(parsed.path, overwrite, open_device));
  } else {
    DLFS_TRY(destination->open_in_place(url, node ? parsed.path : std::string(), overwrite, open_device));
  }
  return destination;
}

Destination::~Destination() { abandon(); }

Result<void> Destination::open_file(const std::string& path, bool overwrite, const OpenDevice& open_device) {
  struct stat status{};
  path_ = path;
  if (lstat(path.c_str(), &status) == 0 &&
      S_ISLNK(status.st_mode)) {  // the volume goes where the link points; the link stays
    char* resolved = realpath(path.c_str(), nullptr);
    if (resolved == nullptr) return base::errno_error(errno, fmt::format("cannot follow the symbolic link {}", name_));
    path_ = resolved;
    std::free(resolved);
  }
  replace_ = stat(path_.c_str(), &status) == 0;
  if (!replace_ && errno != ENOENT) return base::errno_error(errno, fmt::format("cannot look at {}", name_));
  if (replace_ && S_ISDIR(status.st_mode)) {
    return base::make_error(Code::kInvalidArgument,
                            "{} is a directory; give the name of the volume file to write, for example {}", name_,
                            quoted(path + (path.ends_with('/') ? "" : "/") + "train.dlfs"));
  }
  if (replace_ && !S_ISREG(status.st_mode)) {
    return base::make_error(Code::kInvalidArgument,
                            "{} is neither a regular file nor a block device; choose another destination", name_);
  }
  if (replace_ && status.st_size > 0 && !overwrite) {
    return exists_error(name_, file_description(path_, static_cast<std::uint64_t>(status.st_size), open_device));
  }
  directory_ = parent_directory(path_);
  struct stat directory{};
  if (stat(directory_.c_str(), &directory) != 0 || !S_ISDIR(directory.st_mode) || path_.ends_with('/')) {
    return base::make_error(Code::kNotFound, "there is no directory {} to write {} in; make it first",
                            quoted(directory_), name_);
  }
  partial_ = path_ + std::string(kPartialSuffix);
  if (auto locked = lock_partial(); !locked.ok()) {
    partial_.clear();  // not ours to remove
    return locked;
  }
  if (replace_) static_cast<void>(fchmod(lock_.get(), status.st_mode & 0777));
  DLFS_TRY_ASSIGN(device_,
                  open_device("file:" + partial_, {.write = true, .create = false, .direct = true, .queue_depth = 64}));
  return {};
}

Result<void> Destination::lock_partial() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    FileHandle file(::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!file) {
      const int reason = errno;
      return base::errno_error(
          reason, fmt::format("cannot write {}, which becomes {} when it is complete", quoted(partial_), name_));
    }
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return base::errno_error(errno, fmt::format("cannot lock {}", quoted(partial_)));
      return base::make_error(Code::kBusy,
                              "another process is packing into {} (it holds the lock on {}); wait for it or stop it",
                              name_, quoted(partial_));
    }
    struct stat locked{}, named{};
    // Another packer may have renamed or removed the file between open and lock: then the lock is on a file that is not
    // ours.
    if (fstat(file.get(), &locked) != 0 || lstat(partial_.c_str(), &named) != 0 || !same_file(locked, named)) continue;
    if (!S_ISREG(locked.st_mode))
      return base::make_error(Code::kInvalidArgument, "{} is not a regular file; remove it", quoted(partial_));
    if (ftruncate(file.get(), 0) != 0)
      return base::errno_error(errno, fmt::format("cannot empty {}", quoted(partial_)));
    lock_ = std::move(file);
    return {};
  }
  return base::make_error(Code::kBusy, "other processes keep packing into {}; wait for them or stop them", name_);
}

Result<void> Destination::open_in_place(std::string_view url, const std::string& path, bool overwrite,
                                        const OpenDevice& open_device) {
  if (!path.empty()) {
    lock_ = FileHandle(
        ::open(path.c_str(), O_RDWR | O_EXCL | O_CLOEXEC));  // O_EXCL: fails while a file system on it is mounted
    if (!lock_ && errno == EBUSY) {
      return base::make_error(
          Code::kBusy,
          "{} is in use: it is mounted, part of another device, or another process packs into it; unmount "
          "it, or wait",
          name_);
    }
    if (!lock_) return base::errno_error(errno, fmt::format("cannot open {} for writing", name_));
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      return base::make_error(Code::kBusy, "another process is packing into {}; wait for it or stop it", name_);
    }
  }
  DLFS_TRY_ASSIGN(device_, open_device(url, {.write = true, .create = false, .direct = true, .queue_depth = 64}));
  const block::Geometry& geometry = device_->geometry();
  if (geometry.read_only)
    return base::make_error(Code::kReadOnly, "{} is read-only; choose another destination", name_);
  if (request_unit(geometry) > layout::kSectorBytes) {
    return base::make_error(Code::kUnsupported, "{} has blocks of {} bytes; volumes need blocks of at most {}", name_,
                            request_unit(geometry), layout::kSectorBytes);
  }
  if (geometry.capacity_bytes < kHeaderBytes && !geometry.growable) {
    return base::make_error(Code::kNoSpace, "{} is too small for a volume: {} bytes are needed at least, {} are there",
                            name_, kHeaderBytes, geometry.capacity_bytes);
  }
  DLFS_TRY_ASSIGN(const std::vector<std::byte> beginning, read_beginning(*device_));
  DLFS_TRY_ASSIGN(const SuperblockPair pair, read_superblocks(*device_, block::kDefaultTimeout));
  if (const layout::Superblock* superblock = pair.chosen()) previous_generation_ = superblock->generation;
  const bool zero = std::ranges::all_of(beginning, [](std::byte b) { return b == std::byte{0}; });
  if (!zero && !overwrite) {
    const std::string volume = volume_description(pair);
    return exists_error(name_,
                        volume.empty() ? fmt::format("foreign data ({})", foreign_description(beginning)) : volume);
  }
  return {};
}

Result<void> Destination::set_length(std::uint64_t length_bytes) {
  if (!in_place() && ftruncate(lock_.get(), static_cast<off_t>(length_bytes)) != 0) {
    return base::errno_error(errno, fmt::format("cannot set the length of {}", quoted(partial_)));
  }
  return {};
}

Result<void> Destination::publish() {
  if (in_place()) {
    published_ = true;
    return {};
  }
  device_.reset();
  int renamed = -1;
  if (!replace_) {  // nobody may lose a file that was made meanwhile
    renamed = renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
    if (renamed != 0 && errno == EEXIST) {
      return base::make_error(
          Code::kExists, "{} was made by somebody else during the pack; it is overwritten only with --force", name_);
    }
  }
  if (renamed != 0 && rename(partial_.c_str(), path_.c_str()) != 0) {
    return base::errno_error(errno, fmt::format("cannot rename {} to {}", quoted(partial_), name_));
  }
  published_ = true;
  return sync_directory();
}

Result<void> Destination::sync_directory() const {
  const FileHandle directory(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory)
    return base::errno_error(errno, fmt::format("cannot open the directory of {} to make its name durable", name_));
  if (fsync(directory.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return base::errno_error(errno, fmt::format("cannot make the name of {} durable", name_));
  }
  return {};
}

void Destination::abandon() noexcept {
  device_.reset();
  if (!published_ && !partial_.empty() && lock_ && !forked()) {
    // The kernel lets go of a closed ring's files only a little later: the space is given back now.
    static_cast<void>(!ftruncate(lock_.get(), 0));
    unlink(partial_.c_str());
  }
  partial_.clear();
  lock_ = FileHandle();
}

}  // namespace dlfs::volume
