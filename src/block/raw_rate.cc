#include "block/raw_rate.h"

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "base/arena.h"
#include "base/error.h"
#include "base/mix.h"
#include "base/try.h"

namespace dlfs::block {
namespace {

using Clock = std::chrono::steady_clock;

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Result<std::uint64_t> count_of_units(const BlockDevice& device, const RawRateOptions& options) {
  const Geometry& geometry = device.geometry();
  if (options.request_bytes == 0 || options.request_bytes % geometry.block_bytes != 0 ||
      options.first_byte % geometry.block_bytes != 0) {
    return base::make_error(
        Code::kInvalidArgument, "reads of {} bytes from offset {} do not fit {}; use multiples of {} bytes",
        options.request_bytes, options.first_byte, base::escape(device.url()), geometry.block_bytes);
  }
  const std::uint64_t left = geometry.capacity_bytes - std::min(options.first_byte, geometry.capacity_bytes);
  const std::uint64_t span = options.span_bytes == 0 ? left : std::min(options.span_bytes, left);
  const std::uint64_t units = span / options.request_bytes;
  if (units == 0) {
    return base::make_error(Code::kInvalidArgument, "{} holds no {} bytes behind offset {}; read less at a time",
                            base::escape(device.url()), options.request_bytes, options.first_byte);
  }
  return units;
}

class Measurement {
 public:
  Measurement(BlockDevice& device, const RawRateOptions& options, std::uint64_t units, std::uint32_t depth,
              std::span<std::byte> memory)
      : device_(device), options_(options), units_(units), memory_(memory), prng_(options.seed) {
    for (std::uint32_t i = 0; i < depth; ++i) idle_.push_back({.op = Op::kRead, .user_data = i});
    busy_.resize(depth);
    completions_.resize(depth);
  }

  Result<RawRate> run() {
    device_.register_memory(memory_);  // pins pages: not the device's time
    const double cpu_before = thread_cpu_seconds();
    const Clock::time_point begin = Clock::now();
    end_ = begin + options_.duration;
    last_ = begin;
    while (true) {
      submit();
      if (device_.in_flight() == 0) break;
      DLFS_TRY(collect());
    }
    rate_.seconds = std::max(1e-9, std::chrono::duration<double>(last_ - begin).count());
    rate_.cpu_seconds = thread_cpu_seconds() - cpu_before;
    rate_.bytes_per_s = static_cast<double>(rate_.bytes) / rate_.seconds;
    rate_.requests_per_s = static_cast<double>(rate_.requests) / rate_.seconds;
    rate_.engine = device_.engine();
    rate_.notes = device_.notes();
    return rate_;
  }

 private:
  bool enough() const {
    if (options_.total_bytes != 0 && submitted_bytes_ >= options_.total_bytes) return true;
    return submitted_bytes_ > 0 && Clock::now() >= end_;
  }

  void submit() {
    std::size_t count = 0;
    if (!enough()) {
      for (Request& request : idle_) {
        if (options_.total_bytes != 0 && submitted_bytes_ >= options_.total_bytes) break;
        request.data = memory_.data() + request.user_data * stride();
        request.length_bytes = options_.request_bytes;
        request.offset_bytes = options_.first_byte + prng_.below(units_) * options_.request_bytes;
        busy_[request.user_data] = request;
        submitted_bytes_ += options_.request_bytes;
        ++count;
      }
    }
    const std::size_t taken = device_.submit(std::span(idle_).first(count));
    submitted_bytes_ -= (count - taken) * options_.request_bytes;
    idle_.erase(idle_.begin(), idle_.begin() + static_cast<std::ptrdiff_t>(taken));
  }

  Result<void> collect() {
    const std::size_t count = device_.poll(completions_);
    for (const Completion& done : std::span(completions_).first(count)) {
      const Request& request = busy_[done.user_data];
      if (done.errno_value != 0 || done.nvme_status != 0) return completion_error(device_, request, done);
      ++rate_.requests;
      rate_.bytes += done.length_bytes;
      idle_.push_back(request);
    }
    const Clock::time_point now = Clock::now();
    if (count > 0) {
      last_ = now;
      return {};
    }
    if (now - last_ > kDefaultTimeout) {
      return base::make_error(Code::kTimedOut, "{} answered none of {} reads within {} ms; check the device",
                              base::escape(device_.url()), device_.in_flight(), kDefaultTimeout.count());
    }
    pollfd wait{.fd = device_.wait_descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, 100);
    return {};
  }

  std::uint64_t stride() const { return memory_.size() / busy_.size() / 4096 * 4096; }

  BlockDevice& device_;
  const RawRateOptions& options_;
  std::uint64_t units_;
  std::span<std::byte> memory_;
  base::Prng prng_;
  std::vector<Request> idle_;
  std::vector<Request> busy_;  // by user_data
  std::vector<Completion> completions_;
  std::uint64_t submitted_bytes_ = 0;
  Clock::time_point end_;
  Clock::time_point last_;
  RawRate rate_;
};

}  // namespace

Result<RawRate> measure_random_reads(std::string_view url, const RawRateOptions& options) {
  OpenOptions open_options;
  open_options.direct = options.direct;
  const std::uint64_t requests = options.total_bytes == 0 || options.request_bytes == 0
                                     ? options.depth
                                     : (options.total_bytes - 1) / options.request_bytes + 1;
  open_options.queue_depth =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(requests, 1, std::max(options.depth, 1u)));
  base::Arena memory;  // declared first: it outlives the device, which may still write to it after a failure
  DLFS_TRY_ASSIGN(auto device, open_device(url, open_options));
  DLFS_TRY_ASSIGN(const std::uint64_t units, count_of_units(*device, options));
  const std::uint64_t stride = (std::uint64_t{options.request_bytes} + 4095) / 4096 * 4096;
  const std::uint32_t depth = std::min(open_options.queue_depth, device->geometry().max_in_flight);
  DLFS_TRY_ASSIGN(memory, base::Arena::create(stride * depth));
  return Measurement(*device, options, units, depth, memory.bytes()).run();
}

}  // namespace dlfs::block
