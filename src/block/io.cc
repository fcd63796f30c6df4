// Synchronous conveniences on top of submit() and poll().
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "block/device.h"

namespace dlfs::block {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kMorePatience{5};

constexpr std::size_t kWindow = 16;  // requests in flight: enough for a device's full speed at its preferred transfer

const char* verb(Op op) {
  switch (op) {
    case Op::kRead:
      return "read";
    case Op::kWrite:
      return "write";
    case Op::kFlush:
      return "flush";
  }
  return "use";
}

std::string describe(const BlockDevice& device, const Request& request) {
  if (request.op == Op::kFlush) return fmt::format("cannot flush {}", base::escape(device.url()));
  return fmt::format("cannot {} {} bytes at offset {} of {}", verb(request.op), request.length_bytes,
                     request.offset_bytes, base::escape(device.url()));
}

// One range cut into requests of the device's preferred size; request i is rebuilt from its number alone.
class Transfer {
 public:
  Transfer(BlockDevice& device, Op op, std::uint64_t offset, std::span<std::byte> data,
           std::chrono::milliseconds timeout)
      : device_(device), op_(op), offset_(offset), data_(data), timeout_(patient(device, timeout)) {
    const Geometry& geometry = device.geometry();
    step_ = std::max(geometry.preferred_transfer_bytes, geometry.block_bytes);
    count_ = op == Op::kFlush ? 1 : (data.size() + step_ - 1) / step_;
  }

  Result<void> run() {
    if (device_.in_flight() > 0) {
      return base::make_error(Code::kBusy, "{} requests to {} are still in flight; poll them, or open the device again",
                              device_.in_flight(), base::escape(device_.url()));
    }
    Clock::time_point last = device_.now();
    while (next_ < count_ || device_.in_flight() > 0) {
      if (!first_error_ && !submit_more()) {
        return base::make_error(Code::kForked, "{} was opened by another process; open it again after fork",
                                base::escape(device_.url()));
      }
      if (first_error_ && device_.in_flight() == 0) break;
      if (collect()) {
        last = device_.now();
        continue;
      }
      const auto left = timeout_ - std::chrono::duration_cast<std::chrono::milliseconds>(device_.now() - last);
      if (left.count() <= 0) return timed_out();
      device_.wait(std::min<std::chrono::nanoseconds>(left, std::chrono::seconds(1)));
    }
    if (first_error_) return *first_error_;
    return {};
  }

 private:
  Request request(std::uint64_t index) const {
    Request made{.op = op_, .user_data = index};
    if (op_ == Op::kFlush) return made;
    const std::uint64_t begin = index * step_;
    made.data = data_.data() + begin;
    made.length_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(step_, data_.size() - begin));
    made.offset_bytes = offset_ + begin;
    return made;
  }

  // False: the device takes nothing although it is idle.
  bool submit_more() {
    std::array<Request, kWindow> batch;
    std::size_t size = 0;
    while (size + device_.in_flight() < kWindow && next_ + size < count_) {
      batch[size] = request(next_ + size);
      ++size;
    }
    const std::size_t taken = size == 0 ? 0 : device_.submit(std::span(batch).first(size));
    next_ += taken;
    return size == 0 || taken > 0 || device_.in_flight() > 0;
  }

  bool collect() {
    std::array<Completion, kWindow> completions;
    const std::size_t count = device_.poll(completions);
    for (const Completion& completion : std::span(completions).first(count)) {
      if (completion.errno_value == 0 && completion.nvme_status == 0) continue;
      if (!first_error_) first_error_ = completion_error(device_, request(completion.user_data), completion);
    }
    return count > 0;
  }

  Error timed_out() const {
    const Request last = request(next_ > 0 ? next_ - 1 : 0);
    return base::make_error(Code::kTimedOut, "{}: no answer within {} ms ({} requests in flight); check the device",
                            describe(device_, last), timeout_.count(), device_.in_flight());
  }

  BlockDevice& device_;
  Op op_;
  std::uint64_t offset_;
  std::span<std::byte> data_;
  std::chrono::milliseconds timeout_;
  std::uint64_t step_ = 1;
  std::uint64_t count_ = 0;
  std::uint64_t next_ = 0;
  std::optional<Error> first_error_;
};

std::string advice(const Geometry& geometry, const Request& request, int error) {
  const std::uint64_t end = request.offset_bytes + request.length_bytes;
  switch (error) {
    case EINVAL:
      return fmt::format("; offsets and lengths must be multiples of {} bytes and memory aligned to {}",
                         geometry.block_bytes, geometry.memory_alignment_bytes);
    case EIO:
      return end > geometry.capacity_bytes
                 ? fmt::format("; the device ends at {} bytes", geometry.capacity_bytes)
                 : "; the device failed (see the kernel's log), or the file was cut short after it was opened";
    case ENOSPC:
      return geometry.growable ? "; free some space"
                               : fmt::format("; the device holds {} bytes", geometry.capacity_bytes);
    case EROFS:
      return "; it is open for reading only";
    default:
      return {};
  }
}

}  // namespace

Result<void> read_all(BlockDevice& device, std::uint64_t offset_bytes, std::span<std::byte> into,
                      std::chrono::milliseconds timeout) {
  return Transfer(device, Op::kRead, offset_bytes, into, timeout).run();
}

Result<void> write_all(BlockDevice& device, std::uint64_t offset_bytes, std::span<const std::byte> from,
                       std::chrono::milliseconds timeout) {
  // Requests hold one pointer type for both directions; a write does not touch the memory.
  const std::span<std::byte> data(const_cast<std::byte*>(from.data()), from.size());
  return Transfer(device, Op::kWrite, offset_bytes, data, timeout).run();
}

Result<void> flush(BlockDevice& device, std::chrono::milliseconds timeout) {
  return Transfer(device, Op::kFlush, 0, {}, timeout).run();
}

Error completion_error(const BlockDevice& device, const Request& request, const Completion& completion) {
  Error error = base::errno_error(completion.errno_value, describe(device, request));
  const std::string more = device.explain(completion);
  error.message += more.empty() ? advice(device.geometry(), request, completion.errno_value) : ": " + more;
  error.nvme_status = completion.nvme_status;
  if (completion.errno_value == ESTALE) error.code = Code::kDeviceLost;
  if (error.code == Code::kReadOnly && request.op != Op::kWrite) error.code = Code::kIo;
  return error;
}

std::chrono::milliseconds patient(const BlockDevice& device, std::chrono::milliseconds timeout) noexcept {
  const std::chrono::milliseconds own = device.geometry().patience;
  return own.count() == 0 ? timeout : std::max<std::chrono::milliseconds>(timeout, own + kMorePatience);
}

void BlockDevice::wait(std::chrono::nanoseconds longest, int other) noexcept {
  pollfd descriptors[2] = {{wait_descriptor(), POLLIN, 0}, {other, POLLIN, 0}};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (longest - seconds).count()};
  ppoll(descriptors, other < 0 ? 1 : 2, longest == std::chrono::nanoseconds::max() ? nullptr : &timeout, nullptr);
}

}  // namespace dlfs::block
