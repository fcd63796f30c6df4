// The list of files that a pack will read: sorted by name, on disk, with less than a byte of memory a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ingest/spool.h"

namespace dlfs::ingest {

// One file of a source as the scan saw it.
struct SourceFile {
  std::string name;  // relative to the source, levels separated by '/'; any bytes but NUL
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;    // since 1970, as stat() says
  std::uint32_t label = kNoLabel;  // index of the class, or kNoLabel

  static constexpr std::uint32_t kNoLabel = 0xFFFFFFFFu;
};

// Files sorted bytewise by name, numbered 0..count()-1. **Thread**: at() from any.
class Catalog {
 public:
  std::uint64_t count() const noexcept { return count_; }
  std::uint64_t total_bytes() const noexcept { return total_bytes_; }
  std::uint64_t memory_bytes() const noexcept { return offsets_.capacity() * sizeof(std::uint64_t); }
  // Precondition: index < count(). **Errors**: those of the temporary file that holds the list.
  Result<SourceFile> at(std::uint64_t index) const;

 private:
  friend class CatalogBuilder;
  explicit Catalog(Spool spool) : spool_(std::move(spool)) {}

  Spool spool_;
  std::vector<std::uint64_t> offsets_;  // of every kStride-th entry
  std::uint64_t count_ = 0, total_bytes_ = 0;
};

// Takes files in any order and sorts them in runs of bounded size that are merged at the end.
class CatalogBuilder {
 public:
  // `memory_bytes`: of the sort buffer, at least 64 KiB.
  static Result<CatalogBuilder> create(const std::string& spool_directory, std::size_t memory_bytes);
  Result<void> add(std::string_view name, std::uint64_t size_bytes, std::int64_t modified_ns, std::uint32_t label);
  std::uint64_t count() const noexcept { return count_; }
  // A name that was added twice (a folder that changes while it is listed) is kept once.
  Result<Catalog> finish() &&;

 private:
  struct Run {
    std::uint64_t begin, end;
  };
  CatalogBuilder(Spool runs, std::string directory, std::size_t memory_bytes)
      : spool_(std::move(runs)), directory_(std::move(directory)), memory_bytes_(memory_bytes) {}
  Result<void> spill();

  Spool spool_;
  std::string directory_;
  std::size_t memory_bytes_;
  std::vector<std::byte> buffer_;         // encoded entries
  std::vector<std::uint32_t> positions_;  // where each begins
  std::vector<Run> runs_;
  std::uint64_t count_ = 0;
};

}  // namespace dlfs::ingest
