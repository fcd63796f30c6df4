// A data set that every api test knows byte by byte, packed into files or memory devices of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "block/device.h"
#include "dlfs/dlfs.hpp"
#include "support/temporary_directory.h"

namespace dlfs::api_test {

// Makes ASSERT-like use of Results short: the value, or the end of the test program with the sentence.
template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return std::move(result).value();
}
inline void must(const Result<void>& result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
}

using testing_support::TemporaryDirectory;

// Samples of (image: bytes, label: int64, caption: text). Every 11th image is empty; kLargeId's is larger than a chunk.
inline constexpr const char* kSchema = "image: bytes, label: int64, caption: text";
inline constexpr std::uint32_t kChunkBytes = 64u << 10;
inline constexpr std::uint32_t kLargeId = 7;
inline constexpr std::size_t kLargeBytes = 3 * kChunkBytes + 123;

std::string name_of(std::uint32_t id);  // with spaces, and bytes that are not UTF-8
std::vector<std::byte> image_of(std::uint32_t id);
std::int64_t label_of(std::uint32_t id);
std::string caption_of(std::uint32_t id);
std::vector<std::byte> bytes_of(Bytes view);

Result<void> append_sample(Writer& writer, std::uint32_t id);
WriterOptions small_chunks();
void pack(const std::string& url, std::uint32_t samples, const WriterOptions& options = small_chunks());

// Whether sample i of the batch is what append_sample() wrote under its id.
::testing::AssertionResult sample_is_right(const Batch& batch, std::size_t i);

// A packed volume and what it lives in: a file, or a memory device that is held open.
class PackedVolume {
 public:
  enum class Place { kFile, kMemory };
  explicit PackedVolume(std::uint32_t samples, Place place = Place::kFile);
  const std::string& url() const { return url_; }
  std::string path() const { return directory_ / "v.dlfs"; }  // Place::kFile
  void flip_byte(std::uint64_t offset) const;                 // Place::kFile
  Volume mount() const { return must(Volume::mount(url_)); }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<block::BlockDevice> memory_;
  std::string url_;
};

}  // namespace dlfs::api_test
