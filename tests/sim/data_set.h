// The data set of a simulation: every byte says of which sample of which version it is.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/mix.h"
#include "layout/record.h"
#include "sim/world.h"

namespace dlfs::sim {

class DataSet {
 public:
  explicit DataSet(World& world) {
    const std::size_t samples = world.chance(0.1) ? world.between(1, 4) : world.between(5, 200);
    for (std::size_t i = 0; i < samples; ++i) {
      const std::uint64_t kind = world.prng.below(20);
      sizes_.push_back(kind == 0 ? 0 : kind == 1 ? world.between(60'000, 200'000) : world.between(1, 6000));
    }
  }
  std::size_t size() const noexcept { return sizes_.size(); }
  static std::string name(std::size_t id) { return fmt::format("s{}", id); }

  std::vector<std::byte> content(std::size_t id, std::uint64_t version) const {
    std::vector<std::byte> bytes(sizes_[id]);
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      const std::uint64_t word = base::mix64(id * 0x1'0000'0001 + version * 77 + i / 8);
      for (std::size_t j = i; j < std::min(i + 8, bytes.size()); ++j)
        bytes[j] = static_cast<std::byte>(word >> (j % 8 * 8));
    }
    return bytes;
  }
  bool is_content(layout::FieldValue bytes, std::size_t id, std::uint64_t version) const {
    const auto expected = content(id, version);
    return std::equal(expected.begin(), expected.end(), bytes.begin(), bytes.end());
  }

 private:
  std::vector<std::size_t> sizes_;
};

}  // namespace dlfs::sim
