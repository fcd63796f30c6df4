#include "target/backend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/try.h"

namespace dlfs::target {
namespace {

using nvme::Opcode;
using nvme::Status;
using nvme::StatusCode;

constexpr std::uint32_t kZeroesBytes = 256u << 10;
constexpr std::size_t kMinMemoryBytes = 4 * BufferPool::kMaxBytes;

Status status_of(const block::Completion& completion, Opcode opcode) {
  const bool read = opcode == Opcode::kRead;
  if (completion.nvme_status != 0) {  // the device is a controller itself: its word counts
    return nvme::decode_status(static_cast<std::uint16_t>(completion.nvme_status << 1));
  }
  switch (completion.errno_value) {
    case 0:
      return {};
    case EIO:
      return {read ? StatusCode::kUnrecoveredReadError : StatusCode::kWriteFault, true};
    case ENOSPC:
    case EDQUOT:
      return {StatusCode::kCapacityExceeded, true};
    case EROFS:
    case EPERM:
      return {StatusCode::kNamespaceWriteProtected, true};
    case EINVAL:
      return {StatusCode::kInvalidField, true};
    case EAGAIN:
    case EINTR:
      return StatusCode::kCommandInterrupted;
    default:
      return StatusCode::kInternalError;
  }
}

}  // namespace

Backend::Backend(Registry& registry, std::size_t memory_bytes)
    : registry_(registry),
      pool_(std::max(memory_bytes, kMinMemoryBytes)),
      connection_limit_bytes_(std::max(std::max(memory_bytes, kMinMemoryBytes) / 2, BufferPool::kMaxBytes)),
      zeros_storage_(std::make_unique<std::byte[]>(kZeroesBytes + 4096)) {
  const auto address = reinterpret_cast<std::uintptr_t>(zeros_storage_.get());
  zeros_ = zeros_storage_.get() + ((address + 4095) / 4096 * 4096 - address);
}

Result<std::unique_ptr<Backend>> Backend::open(Registry& registry, std::size_t memory_bytes) {
  std::unique_ptr<Backend> backend(new Backend(registry, memory_bytes));
  const ServerOptions& options = registry.options();
  for (const Space& space : registry.spaces()) {
    const block::OpenOptions open{.write = !space.read_only, .queue_depth = options.device_depth};
    DLFS_TRY_ASSIGN(auto device,
                    options.open_device ? options.open_device(space.url, open) : block::open_device(space.url, open));
    backend->devices_.push_back({std::move(device), {}});
  }
  return backend;
}

void Backend::note(Connection& connection) {
  if (connection.queued) return;
  connection.queued = true;
  answered_.push_back(&connection);
}

// ---- starting ----

void Backend::start(Connection& connection, const nvme::IoRequest& request) {
  Connection::Held& held = connection.held(request.id);
  held.request = request;
  if (!waiting_.empty()) retry_waiting();  // those who came first have first call
  if (try_start(connection, request.id)) return;
  held.hold = Connection::Hold::kMemory;
  waiting_.push_back({&connection, request.id});
}

bool Backend::try_start(Connection& connection, std::uint32_t id) {
  Connection::Held& held = connection.held(id);
  const nvme::IoRequest& request = held.request;
  const bool usable = registry_.ana() == nvme::AnaState::kOptimized || registry_.ana() == nvme::AnaState::kNonOptimized;
  const bool known = request.opcode == Opcode::kRead || request.opcode == Opcode::kWrite ||
                     request.opcode == Opcode::kFlush || request.opcode == Opcode::kWriteZeroes;
  if (!usable || !known || request.damaged) {
    note(connection);
    connection.complete(id, !usable ? Status(StatusCode::kAnaInaccessible)
                            : known ? Status(StatusCode::kTransientTransportError)
                                    : Status(StatusCode::kInvalidOpcode, true));
    return true;
  }
  if (request.opcode == Opcode::kWrite) return begin_write(connection, held);
  if (request.opcode == Opcode::kFlush) return flush(connection, request), true;
  if (request.opcode == Opcode::kWriteZeroes) return write_zeroes(connection, request), true;
  const Space& space = *registry_.space(request.nsid);
  const std::uint64_t offset = request.lba << space.block_bytes_log2;
  const auto view = device(request.nsid).device->view(offset, request.length_bytes);
  if (!view.empty()) {
    registry_.counters().reads.fetch_add(1, std::memory_order_relaxed);
    registry_.counters().read_bytes.fetch_add(view.size(), std::memory_order_relaxed);
    note(connection);
    connection.complete(id, {}, view);
    return true;
  }
  if (buffer_for(connection, held, request.length_bytes) == nullptr) return false;
  read(connection, held);
  return true;
}

std::byte* Backend::buffer_for(Connection& connection, Connection::Held& held, std::uint32_t length) noexcept {
  if (held.buffer != nullptr) return held.buffer;
  if (connection.held_bytes() > 0 && connection.held_bytes() + length > connection_limit_bytes_) return nullptr;
  std::byte* buffer = pool_.take(length);
  if (buffer != nullptr) connection.attach(held, buffer, length);
  return buffer;
}

void Backend::read(Connection& connection, Connection::Held& held) {
  const nvme::IoRequest& request = held.request;
  held.hold = Connection::Hold::kDevice;
  const Space& space = *registry_.space(request.nsid);
  queue({.connection = &connection,
         .id = request.id,
         .nsid = request.nsid,
         .length = request.length_bytes,
         .opcode = Opcode::kRead,
         .data = held.buffer,
         .offset_bytes = request.lba << space.block_bytes_log2},
        block::Op::kRead);
}

bool Backend::begin_write(Connection& connection, Connection::Held& held) {
  const nvme::IoRequest& request = held.request;
  if (request.needs_buffer) {
    if (buffer_for(connection, held, request.length_bytes) == nullptr) return false;
    held.hold = Connection::Hold::kHost;
    note(connection);
    connection.session().provide(request.id, {held.buffer, request.length_bytes});
    return true;
  }
  std::byte* data = request.data.data();
  const std::uint32_t alignment = device(request.nsid).device->geometry().memory_alignment_bytes;
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {  // data in a capsule, a device that is particular
    std::byte* buffer = buffer_for(connection, held, request.length_bytes);
    if (buffer == nullptr) return false;
    std::memcpy(buffer, data, request.length_bytes);
    data = buffer;
  }
  held.hold = Connection::Hold::kDevice;
  const Space& space = *registry_.space(request.nsid);
  queue({.connection = &connection,
         .id = request.id,
         .nsid = request.nsid,
         .length = request.length_bytes,
         .opcode = Opcode::kWrite,
         .data = data,
         .offset_bytes = request.lba << space.block_bytes_log2,
         .flush_after = request.force_unit_access},
        block::Op::kWrite);
  return true;
}

void Backend::write_zeroes(Connection& connection, const nvme::IoRequest& request) {
  connection.held(request.id).hold = Connection::Hold::kDevice;
  const Space& space = *registry_.space(request.nsid);
  next_zeroes({.connection = &connection,
               .id = request.id,
               .nsid = request.nsid,
               .opcode = Opcode::kWriteZeroes,
               .data = zeros_,
               .offset_bytes = request.lba << space.block_bytes_log2,
               .left_bytes = std::uint64_t{request.blocks} << space.block_bytes_log2,
               .flush_after = request.force_unit_access});
}

void Backend::next_zeroes(Job job) {
  job.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(job.left_bytes, kZeroesBytes));
  job.left_bytes -= job.length;
  queue(job, block::Op::kWrite);
}

