#include "block/memory_device.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/arena.h"
#include "base/check.h"
#include "base/error.h"
#include "base/fork_guard.h"
#include "base/mix.h"
#include "base/try.h"
#include "block/descriptor.h"

namespace dlfs::block {
namespace {

constexpr std::uint32_t kPreferredTransferBytes = 256u << 10;
constexpr std::uint32_t kMaxTransferBytes = 4u << 20;
constexpr std::uint32_t kMaxQueueDepth = 4096;

// The bytes of one memory device, shared by its handles.
struct Store {
  base::Arena memory;
  std::uint64_t size_bytes = 0;
  std::uint32_t block_bytes = 0;
  std::shared_mutex
      mutex;  // handles live on different threads; a device orders overlapping transfers somehow, not torn
};

// The one process-wide table: open_device() is given nothing but a URL, and two handles to mem:NAME must meet
// somewhere. It holds no device alive; the names of closed ones are swept when the next is opened.
struct NameTable {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Store>, std::less<>> stores;
};

NameTable& name_table() {
  static NameTable table;
  return table;
}

Result<std::shared_ptr<Store>> make_store(const Url& url) {
  if (url.size_bytes == 0) {
    return base::make_error(
        Code::kNotFound, "no memory device {0} is open in this process; write mem:{0}?size=1GiB to make it", url.path);
  }
  DLFS_TRY_ASSIGN(base::Arena memory, base::Arena::create(url.size_bytes, false));
  auto store = std::make_shared<Store>();
  store->memory = std::move(memory);
  store->size_bytes = url.size_bytes;
  store->block_bytes = url.block_bytes;
  return store;
}

Result<std::shared_ptr<Store>> find_or_make_store(const Url& url) {
  NameTable& table = name_table();
  const std::lock_guard lock(table.mutex);
  std::erase_if(table.stores, [](const auto& entry) { return entry.second.expired(); });
  const auto found = table.stores.find(url.path);
  if (auto store = found == table.stores.end() ? nullptr : found->second.lock()) {
    if (url.size_bytes != 0 && (url.size_bytes != store->size_bytes || url.block_bytes != store->block_bytes)) {
      return base::make_error(
          Code::kInvalidArgument,
          "memory device {} is open with {} bytes in blocks of {}; leave size and block out, or close it first",
          url.path, store->size_bytes, store->block_bytes);
    }
    return store;
  }
  DLFS_TRY_ASSIGN(auto store, make_store(url));
  table.stores[url.path] = store;
  return store;
}

class MemoryDevice final : public BlockDevice {
 public:
  MemoryDevice(std::shared_ptr<Store> store, const Url& url, const OpenOptions& options, Descriptor event)
      : store_(std::move(store)), url_("mem:" + url.path), event_(std::move(event)) {
    geometry_ = {.capacity_bytes = store_->size_bytes,
                 .block_bytes = store_->block_bytes,
                 .memory_alignment_bytes = 1,
                 .preferred_transfer_bytes = std::max(kPreferredTransferBytes, store_->block_bytes),
                 .max_transfer_bytes = kMaxTransferBytes,
                 .max_in_flight = std::clamp(options.queue_depth, 1u, kMaxQueueDepth),
                 .read_only = !options.write && !options.create,
                 .growable = false};
    pending_.reserve(geometry_.max_in_flight);
  }

  ~MemoryDevice() override {
    if (guard_.forked()) return;
    for (const Request& request : pending_) run(request);
  }

  const Geometry& geometry() const noexcept override { return geometry_; }
  const std::string& url() const noexcept override { return url_; }
  const std::string& notes() const noexcept override { return notes_; }
  const char* engine() const noexcept override { return "memory"; }
  int wait_descriptor() const noexcept override { return event_.get(); }
  std::size_t in_flight() const noexcept override { return pending_.size(); }
  void register_memory(std::span<std::byte>) noexcept override {}

  std::span<const std::byte> view(std::uint64_t offset_bytes, std::uint32_t length_bytes) noexcept override {
    if (offset_bytes > geometry_.capacity_bytes || length_bytes > geometry_.capacity_bytes - offset_bytes) return {};
    return store_->memory.bytes().subspan(offset_bytes, length_bytes);
  }

  std::size_t submit(std::span<const Request> requests) noexcept override {
    if (guard_.forked()) return 0;
    const std::size_t count = std::min<std::size_t>(requests.size(), geometry_.max_in_flight - pending_.size());
    if (count > 0 && pending_.empty()) signal();
    pending_.insert(pending_.end(), requests.begin(), requests.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  std::size_t poll(std::span<Completion> completions) noexcept override {
    if (pending_.empty() || guard_.forked()) return 0;
    std::size_t count = 0;
    while (count < completions.size() && !pending_.empty()) {
      std::swap(pending_[prng_.below(pending_.size())], pending_.back());
      completions[count++] = run(pending_.back());
      pending_.pop_back();
    }
    if (pending_.empty() && count > 0) quieten();
    return count;
  }

 private:
  int check(const Request& request) const noexcept {
    if (request.op == Op::kWrite && geometry_.read_only) return EROFS;
    if ((request.offset_bytes | request.length_bytes) % geometry_.block_bytes != 0 ||
        (request.data == nullptr && request.length_bytes > 0)) {
      return EINVAL;
    }
    const std::uint64_t capacity = geometry_.capacity_bytes;
    if (request.offset_bytes > capacity || request.length_bytes > capacity - request.offset_bytes) {
      return request.op == Op::kWrite ? ENOSPC : EIO;
    }
    return 0;
  }

  Completion run(const Request& request) noexcept {
    Completion completion{.user_data = request.user_data};
    if (request.op == Op::kFlush) return completion;
    completion.errno_value = check(request);
    if (completion.errno_value != 0 || request.length_bytes == 0) return completion;
    completion.length_bytes = request.length_bytes;
    std::byte* at = store_->memory.bytes().data() + request.offset_bytes;
    if (request.op == Op::kRead) {
      const std::shared_lock lock(store_->mutex);
      std::memcpy(request.data, at, request.length_bytes);
    } else {
      const std::unique_lock lock(store_->mutex);
      std::memcpy(at, request.data, request.length_bytes);
    }
    return completion;
  }

  void signal() noexcept {
    const std::uint64_t one = 1;
    while (write(event_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }
  void quieten() noexcept {
    std::uint64_t count = 0;
    while (read(event_.get(), &count, sizeof count) < 0 && errno == EINTR) {
    }
  }

  std::shared_ptr<Store> store_;
  std::string url_;
  std::string notes_;
  Geometry geometry_;
  Descriptor event_;
  base::ForkGuard guard_;
  base::Prng prng_{1};
  std::vector<Request> pending_;
};

}  // namespace

Result<std::unique_ptr<BlockDevice>> open_memory_device(const Url& url, const OpenOptions& options) {
  DLFS_TRY_ASSIGN(auto store, find_or_make_store(url));
  Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return base::errno_error(errno, "cannot make an eventfd for a memory device");
  return std::unique_ptr<BlockDevice>(std::make_unique<MemoryDevice>(std::move(store), url, options, std::move(event)));
}

}  // namespace dlfs::block
