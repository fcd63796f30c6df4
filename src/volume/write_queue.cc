#include "volume/write_queue.h"

#include <array>

#include "base/check.h"
#include "base/error.h"
#include "base/try.h"
#include "volume/device_io.h"

namespace dlfs::volume {

WriteQueue::WriteQueue(block::BlockDevice& device, std::size_t buffer_bytes, std::size_t buffers,
                       std::chrono::milliseconds timeout)
    : device_(device), buffer_bytes_(buffer_bytes), requests_(buffers), timeout_(timeout) {
  for (std::size_t i = buffers; i > 0; --i) free_.push_back(static_cast<std::uint32_t>(i - 1));
}

Result<std::unique_ptr<WriteQueue>> WriteQueue::create(block::BlockDevice& device, std::size_t buffer_bytes,
                                                       std::size_t buffers, std::chrono::milliseconds timeout) {
  std::unique_ptr<WriteQueue> queue(new WriteQueue(device, buffer_bytes, buffers, timeout));
  DLFS_TRY_ASSIGN(queue->arena_, base::Arena::create(buffer_bytes * buffers));
  device.register_memory(queue->arena_.bytes());
  return queue;
}

Result<std::span<std::byte>> WriteQueue::acquire() {
  while (free_.empty()) {
    DLFS_CHECK(in_flight_ > 0);
    DLFS_TRY(reap());
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  return arena_.bytes().subspan(index * buffer_bytes_, buffer_bytes_);
}

void WriteQueue::release(std::span<std::byte> buffer) noexcept {
  free_.push_back(
      static_cast<std::uint32_t>((buffer.data() - arena_.bytes().data()) / static_cast<std::ptrdiff_t>(buffer_bytes_)));
}

Result<void> WriteQueue::write(std::span<std::byte> buffer, std::uint64_t length_bytes, std::uint64_t offset_bytes) {
  const auto index = static_cast<std::size_t>(buffer.data() - arena_.bytes().data()) / buffer_bytes_;
  requests_[index] = {.op = block::Op::kWrite,
                      .data = buffer.data(),
                      .length_bytes = static_cast<std::uint32_t>(length_bytes),
                      .offset_bytes = offset_bytes,
                      .user_data = index};
  while (device_.submit({&requests_[index], 1}) == 0) {
    if (in_flight_ == 0)
      return base::make_error(Code::kDeviceLost, "'{}' takes no more requests", base::escape(device_.url()));
    DLFS_TRY(reap());
  }
  ++in_flight_;
  return {};
}

Result<void> WriteQueue::drain() {
  while (in_flight_ > 0) DLFS_TRY(reap());
  return {};
}

Result<void> WriteQueue::reap() {
  std::array<block::Completion, 32> completions;
  DLFS_TRY_ASSIGN(const std::size_t count, wait_completions(device_, completions, timeout_));
  Result<void> result;
  for (std::size_t i = 0; i < count; ++i) {
    const block::Completion& completion = completions[i];
    free_.push_back(static_cast<std::uint32_t>(completion.user_data));
    --in_flight_;
    if (result.ok() && (completion.errno_value != 0 || completion.nvme_status != 0)) {
      result = block::completion_error(device_, requests_[completion.user_data], completion);
    }
  }
  return result;
}

}  // namespace dlfs::volume
