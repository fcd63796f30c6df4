#include "export_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/try.h"

namespace dlfs::tools {

NewFile::NewFile(NewFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), shown_(std::move(other.shown_)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return base::errno_error(errno, fmt::format("cannot write '{}'", shown_));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> NewFile::close() {
  if (::close(std::exchange(fd_, -1)) != 0) return base::errno_error(errno, fmt::format("cannot write '{}'", shown_));
  return {};
}

const char* unsafe_name(std::string_view name) noexcept {
  if (name.empty()) return "it is empty";
  if (name.front() == '/') return "it is absolute";
  if (name.find('\0') != std::string_view::npos) return "it holds a NUL byte";
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view level = name.substr(begin, end - begin);
    if (level == "..") return "it would leave the folder";
    if (level.empty() || level == ".") return "a level of it is empty or '.'";
    begin = end + 1;
  }
  return nullptr;
}

Result<ExportTree> ExportTree::open(const std::string& path, bool overwrite) {
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
    return base::errno_error(errno, fmt::format("cannot make the folder '{}'", base::escape(path)));
  }
  const int root = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return base::errno_error(errno, fmt::format("cannot open the folder '{}'", base::escape(path)));
  return ExportTree(path, root, overwrite);
}

ExportTree::ExportTree(ExportTree&& other) noexcept
    : path_(std::move(other.path_)),
      root_(std::exchange(other.root_, -1)),
      overwrite_(other.overwrite_),
      current_(std::move(other.current_)),
      current_fd_(std::exchange(other.current_fd_, -1)) {}

ExportTree::~ExportTree() {
  if (current_fd_ >= 0) ::close(current_fd_);
  if (root_ >= 0) ::close(root_);
}

// Walks level by level with O_NOFOLLOW: a link planted in the folder cannot lead out of it.
Result<void> ExportTree::enter(std::string_view folder) {
  if (current_fd_ >= 0 && folder == current_) return {};
  if (current_fd_ >= 0) ::close(std::exchange(current_fd_, -1));
  int at = dup(root_);
  if (at < 0) return base::errno_error(errno, "cannot duplicate a file descriptor");
  for (std::string_view left = folder; !left.empty();) {
    const std::string level(left.substr(0, left.find('/')));
    left.remove_prefix(std::min(left.size(), level.size() + 1));
    int next = -1;
    if (mkdirat(at, level.c_str(), 0777) == 0 || errno == EEXIST) {
      next = openat(at, level.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    const int failure = errno;
    ::close(at);
    if (next < 0) {
      const std::string shown = base::escape(folder);
      if (failure == ENOTDIR || failure == ELOOP) {
        return base::make_error(Code::kExists,
                                "cannot make the folder '{}' in '{}': a file or link of the name '{}' is in the way",
                                shown, base::escape(path_), base::escape(level));
      }
      return base::errno_error(failure, fmt::format("cannot make the folder '{}' in '{}'", shown, base::escape(path_)));
    }
    at = next;
  }
  current_fd_ = at;
  current_ = folder;
  return {};
}

Result<NewFile> ExportTree::create(std::string_view name) {
  const std::string shown = base::escape(name);
  if (const char* why = unsafe_name(name)) {
    return base::make_error(Code::kInvalidArgument, "'{}' cannot become a file below '{}': {}", shown,
                            base::escape(path_), why);
  }
  const std::size_t slash = name.rfind('/');
  DLFS_TRY(enter(slash == std::string_view::npos ? std::string_view() : name.substr(0, slash)));
  const std::string last(slash == std::string_view::npos ? name : name.substr(slash + 1));
  if (overwrite_) unlinkat(current_fd_, last.c_str(), 0);  // a link is replaced, not written through
  const int fd = openat(current_fd_, last.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd >= 0) return NewFile(fd, shown);
  if (errno == EEXIST) {
    struct stat status{};
    const bool folder =
        fstatat(current_fd_, last.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
    return base::make_error(
        Code::kExists, "'{}' exists in '{}'{}", shown, base::escape(path_),
        folder ? " as a folder: a file of that name cannot be made" : ": use --force to overwrite files");
  }
  return base::errno_error(errno, fmt::format("cannot make '{}' in '{}'", shown, base::escape(path_)));
}

}  // namespace dlfs::tools
