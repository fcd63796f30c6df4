// Which of some words a misspelt one may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlfs::tools {

// The closest of `known` when it is at most two edits away (insertions, deletions, changes, swaps of neighbours), else
// "".
std::string suggest(std::string_view word, const std::vector<std::string>& known);

}  // namespace dlfs::tools
