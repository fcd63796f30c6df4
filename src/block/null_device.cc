#include "block/null_device.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/arena.h"
#include "base/error.h"
#include "base/fork_guard.h"
#include "base/try.h"
#include "block/descriptor.h"

namespace dlfs::block {
namespace {

constexpr std::uint32_t kPreferredTransferBytes = 256u << 10;
constexpr std::uint32_t kMaxTransferBytes = 4u << 20;
constexpr std::uint32_t kMaxQueueDepth = 4096;

class NullDevice final : public BlockDevice {
 public:
  NullDevice(const Url& url, const OpenOptions& options, base::Arena zeros, Descriptor event)
      : url_("null:" + url.path), zeros_(std::move(zeros)), event_(std::move(event)) {
    geometry_ = {.capacity_bytes = url.size_bytes,
                 .block_bytes = url.block_bytes,
                 .memory_alignment_bytes = 1,
                 .preferred_transfer_bytes = std::max(kPreferredTransferBytes, url.block_bytes),
                 .max_transfer_bytes = kMaxTransferBytes,
                 .max_in_flight = std::clamp(options.queue_depth, 1u, kMaxQueueDepth),
                 .read_only = !options.write && !options.create,
                 .growable = false};
    done_.reserve(geometry_.max_in_flight);
  }

  const Geometry& geometry() const noexcept override { return geometry_; }
  const std::string& url() const noexcept override { return url_; }
  const std::string& notes() const noexcept override { return notes_; }
  const char* engine() const noexcept override { return "null"; }
  int wait_descriptor() const noexcept override { return event_.get(); }
  std::size_t in_flight() const noexcept override { return done_.size(); }
  void register_memory(std::span<std::byte>) noexcept override {}

  std::size_t submit(std::span<const Request> requests) noexcept override {
    if (guard_.forked()) return 0;
    const std::size_t count = std::min<std::size_t>(requests.size(), geometry_.max_in_flight - done_.size());
    if (count > 0 && done_.empty()) signal();
    for (const Request& request : requests.first(count)) done_.push_back(run(request));
    return count;
  }

  std::size_t poll(std::span<Completion> completions) noexcept override {
    if (guard_.forked()) return 0;
    const std::size_t count = std::min(completions.size(), done_.size());
    for (std::size_t i = 0; i < count; ++i) {
      completions[i] = done_.back();
      done_.pop_back();
    }
    if (count > 0 && done_.empty()) quieten();
    return count;
  }

  std::span<const std::byte> view(std::uint64_t offset_bytes, std::uint32_t length_bytes) noexcept override {
    const bool inside =
        offset_bytes <= geometry_.capacity_bytes && length_bytes <= geometry_.capacity_bytes - offset_bytes;
    if (!inside || length_bytes > zeros_.bytes().size()) return {};
    return std::span<const std::byte>(zeros_.bytes()).first(length_bytes);
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
    if (completion.errno_value != 0) return completion;
    completion.length_bytes = request.length_bytes;
    if (request.op == Op::kRead && request.length_bytes > 0) std::memset(request.data, 0, request.length_bytes);
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

  std::string url_, notes_;
  base::Arena zeros_;
  Geometry geometry_;
  Descriptor event_;
  base::ForkGuard guard_;
  std::vector<Completion> done_;
};

}  // namespace

Result<std::unique_ptr<BlockDevice>> open_null_device(const Url& url, const OpenOptions& options) {
  DLFS_TRY_ASSIGN(base::Arena zeros, base::Arena::create(kMaxTransferBytes, false));
  Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return base::errno_error(errno, "cannot make an eventfd for a null device");
  return std::unique_ptr<BlockDevice>(std::make_unique<NullDevice>(url, options, std::move(zeros), std::move(event)));
}

}  // namespace dlfs::block
