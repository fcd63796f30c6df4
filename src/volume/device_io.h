// Waiting for a device, and reading a long range of it at its full speed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/arena.h"
#include "block/device.h"

namespace dlfs::volume {

// How devices are opened: block::open_device, or a twin that counts, fails or forgets (tests).
using OpenDevice =
    std::function<Result<std::unique_ptr<block::BlockDevice>>(std::string_view, const block::OpenOptions&)>;
OpenDevice default_open_device();

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) noexcept { return value / unit * unit; }

// Moves at least one completion into `into`. **Blocks** at most `timeout`. **Errors**: kTimedOut, kIo.
Result<std::size_t> wait_completions(block::BlockDevice& device, std::span<block::Completion> into,
                                     std::chrono::milliseconds timeout);

// The unit that offsets and lengths of requests must be multiples of; memory from an Arena is always aligned well
// enough.
std::uint64_t request_unit(const block::Geometry& geometry) noexcept;

// Memory that a request which timed out may still write to or read from: it is never used again. A leak, bounded by the
// number of timeouts, where anything else would be corruption.
void abandon_memory(base::Arena memory) noexcept;

// Reads a range of whole blocks into memory of its own. **Errors**: kIo, kTimedOut, kOutOfMemory.
Result<base::Arena> read_range(block::BlockDevice& device, std::uint64_t offset_bytes, std::uint64_t length_bytes,
                               std::chrono::milliseconds timeout);

// Reads [begin, end) of a device in order, piece by piece, with several pieces in flight. **Thread**: one.
class ReadStream {
 public:
  struct Piece {
    std::uint64_t offset_bytes = 0;
    std::span<const std::byte> bytes;  // valid until the next call of next()
    bool failed = false;               // `error` says why; the stream goes on behind it
    Error error;
  };
  // `memory` is the ring of pieces; when it is at least as long as the range nothing in it is overwritten, and piece i
  // lies at i * piece_bytes: reading in place. begin is a multiple of the device's block; piece_bytes as well. The
  // range may end anywhere: what is read behind its end up to a block is not shown. **Lifetime**: the device outlives
  // the stream.
  ReadStream(block::BlockDevice& device, base::Arena memory, std::uint32_t piece_bytes, std::uint64_t begin,
             std::uint64_t end, std::chrono::milliseconds timeout);
  ~ReadStream();  // waits for what is in flight, at most the timeout
  ReadStream(const ReadStream&) = delete;
  ReadStream& operator=(const ReadStream&) = delete;

  bool done() const noexcept { return delivered_ == pieces_; }
  // The next piece. Precondition: !done(). **Errors**: kTimedOut, kIo: the device does not answer at all.
  Result<Piece> next();
  base::Arena take_memory() && { return std::move(memory_); }  // precondition: done()

 private:
  struct State {
    bool finished = false;
    block::Completion completion;
  };
  block::Request request_of(std::uint64_t piece) const noexcept;
  std::uint64_t length_of(std::uint64_t piece) const noexcept;
  void submit_more() noexcept;

  block::BlockDevice& device_;
  base::Arena memory_;
  std::uint64_t piece_bytes_, begin_, end_, pieces_, slots_;
  std::uint64_t submitted_ = 0, delivered_ = 0, in_flight_ = 0;
  bool shown_ = false;         // piece delivered_ - 1 is still with the caller
  std::vector<State> states_;  // by piece % slots_
  std::chrono::milliseconds timeout_;
};

}  // namespace dlfs::volume
