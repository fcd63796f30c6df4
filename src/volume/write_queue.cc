#include "volume/write_queue.h"

#include <array>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/try.h"
#include "volume/device_io.h"

namespace dlfs::volume {
namespace {

constexpr int kMaxAttempts = 16;

}  // namespace

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
  queue->interruptions_ = device.interruptions();
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
  if (device_.geometry().patience.count() > 0) {
    written_.push_back(
        {offset_bytes, static_cast<std::uint32_t>(length_bytes), base::crc32c(buffer.first(length_bytes))});
  }
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
  return written_.size() < kMaxWritten ? Result<void>() : settle();
}

Result<void> WriteQueue::settle() {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    DLFS_TRY(drain());
    DLFS_TRY(block::flush(device_, timeout_));
    if (device_.interruptions() == interruptions_) {
      written_.clear();
      return {};
    }
    interruptions_ = device_.interruptions();
    DLFS_TRY(read_back());
  }
  return base::make_error(Code::kDeviceLost,
                          "'{}' goes away again and again: what was written to it cannot be made durable",
                          base::escape(device_.url()));
}

Result<void> WriteQueue::read_back() {
  for (const Written& written : written_) {
    DLFS_TRY_ASSIGN(base::Arena memory, read_range(device_, written.offset_bytes, written.length_bytes, timeout_));
    if (base::crc32c(memory.bytes().first(written.length_bytes)) == written.crc) continue;
    return base::make_error(Code::kIo,
                            "'{}' was away and has forgotten {} bytes at offset {} that it had acknowledged (did it "
                            "lose power?); pack again",
                            base::escape(device_.url()), written.length_bytes, written.offset_bytes);
  }
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
