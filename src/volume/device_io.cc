#include "volume/device_io.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/try.h"

namespace dlfs::volume {
namespace {

constexpr std::uint64_t kMaxInFlight = 32;

}  // namespace

OpenDevice default_open_device() {
  return [](std::string_view url, const block::OpenOptions& options) { return block::open_device(url, options); };
}

Result<std::size_t> wait_completions(block::BlockDevice& device, std::span<block::Completion> into,
                                     std::chrono::milliseconds timeout) {
  timeout = block::patient(device, timeout);
  const auto deadline = device.now() + timeout;
  for (;;) {
    if (const std::size_t count = device.poll(into); count > 0) return count;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - device.now());
    if (left.count() <= 0) {
      return base::make_error(Code::kTimedOut, "'{}' did not answer for {} ms ({} requests are outstanding)",
                              device.url(), timeout.count(), device.in_flight());
    }
    device.wait(std::min<std::chrono::nanoseconds>(left + std::chrono::milliseconds(1), std::chrono::seconds(1)));
  }
}

std::uint64_t request_unit(const block::Geometry& geometry) noexcept {
  return std::max<std::uint64_t>(geometry.block_bytes, geometry.memory_alignment_bytes);
}

void abandon_memory(base::Arena memory) noexcept {
  union Undestroyed {  // the mapping stays when this goes
    Undestroyed() {}
    ~Undestroyed() {}
    base::Arena arena;
  } kept;
  new (&kept.arena) base::Arena(std::move(memory));
}

Result<base::Arena> read_range(block::BlockDevice& device, std::uint64_t offset_bytes, std::uint64_t length_bytes,
                               std::chrono::milliseconds timeout) {
  DLFS_TRY_ASSIGN(base::Arena memory, base::Arena::create(length_bytes, false));
  if (length_bytes == 0) return memory;
  if (auto read = block::read_all(device, offset_bytes, memory.bytes().first(length_bytes), timeout); !read.ok()) {
    if (read.error().code == Code::kTimedOut) abandon_memory(std::move(memory));
    return std::move(read).error();
  }
  return memory;
}

ReadStream::ReadStream(block::BlockDevice& device, base::Arena memory, std::uint32_t piece_bytes, std::uint64_t begin,
                       std::uint64_t end, std::chrono::milliseconds timeout)
    : device_(device),
      memory_(std::move(memory)),
      piece_bytes_(piece_bytes),
      begin_(begin),
      end_(end),
      pieces_((end - begin + piece_bytes - 1) / piece_bytes),
      slots_(std::min<std::uint64_t>(round_up(memory_.bytes().size(), piece_bytes) / piece_bytes, pieces_)),
      timeout_(timeout) {
  DLFS_CHECK(begin <= end);
  // The last slot may be shorter than a piece only when nothing wraps.
  if (slots_ < pieces_) slots_ = memory_.bytes().size() / piece_bytes;
  DLFS_CHECK(pieces_ == 0 || slots_ > 0);
  states_.resize(slots_);
}

ReadStream::~ReadStream() {
  std::array<block::Completion, 32> completions;
  while (in_flight_ > 0) {
    const auto count = wait_completions(device_, completions, timeout_);
    if (!count.ok()) {
      abandon_memory(std::move(memory_));
      return;
    }
    in_flight_ -= std::min<std::uint64_t>(in_flight_, *count);
  }
}

std::uint64_t ReadStream::length_of(std::uint64_t piece) const noexcept {
  return std::min(piece_bytes_, end_ - begin_ - piece * piece_bytes_);
}

block::Request ReadStream::request_of(std::uint64_t piece) const noexcept {
  const std::uint64_t length = round_up(length_of(piece), request_unit(device_.geometry()));
  return {.op = block::Op::kRead,
          .data = memory_.bytes().data() + piece % slots_ * piece_bytes_,
          .length_bytes = static_cast<std::uint32_t>(length),
          .offset_bytes = begin_ + piece * piece_bytes_,
          .user_data = piece};
}

void ReadStream::submit_more() noexcept {
  const std::uint64_t oldest = shown_ ? delivered_ - 1 : delivered_;
  while (submitted_ < pieces_ && submitted_ < oldest + slots_ && in_flight_ < kMaxInFlight) {
    const block::Request request = request_of(submitted_);
    states_[submitted_ % slots_] = {};
    if (device_.submit({&request, 1}) == 0) return;
    ++submitted_;
    ++in_flight_;
  }
}

Result<ReadStream::Piece> ReadStream::next() {
  DLFS_CHECK(!done());
  shown_ = false;
  const std::uint64_t piece = delivered_;
  State& state = states_[piece % slots_];
  submit_more();
  while (submitted_ <= piece || !state.finished) {
    std::array<block::Completion, 32> completions;
    DLFS_TRY_ASSIGN(const std::size_t count, wait_completions(device_, completions, timeout_));
    for (std::size_t i = 0; i < count; ++i) {
      State& finished = states_[completions[i].user_data % slots_];
      finished.finished = true;
      finished.completion = completions[i];
    }
    in_flight_ -= count;
    submit_more();
  }
  ++delivered_;
  shown_ = slots_ < pieces_;
  const block::Request request = request_of(piece);
  Piece result{
      .offset_bytes = request.offset_bytes, .bytes = {request.data, length_of(piece)}, .failed = false, .error = {}};
  if (state.completion.errno_value != 0 || state.completion.nvme_status != 0) {
    result.failed = true;
    result.error = block::completion_error(device_, request, state.completion);
  }
  return result;
}

}  // namespace dlfs::volume
