// Buffers that are filled by the packer and written behind its back.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/arena.h"
#include "block/device.h"

namespace dlfs::volume {

// A fixed set of equal buffers: each is free, with the caller, or being written. **Thread**: one. **Lifetime**: the
// device is closed before the queue is destroyed (its destructor waits for writes that still use the buffers).
class WriteQueue {
 public:
  // **Errors**: kOutOfMemory.
  static Result<std::unique_ptr<WriteQueue>> create(block::BlockDevice& device, std::size_t buffer_bytes,
                                                    std::size_t buffers, std::chrono::milliseconds timeout);
  std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }

  // A free buffer, its bytes undefined. **Blocks** until a write has finished when none is free. **Errors**: of an
  // earlier write. Precondition: the caller does not hold all buffers.
  Result<std::span<std::byte>> acquire();
  // Starts writing the first `length_bytes` of a buffer, which becomes free when that is done. **Errors**: of an
  // earlier write.
  Result<void> write(std::span<std::byte> buffer, std::uint64_t length_bytes, std::uint64_t offset_bytes);
  void release(std::span<std::byte> buffer) noexcept;  // gives a buffer back unwritten
  // Waits until everything is written. **Errors**: of the first write that failed.
  Result<void> drain();
  // Waits until everything is written and durable. Where the device was away in between, what it acknowledged before
  // is read back and compared. **Errors**: as drain(); kIo: it has forgotten writes.
  Result<void> settle();

 private:
  WriteQueue(block::BlockDevice& device, std::size_t buffer_bytes, std::size_t buffers,
             std::chrono::milliseconds timeout);
  Result<void> reap();  // waits for at least one write
  Result<void> read_back();

  struct Written {  // not yet known to be durable
    std::uint64_t offset_bytes;
    std::uint32_t length_bytes, crc;
  };
  static constexpr std::size_t kMaxWritten = 65'536;

  block::BlockDevice& device_;
  base::Arena arena_;
  std::size_t buffer_bytes_;
  std::vector<std::uint32_t> free_;
  std::vector<block::Request> requests_;  // by buffer
  std::size_t in_flight_ = 0;
  std::vector<Written> written_;  // of devices that may be away for a while
  std::uint64_t interruptions_ = 0;
  std::chrono::milliseconds timeout_;
};

}  // namespace dlfs::volume
