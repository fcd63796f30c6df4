// Recreates files below a folder by untrusted names: nothing is ever made outside it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "dlfs/result.h"

namespace dlfs::tools {

// A new file that is being written. **Thread**: one.
class NewFile {
 public:
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> close();  // some file systems report a full disk only here

 private:
  friend class ExportTree;
  NewFile(int fd, std::string shown) : fd_(fd), shown_(std::move(shown)) {}
  int fd_;
  std::string shown_;
};

// The folder and the last subfolder that was used in it. **Thread**: one.
class ExportTree {
 public:
  // Makes the folder if need be. `overwrite`: replace files that exist.
  static Result<ExportTree> open(const std::string& path, bool overwrite);
  ExportTree(ExportTree&& other) noexcept;
  ExportTree& operator=(ExportTree&&) = delete;
  ~ExportTree();

  // `name`: levels separated by '/'. Links in the way are not followed.
  // **Errors**: kInvalidArgument (a name that would leave the folder, or is none), kExists (file, or a folder of that
  // name), kIo, kNoSpace.
  Result<NewFile> create(std::string_view name);

 private:
  ExportTree(std::string path, int root, bool overwrite) : path_(std::move(path)), root_(root), overwrite_(overwrite) {}
  Result<void> enter(std::string_view folder);

  std::string path_;
  int root_;
  bool overwrite_;
  std::string current_;  // the folder that current_fd_ is, relative to the root
  int current_fd_ = -1;
};

// Why a name must not become a path below a folder; null when it may.
const char* unsafe_name(std::string_view name) noexcept;

}  // namespace dlfs::tools
