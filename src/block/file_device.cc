#include "block/file_device.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/try.h"

namespace dlfs::block {
namespace {

// Interrupted or refused for now (EINTR, EAGAIN) is tried again; so often in a row it is a failure after all.
constexpr std::uint32_t kMaxRetries = 1000;
constexpr std::uint64_t kMaxOffset = std::numeric_limits<std::int64_t>::max();

}  // namespace

FileDevice::FileDevice(OpenedFile file, std::unique_ptr<Engine> engine)
    : file_(std::move(file)), engine_(std::move(engine)), slots_(file_.geometry.max_in_flight) {
  free_.reserve(slots_.size());
  for (std::size_t i = slots_.size(); i > 0; --i) free_.push_back(static_cast<std::uint32_t>(i - 1));
}

FileDevice::~FileDevice() {
  if (guard_.forked()) {
    engine_->abandon();
    return;
  }
  std::array<Completion, 64> completions;
  // What the kernel refuses to start is not waited for: it touches nobody's memory.
  while (in_flight_ > engine_->unstarted()) {
    if (poll(completions) > 0) continue;
    pollfd wait{.fd = engine_->wait_descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, 100);
  }
}

std::size_t FileDevice::submit(std::span<const Request> requests) noexcept {
  if (guard_.forked()) return 0;
  const std::size_t count = std::min(requests.size(), free_.size());
  for (const Request& request : requests.first(count)) {
    const std::uint32_t token = free_.back();
    free_.pop_back();
    slots_[token] = Slot{.request = request, .error = check(request)};
    issue(token);
  }
  in_flight_ += count;
  if (count > 0) engine_->kick();
  return count;
}

std::size_t FileDevice::poll(std::span<Completion> completions) noexcept {
  if (in_flight_ == 0 || guard_.forked()) return 0;
  std::array<Finished, 64> finished;
  std::size_t produced = 0;
  while (produced < completions.size()) {
    const std::size_t wanted = std::min(finished.size(), completions.size() - produced);
    const std::size_t count = engine_->reap(std::span(finished).first(wanted));
    for (const Finished& piece : std::span(finished).first(count)) {
      Slot& slot = slots_[piece.token];
      if (!advance(slot, piece.result)) {
        issue(piece.token);
        continue;
      }
      completions[produced++] = {.user_data = slot.request.user_data,
                                 .errno_value = slot.error,
                                 .nvme_status = 0,
                                 .length_bytes = slot.done_bytes};
      free_.push_back(piece.token);
      --in_flight_;
    }
    if (engine_->unstarted() > 0) engine_->kick();
    if (count < wanted) break;
  }
  return produced;
}

void FileDevice::register_memory(std::span<std::byte> memory) noexcept {
  // The kernel waits for all that is in flight before it changes the table.
  if (in_flight_ == 0 && !guard_.forked()) engine_->register_memory(memory);
}

int FileDevice::check(const Request& request) noexcept {
  if (request.op == Op::kFlush) return 0;
  const Geometry& geometry = file_.geometry;
  const bool write = request.op == Op::kWrite;
  if (write && geometry.read_only) return EROFS;
  const auto address = reinterpret_cast<std::uintptr_t>(request.data);
  if ((request.offset_bytes | request.length_bytes) % geometry.block_bytes != 0 ||
      address % geometry.memory_alignment_bytes != 0 || (request.data == nullptr && request.length_bytes > 0)) {
    return EINVAL;
  }
  if (request.offset_bytes > kMaxOffset - request.length_bytes) return write ? EFBIG : EIO;
  if (write && geometry.growable) return 0;
  if (!reaches_past_end(request.offset_bytes + request.length_bytes)) return 0;
  return write ? ENOSPC : EIO;
}

bool FileDevice::reaches_past_end(std::uint64_t end_bytes) noexcept {
  Geometry& geometry = file_.geometry;
  const auto past = [&] {
    return end_bytes > geometry.capacity_bytes && end_bytes - geometry.capacity_bytes >= geometry.block_bytes;
  };
  if (!past()) return false;
  struct stat status = {};  // another handle may have made the file longer
  if (file_.regular && fstat(file_.fd.get(), &status) == 0) {
    geometry.capacity_bytes = std::max(geometry.capacity_bytes, static_cast<std::uint64_t>(status.st_size));
  }
  return past();
}

void FileDevice::issue(std::uint32_t token) noexcept {
  Slot& slot = slots_[token];
  const Request& request = slot.request;
  Piece piece{.token = token};
  slot.direct = file_.direct;
  if (slot.error != 0 || (request.op != Op::kFlush && request.length_bytes == 0)) {
    piece.kind =
        PieceKind::kNothing;  // the result comes through the engine, so that the descriptor tells of it as well
  } else if (request.op == Op::kFlush) {
    piece.kind = PieceKind::kFlush;
  } else {
    piece.kind = request.op == Op::kRead ? PieceKind::kRead : PieceKind::kWrite;
    piece.data = request.data + slot.done_bytes;
    piece.length_bytes = std::min(request.length_bytes - slot.done_bytes, file_.geometry.max_transfer_bytes);
    piece.offset_bytes = request.offset_bytes + slot.done_bytes;
  }
  engine_->queue(piece);
}

bool FileDevice::advance(Slot& slot, int result) noexcept {
  if (slot.error != 0) return true;
  if (result < 0) return advance_failed(slot, -result);
  const Request& request = slot.request;
  if (request.op == Op::kFlush || request.length_bytes == 0) return true;
  if (result == 0) return advance_at_end(slot);

  slot.done_bytes += static_cast<std::uint32_t>(result);
  Geometry& geometry = file_.geometry;
  const std::uint64_t reached = request.offset_bytes + slot.done_bytes;
  if (request.op == Op::kWrite) geometry.capacity_bytes = std::max(geometry.capacity_bytes, reached);
  if (slot.done_bytes == request.length_bytes) return true;
  if (request.op == Op::kRead && reached >= geometry.capacity_bytes) return advance_at_end(slot);
  // What O_DIRECT left in the middle of a block is transferred again.
  const auto odd = static_cast<std::uint32_t>(slot.done_bytes % geometry.block_bytes);
  slot.done_bytes -= odd;
  if (odd == static_cast<std::uint32_t>(result)) return retry(slot, EIO);
  slot.retries = 0;
  return false;
}

bool FileDevice::advance_failed(Slot& slot, int error) noexcept {
  if (error == EINTR || error == EAGAIN) return retry(slot, error);
  if (error == EINVAL && slot.direct && slot.request.op != Op::kFlush && drop_direct()) return false;
  slot.error = error;
  return true;
}

// The file ended at slot.done_bytes: right after the last byte that it is known to have, or too early.
bool FileDevice::advance_at_end(Slot& slot) noexcept {
  const Request& request = slot.request;
  if (request.op != Op::kRead || request.offset_bytes + slot.done_bytes < file_.geometry.capacity_bytes) {
    slot.error = EIO;
    return true;
  }
  std::memset(request.data + slot.done_bytes, 0, request.length_bytes - slot.done_bytes);
  slot.done_bytes = request.length_bytes;
  return true;
}

bool FileDevice::retry(Slot& slot, int error) noexcept {
  if (++slot.retries <= kMaxRetries) return false;
  slot.error = error;
  return true;
}

// Some file systems refuse O_DIRECT only when the first real transfer comes. True: it is off now.
bool FileDevice::drop_direct() noexcept {
  if (!file_.direct) return true;  // another request found out first
  const int flags = fcntl(file_.fd.get(), F_GETFL);
  if (flags < 0 || fcntl(file_.fd.get(), F_SETFL, flags & ~O_DIRECT) < 0) return false;
  file_.direct = false;
  if (!file_.notes.empty()) file_.notes += '\n';
  file_.notes += buffered_note(file_.url, "a transfer with it failed (Invalid argument)");
  return true;
}

Result<std::unique_ptr<BlockDevice>> open_file_device(const std::string& path, const OpenOptions& options,
                                                      EngineChoice choice) {
  DLFS_TRY_ASSIGN(OpenedFile file, open_file(path, options));
  const int fd = file.fd.get();
  const std::uint32_t depth = file.geometry.max_in_flight;
  std::unique_ptr<Engine> engine;
  if (choice != EngineChoice::kThreads) {
    auto ring = make_uring_engine(fd, depth);
    if (ring.ok()) {
      engine = std::move(ring).value();
    } else if (choice == EngineChoice::kUring) {
      return std::move(ring).error();
    } else {
      if (!file.notes.empty()) file.notes += '\n';
      file.notes += fmt::format("{}: using a pool of {} threads", ring.error().message, std::min(depth, kPoolThreads));
    }
  }
  if (!engine) {
    DLFS_TRY_ASSIGN(engine, make_thread_engine(fd, depth));
  }
  return std::unique_ptr<BlockDevice>(std::make_unique<FileDevice>(std::move(file), std::move(engine)));
}

}  // namespace dlfs::block
