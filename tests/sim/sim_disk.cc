#include "sim/sim_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dlfs::sim {
namespace {

using block::Completion;
using block::Op;
using block::Request;

class SimDevice final : public block::BlockDevice {
 public:
  SimDevice(SimDisk& disk, bool write, std::shared_ptr<bool> dead) : disk_(disk), dead_(std::move(dead)) {
    geometry_ = {.capacity_bytes = disk.bytes.size(),
                 .block_bytes = disk.block_bytes,
                 .memory_alignment_bytes = 1,
                 .preferred_transfer_bytes = 256u << 10,
                 .max_transfer_bytes = 1u << 20,
                 .max_in_flight = 128,
                 .read_only = !write};
  }
  const block::Geometry& geometry() const noexcept override { return geometry_; }
  const std::string& url() const noexcept override { return url_; }
  const std::string& notes() const noexcept override { return notes_; }
  const char* engine() const noexcept override { return "simulated"; }
  int wait_descriptor() const noexcept override { return -1; }
  std::size_t in_flight() const noexcept override { return pending_.size(); }
  void register_memory(std::span<std::byte>) noexcept override {}
  std::chrono::steady_clock::time_point now() const noexcept override {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(disk_.world.now_ns()));
  }
  void wait(std::chrono::nanoseconds longest, int) noexcept override {
    const std::uint64_t most = static_cast<std::uint64_t>(std::min<std::int64_t>(longest.count(), 3'600'000'000'000));
    disk_.world.run(disk_.world.now_ns() + most, [&] { return any_due(); });
  }

  std::size_t submit(std::span<const Request> requests) noexcept override {
    const std::size_t count = std::min<std::size_t>(requests.size(), geometry_.max_in_flight - pending_.size());
    for (const Request& request : requests.first(count)) {
      std::uint64_t due_ns = disk_.world.now_ns() + disk_.world.between(20'000, 200'000);
      if (disk_.world.chance(disk_.faults.slow)) due_ns += disk_.world.prng.below(disk_.faults.slow_ns);
      pending_.push_back({request, due_ns});
      disk_.world.expect(due_ns);
    }
    return count;
  }

  std::size_t poll(std::span<Completion> completions) noexcept override {
    std::size_t count = 0;
    for (std::size_t i = 0; i < pending_.size() && count < completions.size();) {
      const bool dead = *dead_;
      if (!dead && pending_[i].due_ns > disk_.world.now_ns()) {
        ++i;
        continue;
      }
      const Request request = pending_[i].request;
      disk_.world.progress();
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
      completions[count++] = dead ? Completion{.user_data = request.user_data, .errno_value = EIO} : run(request);
    }
    return count;
  }

 private:
  struct Pending {
    Request request;
    std::uint64_t due_ns;
  };
  bool any_due() const noexcept {
    return std::any_of(pending_.begin(), pending_.end(),
                       [&](const Pending& one) { return one.due_ns <= disk_.world.now_ns(); });
  }

  Completion run(const Request& request) noexcept {
    Completion completion{.user_data = request.user_data};
    if (disk_.world.chance(disk_.faults.error)) {
      disk_.world.note("the drive failed a request");
      completion.errno_value = EIO;
      return completion;
    }
    if (disk_.world.chance(disk_.faults.interrupted)) {
      completion.errno_value = EAGAIN;
      return completion;
    }
    if (request.op == Op::kFlush) {
      disk_.unflushed.clear();
      return completion;
    }
    if (request.offset_bytes > disk_.bytes.size() || request.length_bytes > disk_.bytes.size() - request.offset_bytes) {
      completion.errno_value = request.op == Op::kWrite ? ENOSPC : EIO;
      return completion;
    }
    completion.length_bytes = request.length_bytes;
    if (request.op == Op::kWrite) {
      write(request);
      return completion;
    }
    std::uint64_t from = request.offset_bytes;
    const bool wrong = disk_.plant == Plant::kWrongOffset || disk_.plant == Plant::kUnverified;
    if (wrong && disk_.world.chance(0.02) && from >= disk_.block_bytes) from -= disk_.block_bytes;  // a planted fault
    std::memcpy(request.data, disk_.bytes.data() + from, request.length_bytes);
    return completion;
  }

  void write(const Request& request) {
    for (std::uint32_t at = 0; at < request.length_bytes; at += disk_.block_bytes) {
      const auto from = disk_.bytes.begin() + static_cast<std::ptrdiff_t>(request.offset_bytes + at);
      disk_.unflushed.push_back({request.offset_bytes + at, {from, from + disk_.block_bytes}});
    }
    std::memcpy(disk_.bytes.data() + request.offset_bytes, request.data, request.length_bytes);
  }

  SimDisk& disk_;
  std::shared_ptr<bool> dead_;
  block::Geometry geometry_;
  std::string url_ = "mem:simulated", notes_;
  std::vector<Pending> pending_;
};

}  // namespace

std::unique_ptr<block::BlockDevice> SimDisk::open(bool write, std::shared_ptr<bool> dead) {
  return std::make_unique<SimDevice>(*this, write, std::move(dead));
}

void SimDisk::lose_power() {
  // Backwards, so that the oldest of several writes to a block has the last word where all of them are lost.
  for (std::size_t i = unflushed.size(); i-- > 0;) {
    if (world.chance(0.5))
      std::copy(unflushed[i].bytes.begin(), unflushed[i].bytes.end(),
                bytes.begin() + static_cast<std::ptrdiff_t>(unflushed[i].offset));
  }
  unflushed.clear();
}

}  // namespace dlfs::sim