void Backend::flush(Connection& connection, const nvme::IoRequest& request) {
  connection.held(request.id).hold = Connection::Hold::kDevice;
  const bool all = request.nsid == nvme::kAllNamespaces;
  queue({.connection = &connection,
         .id = request.id,
         .nsid = all ? 1 : request.nsid,
         .opcode = Opcode::kFlush,
         .all = all},
        block::Op::kFlush);
}

void Backend::queue(const Job& job, block::Op op) {
  if (free_jobs_.empty()) {
    free_jobs_.push_back(static_cast<std::uint32_t>(jobs_.size()));
    jobs_.emplace_back();
  }
  const std::uint32_t index = free_jobs_.back();
  free_jobs_.pop_back();
  jobs_[index] = job;
  jobs_[index].flushing = op == block::Op::kFlush && job.opcode != Opcode::kFlush;
  ++in_flight_;
  block::Request request{.op = op, .user_data = index};
  if (op != block::Op::kFlush) {
    request.data = job.data;
    request.length_bytes = job.length;
    request.offset_bytes = job.offset_bytes;
  }
  device(job.nsid).queue.push_back(request);
}

bool Backend::submit() {
  bool moved = false;
  for (Device& each : devices_) {
    if (each.queue.empty()) continue;
    const std::size_t taken = each.device->submit(each.queue);
    each.queue.erase(each.queue.begin(), each.queue.begin() + static_cast<std::ptrdiff_t>(taken));
    moved |= taken > 0;
  }
  return moved;
}

