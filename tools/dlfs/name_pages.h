// Walks the names of a volume page by page, so that the caller may read samples in between.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dlfs/dlfs.hpp"

namespace dlfs::tools {

using NamedId = std::pair<std::uint32_t, std::string>;

// Pages of at most `page` samples in id order, until `visit` returns false. Names are empty in a volume without names.
Result<void> for_each_page(const Volume& volume, std::size_t page,
                           const std::function<Result<bool>(std::span<const NamedId>)>& visit);

}  // namespace dlfs::tools
