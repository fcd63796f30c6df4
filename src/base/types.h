// Strong types for numbers whose mix-up hurts.
#pragma once

#include <compare>
#include <cstdint>

namespace dlfs {

// Dense sample number in source order, 0..n-1.
struct SampleId {
  std::uint32_t value = 0;
  auto operator<=>(const SampleId&) const = default;
};

// Position of a sample in placement order on the media, 0..n-1: slots ascend with the address.
struct Slot {
  std::uint32_t value = 0;
  auto operator<=>(const Slot&) const = default;
};

}  // namespace dlfs
