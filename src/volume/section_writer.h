// Names, index and schema: one stream of bytes behind the data area, written in large pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "volume/write_queue.h"

namespace dlfs::volume {

// **Thread**: one.
class SectionWriter {
 public:
  using Write =
      std::function<Result<void>(std::span<std::byte> buffer, std::uint64_t length_bytes, std::uint64_t offset_bytes)>;
  SectionWriter(WriteQueue& queue, std::uint64_t begin_bytes, Write write)
      : queue_(queue), begin_(begin_bytes), write_(std::move(write)) {}

  std::uint64_t position() const noexcept { return begin_ + used_; }
  Result<void> append(std::span<const std::byte> bytes);
  Result<void> align(std::uint64_t unit_bytes);  // zeros up to the next multiple
  Result<void> finish();                         // writes the rest; precondition: aligned to the device's blocks

 private:
  Result<void> write_buffer();

  WriteQueue& queue_;
  std::uint64_t begin_;  // of the buffer
  std::uint64_t used_ = 0;
  std::span<std::byte> buffer_;  // empty until needed
  Write write_;
};

}  // namespace dlfs::volume
