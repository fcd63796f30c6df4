// Names on their way from append() to the name blocks: kept in an unlinked temporary file, given back in id order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "dlfs/result.h"

namespace dlfs::volume {

// A file descriptor that closes itself.
class FileHandle {
 public:
  explicit FileHandle(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();
  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

// Names come in any order of id. When they came in ascending order they are read back as they lie; otherwise they are
// dealt once into ranges of ids that fit in memory, and each range is sorted there. **Memory**: fixed buffers below 64
// MiB and 8 bytes for every 4096 samples. **Thread**: one.
class NameSpool {
 public:
  // The file is made in the first directory that takes it. **Errors**: kIo, kNoSpace, kReadOnly: names the last one
  // tried.
  static Result<NameSpool> create(std::vector<std::string> directories);

  Result<void> add(SampleId id, std::string_view name);
  // Calls `visit` for every name in ascending order of id, until it returns false. May be called again. No add()
  // afterwards.
  Result<void> for_each(const std::function<Result<bool>(SampleId, std::string_view)>& visit);

 private:
  struct Bucket {
    std::uint64_t first_group = 0, offset = 0, bytes = 0;
  };
  using Visit = std::function<Result<bool>(SampleId, std::string_view)>;
  Result<FileHandle> make_file();
  Result<void> flush();
  Result<void> deal();
  std::vector<Bucket> plan_buckets() const;
  Result<bool> visit_bucket(const Bucket& bucket, const Visit& visit) const;
  Result<bool> visit_file(const Visit& visit) const;  // in the order of arrival

  std::vector<std::string> directories_;
  FileHandle file_, sorted_;
  std::string directory_;  // where the file lies, for errors
  std::vector<std::byte> buffer_;
  std::uint64_t written_ = 0;  // bytes of the file, without the buffer
  bool ascending_ = true, any_ = false, dealt_ = false;
  std::uint32_t last_ = 0;
  std::vector<std::uint64_t> group_bytes_;  // by id / kGroupIds
  std::vector<Bucket> buckets_;
};

}  // namespace dlfs::volume
