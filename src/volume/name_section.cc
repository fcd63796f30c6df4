#include "volume/name_section.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/try.h"
#include "directory/directory.h"

namespace dlfs::volume {
namespace {

// How many suspicious hashes are looked into in one pass over the names: a bound on the names in memory.
constexpr std::size_t kSuspectsInOnePass = 1024;

struct Suspect {
  std::uint64_t hash;
  SampleId id;
  std::string name;
};

Result<void> confirm(NameSpool& names, std::span<const std::uint64_t> suspicious, std::uint32_t salt) {
  std::vector<Suspect> seen;
  std::optional<Error> duplicate;
  DLFS_TRY(names.for_each([&](SampleId id, std::string_view name) -> Result<bool> {
    const std::uint64_t hash = directory::name_hash(name, salt);
    if (!std::ranges::binary_search(suspicious, hash)) return true;
    for (const Suspect& other : seen) {
      if (other.hash != hash || other.name != name) continue;
      duplicate = base::make_error(
          Code::kDuplicateName, "samples {} and {} have the same name '{}'; rename one of them, or pack without names",
          other.id.value, id.value, base::escape(name));
      return false;
    }
    seen.push_back({hash, id, std::string(name)});
    return true;
  }));
  if (duplicate) return *std::move(duplicate);
  return {};
}

}  // namespace

NameSectionWriter::NameSectionWriter(std::uint32_t salt, std::uint64_t sample_count, NewBlock new_block, Write write)
    : salt_(salt),
      builder_(salt),
      new_block_(std::move(new_block)),
      write_(std::move(write)),
      block_(layout::kNameBlockBytes) {
  hashes_.reserve(sample_count);
}

Result<void> NameSectionWriter::add(SampleId id, std::string_view name) {
  if (id.value != hashes_.size()) {
    return base::make_error(Code::kInvalidArgument,
                            "sample {} was never appended although sample {} was; ids are 0, 1, 2, ... without a gap",
                            hashes_.size(), id.value);
  }
  hashes_.push_back(directory::name_hash(name, salt_));
  if (builder_.add(id, name)) return {};
  DLFS_TRY(write_block());
  const bool fits = builder_.add(id, name);
  DLFS_CHECK(fits);
  return {};
}

Result<void> NameSectionWriter::finish() { return builder_.empty() ? Result<void>() : write_block(); }

Result<void> NameSectionWriter::write_block() {
  new_block_(builder_.first_id());
  builder_.finish(block_);
  return write_(block_);
}

Result<void> refuse_duplicates(NameSpool& names, std::vector<std::uint64_t> hashes, std::uint32_t salt) {
  std::ranges::sort(hashes);
  std::vector<std::uint64_t> suspicious;
  for (std::size_t i = 1; i < hashes.size(); ++i) {
    if (hashes[i] == hashes[i - 1] && (suspicious.empty() || suspicious.back() != hashes[i]))
      suspicious.push_back(hashes[i]);
  }
  std::span<const std::uint64_t> rest = suspicious;
  while (!rest.empty()) {
    const std::size_t count = std::min(rest.size(), kSuspectsInOnePass);
    DLFS_TRY(confirm(names, rest.first(count), salt));
    rest = rest.subspan(count);
  }
  return {};
}

}  // namespace dlfs::volume
