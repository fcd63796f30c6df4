#include "name_pages.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"

namespace dlfs::tools {
namespace {

Result<void> fill(const Volume& volume, bool named, std::uint64_t first, std::size_t page, std::vector<NamedId>& out) {
  out.clear();
  if (!named) {
    const std::uint64_t end = std::min<std::uint64_t>(volume.size(), first + page);
    for (std::uint64_t id = first; id < end; ++id) out.emplace_back(static_cast<std::uint32_t>(id), std::string());
    return {};
  }
  return volume.names(static_cast<std::uint32_t>(first), [&](std::uint32_t id, std::string_view name) {
    out.emplace_back(id, name);
    return out.size() < page;
  });
}

}  // namespace

Result<void> for_each_page(const Volume& volume, std::size_t page,
                           const std::function<Result<bool>(std::span<const NamedId>)>& visit) {
  const bool named = volume.info().name_bytes > 0;
  std::vector<NamedId> names;
  for (std::uint64_t first = 0; first < volume.size(); first += names.size()) {
    DLFS_TRY(fill(volume, named, first, page, names));
    if (names.empty()) {
      return base::make_error(Code::kCorrupt, "the volume has {} samples, but its names end at {}: run dlfs verify",
                              volume.size(), first);
    }
    DLFS_TRY_ASSIGN(const bool more, visit(names));
    if (!more) break;
  }
  return {};
}

}  // namespace dlfs::tools
