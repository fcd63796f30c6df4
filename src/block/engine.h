// Engine: how one system call's worth of file I/O is run in the background. FileDevice decides what is run; engines
// know nothing of requests, alignment or the end of the file, so that a test can put a faulty one beneath a FileDevice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "block/device.h"

namespace dlfs::block {

enum class PieceKind : std::uint8_t { kRead, kWrite, kFlush, kNothing };  // kNothing: finishes with result 0 at once

// At most one pread, pwrite or fdatasync.
struct Piece {
  PieceKind kind = PieceKind::kNothing;
  std::uint32_t token = 0;  // comes back in Finished; unique among those in flight
  std::byte* data = nullptr;
  std::uint32_t length_bytes = 0;
  std::uint64_t offset_bytes = 0;
};

struct Finished {
  std::uint32_t token = 0;
  int result = 0;  // as the system call: bytes transferred, or a negative errno
};

// **Thread**: one at a time, as BlockDevice. At most `depth` pieces (given at creation) are in flight; then queue()
// cannot fail. **Lifetime**: the owner destroys it with nothing in flight, or after abandon().
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const char* name() const noexcept = 0;
  virtual void queue(const Piece& piece) noexcept = 0;  // takes effect with the next kick()
  virtual void kick() noexcept = 0;                     // starts what is queued, without blocking
  virtual std::size_t unstarted() const noexcept = 0;   // queued pieces that kick() could not start yet
  virtual std::size_t reap(std::span<Finished> into) noexcept = 0;
  virtual int wait_descriptor() const noexcept = 0;  // readable while reap() has something
  virtual void register_memory(std::span<std::byte> memory) noexcept = 0;
  virtual void abandon() noexcept = 0;  // this is a forked child: the destructor must leave the parent's work alone
};

// `fd` is borrowed. **Errors**: kUnsupported: io_uring is forbidden or missing; message and errno_value say why.
Result<std::unique_ptr<Engine>> make_uring_engine(int fd, std::uint32_t depth);
// A pool of at most kPoolThreads threads with blocking calls. **Errors**: kOutOfMemory, kIo (no threads to be had).
inline constexpr std::uint32_t kPoolThreads = 8;
Result<std::unique_ptr<Engine>> make_thread_engine(int fd, std::uint32_t depth);

}  // namespace dlfs::block
