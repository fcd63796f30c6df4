// Name blocks: the names of consecutive ids in 16 KiB, each block verified alone. docs/format.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "layout/format.h"

namespace dlfs::layout {

// Collects names until a block is full. A name of up to kMaxNameBytes always fits into an empty block. **Thread**: one.
class NameBlockBuilder {
 public:
  explicit NameBlockBuilder(std::uint32_t salt) noexcept : salt_(salt) {}
  // Adds the name of the next id (the first id after a finish() is free). False, and nothing added, when the block is
  // full: finish() it. Precondition: name.size() <= kMaxNameBytes; ids ascend by one.
  [[nodiscard]] bool add(SampleId id, std::string_view name);
  bool empty() const noexcept { return ends_.empty(); }
  SampleId first_id() const noexcept { return first_id_; }
  std::size_t count() const noexcept { return ends_.size(); }
  // Writes the block into exactly kNameBlockBytes and starts anew. Precondition: not empty().
  void finish(std::span<std::byte> into) noexcept;

 private:
  std::uint32_t salt_;
  SampleId first_id_;
  std::vector<std::uint16_t> ends_;
  std::string names_;
};

// A view of one verified block; `bytes` must outlive it.
class NameBlock {
 public:
  // **Errors**: kCorrupt (size, magic, sum or an impossible value).
  static Result<NameBlock> decode(std::span<const std::byte> bytes, std::uint32_t salt);
  SampleId first_id() const noexcept { return first_id_; }
  std::size_t count() const noexcept { return count_; }
  std::string_view name(std::size_t i) const noexcept;  // precondition: i < count()

 private:
  NameBlock(std::span<const std::byte> bytes, SampleId first_id, std::size_t count) noexcept
      : bytes_(bytes), first_id_(first_id), count_(count) {}
  std::span<const std::byte> bytes_;
  SampleId first_id_;
  std::size_t count_;
};

}  // namespace dlfs::layout
