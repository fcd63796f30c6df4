// The one implementation of Epoch, for every mode.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "order/chunk_plan.h"
#include "order/order.h"

namespace dlfs::order {

class EpochPlan final : public Epoch {
 public:
  EpochPlan(const Parameters& parameters, std::uint64_t samples, std::optional<ChunkPlan> chunks);
  const Parameters& parameters() const noexcept override { return parameters_; }
  std::uint64_t samples() const noexcept override { return samples_; }
  std::uint64_t batches() const noexcept override { return batches_; }
  std::uint64_t share_size(std::uint64_t batch) const noexcept override;
  std::uint64_t padding(std::uint64_t batch) const noexcept override;

  // Precondition: chunk mode.
  const ChunkPlan& chunks() const noexcept { return *chunks_; }
  // Precondition: full mode.
  const Permutation& sample_order() const noexcept { return sample_order_; }
  std::uint64_t next_use(std::uint64_t unit_or_sample) const noexcept;

 private:
  std::uint64_t share_of_first(std::uint64_t positions) const noexcept;

  Parameters parameters_;
  std::uint64_t samples_, batches_;
  Permutation sample_order_;
  std::optional<ChunkPlan> chunks_;
};

}  // namespace dlfs::order
