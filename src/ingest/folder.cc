#include "ingest/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/try.h"

namespace dlfs::ingest {
namespace {

constexpr std::size_t kMaxNameBytes = 4095;
constexpr std::uint64_t kMaxSamples = std::uint64_t{1} << 32;

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};
using Dir = std::unique_ptr<DIR, CloseDir>;

// One descriptor a level of depth is needed at most; a deep tree should not fail for a small soft limit.
void allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= 4096 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &limit);
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "is a link to a folder";
  if (S_ISFIFO(mode)) return "is a named pipe";
  if (S_ISSOCK(mode)) return "is a socket";
  if (S_ISBLK(mode) || S_ISCHR(mode)) return "is a device";
  return "is not a regular file";
}

bool is_dots(const char* name) { return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0; }

// A directory stream over `name` below `parent`, links not followed; null with errno.
Dir open_dir(int parent, const char* name) {
  const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return nullptr;
  Dir dir(fdopendir(fd));
  if (!dir) close(fd);
  return dir;
}

bool is_folder(int parent, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct stat status{};
  return fstatat(parent, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

// A regular file, or a link to one: what would be a sample.
bool is_sample(int parent, const dirent& entry) {
  if (entry.d_type == DT_REG) return true;
  if (entry.d_type != DT_UNKNOWN && entry.d_type != DT_LNK) return false;
  struct stat status{};
  return fstatat(parent, entry.d_name, &status, 0) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

// The scan in progress: a stack of open folders and the list that it fills.
class Walk {
 public:
  Walk(const ScanOptions& options, Folder& folder, CatalogBuilder& builder)
      : options_(options), folder_(folder), builder_(builder) {}

  Result<void> list_classes();
  Result<void> run();

 private:
  struct Level {
    Dir dir;
    std::size_t prefix_bytes;  // of path_, with the '/' behind the folder's name
    std::uint32_t label;
  };
  bool excluded(const struct stat& status) const;
  std::uint32_t label_of(const char* name) const;
  Result<void> visit(const dirent& entry);
  Result<void> enter(const char* name);
  Result<void> consider(const char* name);
  Result<void> failed(std::string_view what, int errno_value);
  void leave_out(const char* why);
  Error stray_file(const std::string& name) const;

  const ScanOptions& options_;
  Folder& folder_;
  CatalogBuilder& builder_;
  std::vector<Level> levels_;
  std::string path_;  // relative name of what is being looked at
  std::uint64_t seen_ = 0;
};

Error Walk::stray_file(const std::string& name) const {
  return base::make_error(
      Code::kInvalidArgument,
      "'{}' lies outside any class folder of '{}': the label is the first folder level. Use --no-label to "
      "pack without labels, or move the file into a class folder",
      base::escape(name), base::escape(folder_.path()));
}

// The classes must be known before the first label is given, so the top level is listed twice.
Result<void> Walk::list_classes() {
  const Dir dir = open_dir(folder_.descriptor(), ".");
  if (!dir) return base::errno_error(errno, fmt::format("cannot list the folder '{}'", base::escape(folder_.path())));
  std::optional<std::string> stray;
  errno = 0;
  while (const dirent* entry = readdir(dir.get())) {
    if (!is_dots(entry->d_name)) {
      if (is_folder(dirfd(dir.get()), *entry)) {
        folder_.classes_.emplace_back(entry->d_name);
      } else if ((!stray || *stray > entry->d_name) && is_sample(dirfd(dir.get()), *entry)) {
        struct stat status{};
        if (fstatat(dirfd(dir.get()), entry->d_name, &status, 0) != 0 || !excluded(status)) stray = entry->d_name;
      }
    }
    errno = 0;
  }
  if (errno != 0)
    return base::errno_error(errno, fmt::format("cannot list the folder '{}'", base::escape(folder_.path())));
  if (stray) return stray_file(*stray);
  std::sort(folder_.classes_.begin(), folder_.classes_.end());
  return {};
}

std::uint32_t Walk::label_of(const char* name) const {
  const auto& classes = folder_.classes_;
  const auto at = std::lower_bound(classes.begin(), classes.end(), name);
  if (at == classes.end() || *at != name) return SourceFile::kNoLabel;
  return static_cast<std::uint32_t>(at - classes.begin());
}

bool Walk::excluded(const struct stat& status) const {
  return options_.exclude && options_.exclude->device == status.st_dev && options_.exclude->inode == status.st_ino;
}

void Walk::leave_out(const char* why) {
  if (options_.left_out) options_.left_out({path_, why, false});
}

Result<void> Walk::failed(std::string_view what, int errno_value) {
  if (!options_.skip_errors) {
    Error error = base::errno_error(errno_value, fmt::format("'{}' in '{}' {} (--skip-errors would leave it out)",
                                                             base::escape(path_), base::escape(folder_.path()), what));
    error.code = Code::kSourceChanged;
    return error;
  }
  if (options_.left_out) options_.left_out({path_, fmt::format("{}: {}", what, std::strerror(errno_value)), true});
  return {};
}

Result<void> Walk::enter(const char* name) {
  Dir dir = open_dir(dirfd(levels_.back().dir.get()), name);
  if (!dir) return failed("cannot be listed", errno);
  std::uint32_t label = levels_.back().label;
  if (options_.labels && levels_.size() == 1) {
    label = label_of(name);
    if (label == SourceFile::kNoLabel) return failed("appeared while the folder was being listed", EAGAIN);
  }
  path_ += '/';
  levels_.push_back({std::move(dir), path_.size(), label});
  return {};
}

Result<void> Walk::consider(const char* name) {
  struct stat status{};
  const int parent = dirfd(levels_.back().dir.get());
  DLFS_CHECK(parent >= 0);
  if (fstatat(parent, name, &status, 0) != 0) {
    return failed(errno == ENOENT ? "is a link to nothing, or vanished" : "cannot be read", errno);
  }
  if (!S_ISREG(status.st_mode)) return leave_out(kind_of(status.st_mode)), Result<void>{};
  if (excluded(status)) return leave_out("is the volume that is being replaced"), Result<void>{};
  if (options_.labels && levels_.size() == 1) return stray_file(path_);
  if (builder_.count() == kMaxSamples) {
    return base::make_error(Code::kUnsupported, "'{}' holds more than 2^32 files, the most that a volume can hold",
                            base::escape(folder_.path()));
  }
  const std::int64_t modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return builder_.add(path_, static_cast<std::uint64_t>(status.st_size), modified_ns, levels_.back().label);
}

Result<void> Walk::visit(const dirent& entry) {
  path_ += entry.d_name;
  if (path_.size() > kMaxNameBytes) return failed("has a name longer than 4,095 bytes", ENAMETOOLONG);
  if (is_folder(dirfd(levels_.back().dir.get()), entry)) return enter(entry.d_name);
  return consider(entry.d_name);
}

Result<void> Walk::run() {
  Dir root = open_dir(folder_.descriptor(), ".");
  if (!root) return base::errno_error(errno, fmt::format("cannot list the folder '{}'", base::escape(folder_.path())));
  levels_.push_back({std::move(root), 0, SourceFile::kNoLabel});
  while (!levels_.empty()) {
    path_.resize(levels_.back().prefix_bytes);
    errno = 0;
    const dirent* entry = readdir(levels_.back().dir.get());
    if (entry == nullptr) {
      if (errno != 0) DLFS_TRY(failed("cannot be listed to its end", errno));
      levels_.pop_back();
      continue;
    }
    if (is_dots(entry->d_name)) continue;
    DLFS_TRY(visit(*entry));
    if (++seen_ % 1024 == 0 && options_.progress && !options_.progress(builder_.count())) {
      return base::make_error(Code::kInterrupted, "interrupted while '{}' was being listed",
                              base::escape(folder_.path()));
    }
  }
  return {};
}

Folder::Folder(Folder&& other) noexcept
    : path_(std::move(other.path_)),
      root_fd_(std::exchange(other.root_fd_, -1)),
      files_(std::move(other.files_)),
      classes_(std::move(other.classes_)) {}

Folder& Folder::operator=(Folder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(root_fd_, other.root_fd_);
  std::swap(files_, other.files_);
  std::swap(classes_, other.classes_);
  return *this;
}

Folder::~Folder() {
  if (root_fd_ >= 0) close(root_fd_);
}

Result<Folder> Folder::scan(const std::string& path, const ScanOptions& options) {
  const int root_fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root_fd < 0 && errno == ENOTDIR) {
    return base::make_error(Code::kInvalidArgument, "'{}' is not a folder: a source is a folder of files",
                            base::escape(path));
  }
  if (root_fd < 0) return base::errno_error(errno, fmt::format("cannot open the folder '{}'", base::escape(path)));
  Folder folder(path, root_fd);
  allow_many_descriptors();
  DLFS_TRY_ASSIGN(CatalogBuilder builder, CatalogBuilder::create(options.spool_directory, options.sort_memory_bytes));
  Walk walk(options, folder, builder);
  if (options.labels) DLFS_TRY(walk.list_classes());
  DLFS_TRY(walk.run());
  DLFS_TRY_ASSIGN(Catalog files, std::move(builder).finish());
  if (files.count() == 0) {
    return base::make_error(Code::kInvalidArgument, "'{}' holds no file to pack", base::escape(path));
  }
  folder.files_ = std::make_unique<Catalog>(std::move(files));
  return folder;
}

}  // namespace dlfs::ingest
