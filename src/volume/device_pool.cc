#include "volume/device_pool.h"

#include <algorithm>

#include "base/try.h"
#include "volume/device_io.h"

namespace dlfs::volume {
namespace {

constexpr std::size_t kMaxIdle = 16;     // handles
constexpr std::size_t kNameBlocks = 64;  // of 16 KiB
constexpr std::size_t kKeptBufferBytes = 1u << 20;

}  // namespace

Result<std::span<const std::byte>> DeviceLease::read(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                                                     std::chrono::milliseconds timeout) {
  const std::uint64_t unit = request_unit(device_->geometry());
  const std::uint64_t begin = round_down(offset_bytes, unit);
  const std::uint64_t end = round_up(offset_bytes + length_bytes, unit);
  if (buffer_.bytes().size() < end - begin) {
    DLFS_TRY_ASSIGN(buffer_, base::Arena::create(end - begin, false));
  }
  if (end > begin) DLFS_TRY(block::read_all(*device_, begin, buffer_.bytes().first(end - begin), timeout));
  return std::span<const std::byte>(buffer_.bytes().subspan(offset_bytes - begin, length_bytes));
}

void DeviceLease::trim() {
  if (buffer_.bytes().size() > kKeptBufferBytes) {
    const base::Arena dropped = std::move(buffer_);
    buffer_ = base::Arena();
  }
}

DevicePool::DevicePool(Open open) : open_(std::move(open)), state_(new State) {}

DevicePool::~DevicePool() {
  State* current = state_.load();
  if (!current->guard.forked()) delete current;  // an inherited one is the parent's
}

DevicePool::State& DevicePool::state() const {
  State* current = state_.load(std::memory_order_acquire);
  if (!current->guard.forked()) return *current;
  auto fresh = std::make_unique<State>();
  fresh->inherited = current;
  if (state_.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;  // another thread of this child was first
}

Result<std::unique_ptr<DeviceLease>> DevicePool::take() const {
  State& state = this->state();
  {
    const std::lock_guard lock(state.mutex);
    if (!state.idle.empty()) {
      auto lease = std::move(state.idle.back());
      state.idle.pop_back();
      return lease;
    }
  }
  DLFS_TRY_ASSIGN(auto device, open_());
  return std::make_unique<DeviceLease>(std::move(device));
}

void DevicePool::give(std::unique_ptr<DeviceLease> lease) const {
  if (!lease->reusable()) return;  // a request timed out: the handle waits for it while it closes
  lease->trim();
  State& state = this->state();
  const std::lock_guard lock(state.mutex);
  if (state.idle.size() < kMaxIdle) state.idle.push_back(std::move(lease));
}

DevicePool::Block DevicePool::cached_names(std::uint64_t block) const {
  State& state = this->state();
  const std::lock_guard lock(state.mutex);
  const auto found = std::ranges::find(state.names, block, &std::pair<std::uint64_t, Block>::first);
  if (found == state.names.end()) return nullptr;
  state.names.splice(state.names.begin(), state.names, found);
  return found->second;
}

void DevicePool::cache_names(std::uint64_t block, Block bytes) const {
  State& state = this->state();
  const std::lock_guard lock(state.mutex);
  state.names.emplace_front(block, std::move(bytes));
  if (state.names.size() > kNameBlocks) state.names.pop_back();
}

std::shared_ptr<const LargeSample> DevicePool::cached_large(SampleId id) const {
  State& state = this->state();
  const std::lock_guard lock(state.mutex);
  return state.large != nullptr && state.large->head.id() == id ? state.large : nullptr;
}

void DevicePool::cache_large(std::shared_ptr<const LargeSample> sample) const {
  State& state = this->state();
  const std::lock_guard lock(state.mutex);
  state.large = std::move(sample);
}

}  // namespace dlfs::volume
