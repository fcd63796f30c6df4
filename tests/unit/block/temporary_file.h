// A file in the temporary folder, removed at the end of its scope.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

namespace dlfs::block {

class TemporaryFile {
 public:
  explicit TemporaryFile(std::uint64_t size_bytes) : path_(fresh_path()) {
    const int fd = ::open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    EXPECT_GE(fd, 0) << path_;
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size_bytes)), 0);
    ::close(fd);
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::string path() const { return path_.string(); }

  // A path at which nothing exists.
  static std::filesystem::path fresh_path() {
    static std::atomic<int> serial{0};
    return std::filesystem::temp_directory_path() /
           ("block-" + std::to_string(getpid()) + "-" + std::to_string(serial++));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace dlfs::block
