// BlockDevice: asynchronous reads and writes at byte offsets of one device. Volumes and readers see devices only
// through this.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dlfs/result.h"

namespace dlfs::block {

// What a device answers about itself. Offsets and lengths of requests are multiples of block_bytes, memory addresses of
// memory_alignment_bytes: submit() fails others with errno EINVAL in their completion. A read may extend to
// capacity_bytes rounded up to block_bytes: the bytes past capacity_bytes (a regular file's odd tail) read as zero.
struct Geometry {
  std::uint64_t capacity_bytes = 0;            // readable bytes, exact; for a growable device what it holds now
  std::uint32_t block_bytes = 1;               // power of two
  std::uint32_t memory_alignment_bytes = 1;    // power of two
  std::uint32_t preferred_transfer_bytes = 0;  // one request of this size reaches the device's speed
  std::uint32_t max_transfer_bytes = 0;        // longer requests are split by submit(), invisibly
  std::uint32_t max_in_flight = 0;             // requests that submit() accepts before it returns short
  bool read_only = false;
  bool growable = false;  // a regular file: a write past the end extends it
  // A device that gets over faults of its own (reconnects, takes other paths) fails requests by itself within this
  // time; who waits for it should wait longer. Zero: it does no such thing.
  std::chrono::milliseconds patience{0};
};

enum class Op : std::uint8_t { kRead, kWrite, kFlush };  // kFlush: all writes completed before it are durable; no data

struct Request {
  Op op = Op::kRead;
  std::byte* data = nullptr;  // owned by the caller until the completion has been polled; not written by kWrite
  std::uint32_t length_bytes = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t user_data = 0;  // comes back in the completion
};

struct Completion {
  std::uint64_t user_data = 0;
  // 0: all bytes transferred; never a short success. EINVAL: misaligned. EIO: a read past the end, or a file that
  // shrank after it was opened. EROFS: a write through a handle opened for reading. ENOSPC: a write past the end of a
  // device that cannot grow, or a full disk. Others are the device's own.
  int errno_value = 0;
  std::uint16_t nvme_status = 0;
  std::uint32_t length_bytes = 0;  // bytes transferred: all when errno_value is 0, else those before the failure
};

struct OpenOptions {
  bool write = false;
  bool create = false;  // make a regular file that does not exist (implies write)
  bool direct = true;   // try O_DIRECT; falls back, and says so once in notes()
  std::uint32_t queue_depth = 128;
};

// **Thread**: one thread at a time; each poller opens its own handle. The thread that submits also polls; a handle
// changes hands only when nothing is in flight. **Lifetime**: destruction waits for what is in flight. **Fork**: in a
// forked child the handle is dead, submit() and poll() return 0; destroying it there is safe and leaves the parent's
// requests alone.
class BlockDevice {
 public:
  virtual ~BlockDevice() = default;
  virtual const Geometry& geometry() const noexcept = 0;
  virtual const std::string& url() const noexcept = 0;  // canonical; open_device(url()) reaches the same bytes
  // Fallbacks that were taken ("io_uring is forbidden here (EPERM): using a pool of threads"), one a line; empty when
  // none.
  virtual const std::string& notes() const noexcept = 0;
  virtual const char* engine() const noexcept = 0;  // "io_uring", "threads", "memory"

  // Takes a prefix of `requests` and returns its length; fewer than all when max_in_flight is reached. Never blocks.
  virtual std::size_t submit(std::span<const Request> requests) noexcept = 0;
  // Moves finished requests into `completions`, in any order; returns how many. Never blocks.
  virtual std::size_t poll(std::span<Completion> completions) noexcept = 0;
  // Readable when poll() may have something (level-triggered until polled empty). Valid for the device's lifetime. Only
  // for poll(2), epoll or select: its bytes belong to the device. Sleeping on it may end with EINTR: call poll() and
  // sleep again.
  virtual int wait_descriptor() const noexcept = 0;
  virtual std::size_t in_flight() const noexcept = 0;
  // A hint that requests will use this memory (registered buffers); an empty span forgets all that was named before.
  // The memory must outlive the device, or be forgotten first: what is mapped at its address later would be read and
  // written in vain. Ignored while requests are in flight. May do nothing.
  virtual void register_memory(std::span<std::byte> memory) noexcept = 0;

  // The clock that waits for this device are measured with, and the way to sleep for it; a simulated device brings its
  // own. wait() returns once wait_descriptor() or `other` (-1: none) is readable, after `longest`, on a signal, or
  // earlier for no reason.
  virtual std::chrono::steady_clock::time_point now() const noexcept { return std::chrono::steady_clock::now(); }
  virtual void wait(std::chrono::nanoseconds longest, int other = -1) noexcept;

  // How often the device was lost and found again since it was opened. A device that lost power in between may have
  // forgotten writes that it had acknowledged and not flushed. 0 for local devices: their power is ours.
  virtual std::uint64_t interruptions() const noexcept { return 0; }

  // More than errno says about a failed request: a clause for completion_error(); empty when there is no more.
  virtual std::string explain(const Completion& /*completion*/) const { return {}; }

  // The bytes of a range, where the device has them in memory and may let others read them there (memory devices):
  // saves a target one copy. Empty: read them with submit(). They change when somebody writes to them.
  virtual std::span<const std::byte> view(std::uint64_t /*offset_bytes*/, std::uint32_t /*length_bytes*/) noexcept {
    return {};
  }
};

// Opens `url` ("PATH", "file:PATH", "mem:NAME[?size=1GiB]", "null:1GiB", "nvme-tcp://HOST:PORT/NQN"; see block/url.h).
// A memory device lives in this process, shared by name, as long as any handle to it is open; `size` makes it when it
// does not exist. **Blocks**. **Errors**: kNotFound, kInvalidArgument (unknown scheme: names the known ones),
// kReadOnly, kUnsupported, kIo.
Result<std::unique_ptr<BlockDevice>> open_device(std::string_view url, const OpenOptions& options = {});

// How long to wait for a request when `timeout` would do for a plain device: longer where the device has patience.
std::chrono::milliseconds patient(const BlockDevice& device, std::chrono::milliseconds timeout) noexcept;

// Synchronous conveniences on top of submit and poll, for mount and tools. Alignment is theirs to keep as well.
// Precondition: nothing is in flight (else kBusy). **Errors**: those of completion_error(); kTimedOut after `timeout`
// without a completion (naming device, operation and offset): then the memory stays the device's until it is destroyed;
// kForked in a child of the process that opened the device.
inline constexpr std::chrono::milliseconds kDefaultTimeout{30'000};
Result<void> read_all(BlockDevice& device, std::uint64_t offset_bytes, std::span<std::byte> into,
                      std::chrono::milliseconds timeout = kDefaultTimeout);
Result<void> write_all(BlockDevice& device, std::uint64_t offset_bytes, std::span<const std::byte> from,
                       std::chrono::milliseconds timeout = kDefaultTimeout);
Result<void> flush(BlockDevice& device, std::chrono::milliseconds timeout = kDefaultTimeout);

// The sentence for a failed completion: device URL, operation, offset, errno text or NVMe status.
Error completion_error(const BlockDevice& device, const Request& request, const Completion& completion);

}  // namespace dlfs::block
