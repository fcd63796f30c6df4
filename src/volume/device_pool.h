// Device handles and small caches for random access, shared by all threads of one process and remade in a forked child.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/arena.h"
#include "base/fork_guard.h"
#include "block/device.h"
#include "layout/large_record.h"

namespace dlfs::volume {

// One handle and its read buffer, lent to one thread.
class DeviceLease {
 public:
  explicit DeviceLease(std::unique_ptr<block::BlockDevice> device) noexcept : device_(std::move(device)) {}
  block::BlockDevice& device() noexcept { return *device_; }
  // Reads any range, aligned as the device needs; the view is valid until the next read. **Errors**: kIo, kTimedOut,
  // kOutOfMemory.
  Result<std::span<const std::byte>> read(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                                          std::chrono::milliseconds timeout);
  bool reusable() const noexcept { return device_->in_flight() == 0; }
  void trim();  // gives a large buffer back to the system

 private:
  base::Arena buffer_;
  std::unique_ptr<block::BlockDevice> device_;  // goes before the buffer that it may still be filling
};

// A large sample whose head and table were read and verified.
struct LargeSample {
  layout::LargeRecordHead head;
  std::vector<std::byte> table;
};

// **Thread**: any. **fork**: the child gets its own handles; what the parent left is neither used nor freed there,
// since another thread of the parent may have been in the middle of it.
class DevicePool {
 public:
  using Open = std::function<Result<std::unique_ptr<block::BlockDevice>>()>;
  using Block = std::shared_ptr<const std::vector<std::byte>>;

  explicit DevicePool(Open open);
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // Calls `use(DeviceLease&)`, which returns a Result, with a handle that nobody else uses.
  template <class Use>
  auto with(Use&& use) const -> decltype(use(std::declval<DeviceLease&>())) {
    auto lease = take();
    if (!lease.ok()) return std::move(lease).error();
    auto result = use(**lease);
    give(std::move(lease).value());
    return result;
  }
  void give(std::unique_ptr<DeviceLease> lease) const;

  Block cached_names(std::uint64_t block) const;  // null when it is not there
  void cache_names(std::uint64_t block, Block bytes) const;
  std::shared_ptr<const LargeSample> cached_large(SampleId id) const;
  void cache_large(std::shared_ptr<const LargeSample> sample) const;

 private:
  struct State {
    base::ForkGuard guard;
    std::mutex mutex;
    std::vector<std::unique_ptr<DeviceLease>> idle;
    std::list<std::pair<std::uint64_t, Block>> names;  // the most recent in front
    std::shared_ptr<const LargeSample> large;
    State* inherited = nullptr;  // the parent's: kept, not touched
  };
  State& state() const;
  Result<std::unique_ptr<DeviceLease>> take() const;

  Open open_;
  mutable std::atomic<State*> state_;
};

}  // namespace dlfs::volume