// ---- finishing ----

bool Backend::poll() {
  if (freed_) retry_waiting();
  if (in_flight_ == 0) return false;
  bool moved = false;
  std::array<block::Completion, 64> completions;
  for (Device& each : devices_) {
    while (const std::size_t count = each.device->poll(completions)) {
      moved = true;
      for (std::size_t i = 0; i < count; ++i) {
        const auto index = static_cast<std::uint32_t>(completions[i].user_data);
        const Job job = jobs_[index];
        free_jobs_.push_back(index);
        --in_flight_;
        finish(job, completions[i]);
      }
      if (count < completions.size()) break;
    }
  }
  if (moved) submit();
  return moved;
}

void Backend::finish(const Job& job, const block::Completion& completion) {
  const Status status = status_of(completion, job.opcode);
  if (status.ok() && job.left_bytes > 0) return next_zeroes(job);
  if (status.ok() && job.flush_after && !job.flushing) return queue(job, block::Op::kFlush);
  if (status.ok() && job.all && job.nsid < devices_.size()) {
    Job next = job;
    ++next.nsid;
    return queue(next, block::Op::kFlush);
  }
  count(job, status.ok());
  note(*job.connection);
  const bool read = job.opcode == Opcode::kRead;
  job.connection->complete(job.id, status, read ? nvme::ConstBytes(job.data, job.length) : nvme::ConstBytes{});
}

void Backend::count(const Job& job, bool ok) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Counters& counters = registry_.counters();
  if (!ok) counters.errors.fetch_add(1, kRelaxed);
  if (job.opcode == Opcode::kRead) {
    counters.reads.fetch_add(1, kRelaxed);
    counters.read_bytes.fetch_add(job.length, kRelaxed);
  } else if (job.opcode == Opcode::kWrite) {
    counters.writes.fetch_add(1, kRelaxed);
    counters.written_bytes.fetch_add(job.length, kRelaxed);
  }
}

void Backend::give_buffer(std::byte* buffer, std::size_t bytes) noexcept {
  pool_.give(buffer, bytes);
  freed_ = freed_ || !waiting_.empty();
}

// In the order in which they came; one whose connection holds its share lets others pass.
void Backend::retry_waiting() {
  freed_ = false;
  const std::size_t count = waiting_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Waiting next = waiting_.front();
    waiting_.pop_front();
    if (!try_start(*next.connection, next.id)) waiting_.push_back(next);
  }
  submit();
}

void Backend::forget(Connection& connection) noexcept {
  std::erase_if(waiting_, [&](const Waiting& one) { return one.connection == &connection; });
}

void Backend::watch(net::Poller& poller, std::uint64_t tag) {
  for (Device& each : devices_) {
    if (const int descriptor = each.device->wait_descriptor(); descriptor >= 0) (void)poller.watch(descriptor, tag);
  }
}

}  // namespace dlfs::target
