// A folder of files as a source of samples: lists it once, in a fixed order, in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ingest/catalog.h"

namespace dlfs::ingest {

// Something in the folder that will not be packed.
struct LeftOut {
  std::string name;  // relative, raw bytes
  std::string why;   // "is a socket", "cannot be read: Permission denied"
  bool failed =
      false;  // true: could have been a sample (only with skip_errors); false: never is one (sockets, links to folders)
};

struct ScanOptions {
  bool labels = true;           // label = index of the file's first level among the sorted folders of the top level
  bool skip_errors = false;     // leave out what cannot be read instead of stopping
  std::string spool_directory;  // of the temporary list of files; empty: TMPDIR
  struct Identity {
    std::uint64_t device, inode;
  };
  std::optional<Identity> exclude;  // a file that is not a sample: the volume being replaced
  std::size_t sort_memory_bytes = 32u << 20;
  std::function<void(const LeftOut&)> left_out;
  std::function<bool(std::uint64_t files)> progress;  // called now and then; false stops the scan with kInterrupted
};

// A scanned folder. Regular files and links to them are samples; links to folders are not followed, so there are no
// cycles. The order of files is the bytewise order of their names, whatever the file system says. **Thread**:
// immutable.
class Folder {
 public:
  // **Blocks**. **Errors**: kNotFound, kInvalidArgument (not a folder; a file outside any class folder although labels
  // are asked for; no file at all), kSourceChanged (something cannot be read: names it), kInterrupted, kNoSpace and kIo
  // (temporary list).
  static Result<Folder> scan(const std::string& path, const ScanOptions& options);
  Folder(Folder&&) noexcept;
  Folder& operator=(Folder&&) noexcept;
  ~Folder();

  const std::string& path() const noexcept { return path_; }
  int descriptor() const noexcept { return root_fd_; }  // of the folder itself, for openat()
  const Catalog& files() const noexcept { return *files_; }
  const std::vector<std::string>& classes() const noexcept { return classes_; }  // sorted; empty without labels

 private:
  Folder(std::string path, int root_fd) : path_(std::move(path)), root_fd_(root_fd) {}
  friend class Walk;

  std::string path_;
  int root_fd_ = -1;
  std::unique_ptr<Catalog> files_;
  std::vector<std::string> classes_;
};

}  // namespace dlfs::ingest
