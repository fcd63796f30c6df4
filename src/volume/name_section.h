// The names of a volume on their way to the media, and the search for two samples of one name.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "layout/name_block.h"
#include "volume/name_spool.h"

namespace dlfs::volume {

// Makes name blocks of names that come in ascending order of id. **Memory**: 8 bytes a sample for take_hashes().
// **Thread**: one.
class NameSectionWriter {
 public:
  using NewBlock = std::function<void(SampleId first)>;
  using Write = std::function<Result<void>(std::span<const std::byte> block)>;
  NameSectionWriter(std::uint32_t salt, std::uint64_t sample_count, NewBlock new_block, Write write);

  // **Errors**: kInvalidArgument when the ids are not 0, 1, 2, ...; those of the write.
  Result<void> add(SampleId id, std::string_view name);
  Result<void> finish();
  std::vector<std::uint64_t> take_hashes() && { return std::move(hashes_); }

 private:
  Result<void> write_block();

  std::uint32_t salt_;
  layout::NameBlockBuilder builder_;
  NewBlock new_block_;
  Write write_;
  std::vector<std::uint64_t> hashes_;
  std::vector<std::byte> block_;
};

// kDuplicateName, naming both, when two samples have one name. `hashes`: of all names, in any order.
Result<void> refuse_duplicates(NameSpool& names, std::vector<std::uint64_t> hashes, std::uint32_t salt);

}  // namespace dlfs::volume
