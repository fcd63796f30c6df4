// A volume's directory as the orders see it.
#pragma once

#include <memory>

#include "order/order.h"
#include "volume/volume.h"

namespace dlfs::reader {

// **Lifetime**: keeps the volume. **Thread**: immutable.
class VolumePlacement final : public order::Placement {
 public:
  explicit VolumePlacement(std::shared_ptr<const volume::Volume> volume) : volume_(std::move(volume)) {}
  std::uint64_t sample_count() const noexcept override { return volume_->directory().sample_count(); }
  std::uint64_t unit_count() const noexcept override { return volume_->directory().unit_count(); }
  std::uint64_t first_slot(std::uint64_t unit) const noexcept override { return volume_->directory().first_slot(unit); }

 private:
  std::shared_ptr<const volume::Volume> volume_;
};

}  // namespace dlfs::reader
