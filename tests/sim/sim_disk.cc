#include "sim/sim_disk.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dlfs::sim {
namespace {

using block::Completion;
using block::Op;
using block::Request;

constexpr double kPlanted = 0.02;  // how often a planted fault strikes

constexpr std::array kPlants{std::pair{Plant::kWrongOffset, "wrong-offset"}, std::pair{Plant::kHalfRead, "half-read"},
                             std::pair{Plant::kLostFlush, "lost-flush"},
                             std::pair{Plant::kLostCompletion, "lost-completion"},
                             std::pair{Plant::kUnverified, "unverified"}};

class SimDevice final : public block::BlockDevice {
 public:
  SimDevice(SimDisk& disk, bool write, std::shared_ptr<const Process> process)
      : disk_(disk), process_(std::move(process)) {
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
    const auto most = static_cast<std::uint64_t>(std::min<std::int64_t>(longest.count(), 3600 * kSecond));
    disk_.world.run(disk_.world.now_ns() + most, [&] { return any_due(); });
  }

  std::size_t submit(std::span<const Request> requests) noexcept override {
    const std::size_t count = std::min<std::size_t>(requests.size(), geometry_.max_in_flight - pending_.size());
    for (const Request& request : requests.first(count)) {
      std::uint64_t due_ns = disk_.world.now_ns() + disk_.world.between(20'000, 200'000);
      if (disk_.world.chance(disk_.faults.slow)) {
        disk_.world.mark("slow request", request.offset_bytes);
        due_ns += disk_.world.prng.below(disk_.faults.slow_ns);
      }
      if (request.op == Op::kWrite && disk_.world.chance(disk_.faults.strike))
        disk_.world.at(disk_.world.now_ns() + disk_.world.between(1, 100'000), disk_.faults.struck);
      pending_.push_back({request, due_ns});
      disk_.world.expect(due_ns);
    }
    return count;
  }

  std::size_t poll(std::span<Completion> completions) noexcept override {
    std::size_t count = 0;
    for (std::size_t i = 0; i < pending_.size() && count < completions.size();) {
      if (!process_->dead && pending_[i].due_ns > disk_.world.now_ns()) {
        ++i;
        continue;
      }
      const Pending one = pending_[i];
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
      disk_.world.progress();
      completions[count++] = process_->dead ? leave_behind(one) : run(one.request);
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

  Completion leave_behind(const Pending& one) {
    if (one.request.op == Op::kWrite && one.due_ns > disk_.world.now_ns() && disk_.world.chance(0.5))
      disk_.leave_behind(one.request, one.due_ns);
    return {.user_data = one.request.user_data, .errno_value = EIO};
  }

  Completion run(const Request& request) noexcept {
    World& world = disk_.world;
    Completion completion{.user_data = request.user_data};
    const bool write = request.op == Op::kWrite;
    if (world.chance(disk_.faults.error)) {
      world.befell("the drive failed a request");
      completion.errno_value = EIO;
    } else if (world.chance(disk_.faults.interrupted)) {
      world.mark("interrupted request", request.offset_bytes);
      completion.errno_value = EAGAIN;
    } else if (request.op == Op::kFlush) {
      disk_.flush();
    } else if (request.offset_bytes > disk_.bytes.size() ||
               request.length_bytes > disk_.bytes.size() - request.offset_bytes) {
      completion.errno_value = write ? ENOSPC : EIO;
    } else {
      completion.length_bytes = request.length_bytes;
      if (write) {
        disk_.write(request.offset_bytes, request.data, request.length_bytes);
      } else {
        read(request);
      }
    }
    return completion;
  }

  void read(const Request& request) {
    std::uint64_t from = request.offset_bytes;
    std::uint32_t length = request.length_bytes;
    const bool strikes = disk_.plant != Plant::kNone && disk_.world.chance(kPlanted);
    const bool misplaced = disk_.plant == Plant::kWrongOffset || disk_.plant == Plant::kUnverified;
    if (strikes && misplaced && from >= disk_.block_bytes) from -= disk_.block_bytes;
    if (strikes && disk_.plant == Plant::kHalfRead) length /= 2;
    std::memcpy(request.data, disk_.bytes.data() + from, length);
  }

  SimDisk& disk_;
  std::shared_ptr<const Process> process_;
  block::Geometry geometry_;
  std::string url_ = "mem:simulated", notes_;
  std::vector<Pending> pending_;
};

}  // namespace

const char* plant_name(Plant plant) noexcept {
  for (const auto& [value, name] : kPlants) {
    if (value == plant) return name;
  }
  return "none";
}

bool plant_of(const std::string& name, Plant& plant) noexcept {
  for (const auto& [value, known] : kPlants) {
    if (name != known) continue;
    plant = value;
    return true;
  }
  return false;
}

std::unique_ptr<block::BlockDevice> SimDisk::open(bool write, std::shared_ptr<const Process> process) {
  return std::make_unique<SimDevice>(*this, write, std::move(process));
}

void SimDisk::write(std::uint64_t offset_bytes, const std::byte* from, std::uint32_t length_bytes) {
  for (std::uint32_t at = 0; at < length_bytes; at += block_bytes) {
    const auto old = bytes.begin() + static_cast<std::ptrdiff_t>(offset_bytes + at);
    unflushed_.push_back({offset_bytes + at, {old, old + block_bytes}});
  }
  std::memcpy(bytes.data() + offset_bytes, from, length_bytes);
}

void SimDisk::flush() {
  if (plant != Plant::kLostFlush) unflushed_.clear();
}

void SimDisk::leave_behind(const Request& request, std::uint64_t due_ns) {
  world.mark("write that outlives its process", request.offset_bytes);
  auto orphan =
      std::make_shared<const Block>(Block{request.offset_bytes, {request.data, request.data + request.length_bytes}});
  orphans_.push_back(orphan);
  world.at(due_ns, [this, orphan] {
    if (std::erase(orphans_, orphan) == 0) return;  // the power failed
    write(orphan->offset_bytes, orphan->bytes.data(), static_cast<std::uint32_t>(orphan->bytes.size()));
  });
}

void SimDisk::lose_power() {
  for (const auto& orphan : std::exchange(orphans_, {})) {
    for (std::uint32_t at = 0; at < orphan->bytes.size(); at += block_bytes) {
      if (world.chance(0.5)) write(orphan->offset_bytes + at, orphan->bytes.data() + at, block_bytes);
    }
  }
  // Backwards, so that the oldest of several writes to a block has the last word where all of them are lost.
  for (std::size_t i = unflushed_.size(); i-- > 0;) {
    if (world.chance(0.5))
      std::copy(unflushed_[i].bytes.begin(), unflushed_[i].bytes.end(),
                bytes.begin() + static_cast<std::ptrdiff_t>(unflushed_[i].offset_bytes));
  }
  unflushed_.clear();
}

}  // namespace dlfs::sim
