// The io_uring engine: no lock and no allocation a piece, one io_uring_enter a kick(), none in reap() while nothing is
// done.
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "block/engine.h"

namespace dlfs::block {
namespace {

constexpr std::size_t kMaxRegisteredBytes = 1u << 30;  // the kernel's limit for one registered buffer

class UringEngine final : public Engine {
 public:
  UringEngine(int fd, std::uint32_t depth) : fd_(fd), depth_(depth) {}
  ~UringEngine() override {
    if (open_) close();
  }

  // 0 or an errno.
  int open() {
    if (const int error = set_up_ring(); error != 0) return error;
    open_ = true;
    if (!has_operations()) return ENOSYS;
    // A filter may allow io_uring_setup and forbid io_uring_enter: run one operation to know.
    queue(Piece{});
    if (const int submitted = io_uring_submit_and_wait(&ring_, 1); submitted < 0) return -submitted;
    Finished finished;
    if (reap(std::span(&finished, 1)) != 1) return EIO;
    fixed_file_ = io_uring_register_files(&ring_, &fd_, 1) == 0;
    return 0;
  }

  const char* name() const noexcept override { return "io_uring"; }

  void queue(const Piece& piece) noexcept override {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    DLFS_CHECK(sqe != nullptr);  // the ring has `depth` entries, and at most that many pieces are in flight
    const int file = fixed_file_ ? 0 : fd_;
    switch (piece.kind) {
      case PieceKind::kNothing:
        io_uring_prep_nop(sqe);
        break;
      case PieceKind::kFlush:
        io_uring_prep_fsync(sqe, file, IORING_FSYNC_DATASYNC);
        break;
      case PieceKind::kRead:
        prepare_read(sqe, file, piece);
        break;
      case PieceKind::kWrite:
        prepare_write(sqe, file, piece);
        break;
    }
    if (fixed_file_ && piece.kind != PieceKind::kNothing) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, piece.token);
  }

  // A failure (EAGAIN, EBUSY, EINTR) leaves entries in the queue: unstarted() says so, and the next kick() tries again.
  void kick() noexcept override {
    if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
  }

  std::size_t unstarted() const noexcept override { return io_uring_sq_ready(&ring_); }

  std::size_t reap(std::span<Finished> into) noexcept override {
    std::array<io_uring_cqe*, 64> entries;
    const auto wanted = static_cast<unsigned>(std::min(into.size(), entries.size()));
    const unsigned count = io_uring_peek_batch_cqe(&ring_, entries.data(), wanted);
    for (unsigned i = 0; i < count; ++i) {
      into[i] = {.token = static_cast<std::uint32_t>(io_uring_cqe_get_data64(entries[i])), .result = entries[i]->res};
    }
    io_uring_cq_advance(&ring_, count);
    return count;
  }

  // The ring's own descriptor is readable exactly while completions are unread: unlike a registered eventfd it needs no
  // write a completion and no read to quieten it.
  int wait_descriptor() const noexcept override { return ring_.ring_fd; }

  // Pinning costs locked memory (RLIMIT_MEMLOCK), and where the kernel refuses, plain reads do the same job.
  void register_memory(std::span<std::byte> memory) noexcept override {
    if (!regions_.empty() && io_uring_unregister_buffers(&ring_) != 0) return;
    if (memory.empty()) {
      regions_.clear();
      return;
    }
    std::vector<iovec> all = regions_;
    for (std::size_t at = 0; at < memory.size(); at += kMaxRegisteredBytes) {
      all.push_back({memory.data() + at, std::min(kMaxRegisteredBytes, memory.size() - at)});
    }
    if (io_uring_register_buffers(&ring_, all.data(), static_cast<unsigned>(all.size())) == 0) {
      regions_ = std::move(all);
      return;
    }
    if (!regions_.empty() &&
        io_uring_register_buffers(&ring_, regions_.data(), static_cast<unsigned>(regions_.size())) != 0) {
      regions_.clear();
    }
  }

  // queue_exit() only unmaps and closes this process's copies; what is registered is the parent's.
  void abandon() noexcept override {
    fixed_file_ = false;
    regions_.clear();
  }

 private:
  int set_up_ring() {
    // Completions are run when this thread next enters the kernel instead of by an interrupt; the flag tells reap()
    // when to enter. IORING_SETUP_SINGLE_ISSUER is not asked for: a handle may be opened by one thread and used by
    // another.
    io_uring_params params{};
    params.flags = IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    int error = io_uring_queue_init_params(depth_, &ring_, &params);
    if (error == -EINVAL) {  // before Linux 5.19
      params = {};
      params.flags = IORING_SETUP_CLAMP;
      error = io_uring_queue_init_params(depth_, &ring_, &params);
    }
    return -error;
  }

  bool has_operations() {
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return false;
    bool all = true;
    for (int op : {IORING_OP_NOP, IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC}) {
      all = all && io_uring_opcode_supported(probe, op) != 0;
    }
    io_uring_free_probe(probe);
    return all;
  }

  // The registered buffer that holds the whole piece, or -1.
  int region_of(const Piece& piece) const noexcept {
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      const auto* begin = static_cast<const std::byte*>(regions_[i].iov_base);
      if (piece.data >= begin && piece.data + piece.length_bytes <= begin + regions_[i].iov_len)
        return static_cast<int>(i);
    }
    return -1;
  }

  void prepare_read(io_uring_sqe* sqe, int file, const Piece& piece) noexcept {
    const int region = region_of(piece);
    if (region >= 0) {
      io_uring_prep_read_fixed(sqe, file, piece.data, piece.length_bytes, piece.offset_bytes, region);
    } else {
      io_uring_prep_read(sqe, file, piece.data, piece.length_bytes, piece.offset_bytes);
    }
  }

  void prepare_write(io_uring_sqe* sqe, int file, const Piece& piece) noexcept {
    const int region = region_of(piece);
    if (region >= 0) {
      io_uring_prep_write_fixed(sqe, file, piece.data, piece.length_bytes, piece.offset_bytes, region);
    } else {
      io_uring_prep_write(sqe, file, piece.data, piece.length_bytes, piece.offset_bytes);
    }
  }

  // The kernel takes a closed ring apart some time later. What was registered is given back now, so that the file
  // system under the file can be unmounted when the process ends. A forked child has only copies.
  void close() noexcept {
    if (fixed_file_) io_uring_unregister_files(&ring_);
    if (!regions_.empty()) io_uring_unregister_buffers(&ring_);
    io_uring_queue_exit(&ring_);
  }

  int fd_;
  std::uint32_t depth_;
  io_uring ring_{};
  bool open_ = false;
  bool fixed_file_ = false;
  std::vector<iovec> regions_;
};

}  // namespace

Result<std::unique_ptr<Engine>> make_uring_engine(int fd, std::uint32_t depth) {
  auto engine = std::make_unique<UringEngine>(fd, depth);
  if (const int error = engine->open(); error != 0) {
    return Error{Code::kUnsupported, fmt::format("io_uring is not to be had here ({})", std::strerror(error)), error};
  }
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace dlfs::block
