// A Placement of given unit sizes, and an epoch drawn whole, for the tests of orders.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "order/order.h"

namespace dlfs::order::testing {

class UnitPlacement final : public Placement {
 public:
  explicit UnitPlacement(const std::vector<std::uint64_t>& sizes) : first_(sizes.size() + 1, 0) {
    std::partial_sum(sizes.begin(), sizes.end(), first_.begin() + 1);
  }
  std::uint64_t sample_count() const noexcept override { return first_.back(); }
  std::uint64_t unit_count() const noexcept override { return first_.size() - 1; }
  std::uint64_t first_slot(std::uint64_t unit) const noexcept override { return first_[unit]; }

 private:
  std::vector<std::uint64_t> first_;
};

inline std::shared_ptr<const Placement> place(const std::vector<std::uint64_t>& sizes) {
  return std::make_shared<UnitPlacement>(sizes);
}

using Share = std::vector<Draw>;

// Every batch of one rank, in order.
inline std::vector<Share> draw_all(const std::shared_ptr<const Epoch>& epoch) {
  std::vector<Share> batches;
  Cursor cursor(epoch);
  for (Share share; cursor.next(share);) batches.push_back(share);
  return batches;
}

}  // namespace dlfs::order::testing
