#include "reader/coalesce.h"

#include <algorithm>

namespace dlfs::reader {
namespace {

std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) { return value & ~(unit - 1); }
std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return round_down(value + unit - 1, unit); }

bool joins(const Extent& extent, const Want& want, std::uint64_t end, const CoalesceRules& rules) {
  if (want.address + want.length <= extent.end)
    return true;  // lies in it already: a repeated sample, or a shared block
  if (want.address / rules.chunk_bytes != extent.begin / rules.chunk_bytes) return false;
  if (want.length > rules.chunk_bytes) return false;
  return want.address <= extent.end + rules.gap_bytes && end - extent.begin <= rules.longest_bytes;
}

}  // namespace

void coalesce(std::vector<Want>& wants, const CoalesceRules& rules, std::vector<Extent>& extents) {
  extents.clear();
  std::sort(wants.begin(), wants.end(), [](const Want& a, const Want& b) { return a.address < b.address; });
  for (std::uint32_t i = 0; i < wants.size(); ++i) {
    const Want& want = wants[i];
    const std::uint64_t end = round_up(want.address + want.length, rules.block_bytes);
    if (!extents.empty() && joins(extents.back(), want, end, rules)) {
      Extent& last = extents.back();
      last.end = std::max(last.end, end);
      last.batch = std::min(last.batch, want.batch);
      ++last.count;
    } else {
      extents.push_back({round_down(want.address, rules.block_bytes), end, i, 1, want.batch});
    }
  }
  std::stable_sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.batch < b.batch; });
}

}  // namespace dlfs::reader
