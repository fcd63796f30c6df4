#include "block/nvme_connection.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "base/try.h"

namespace dlfs::block {
namespace {

constexpr int kReceiveRounds = 16;

}  // namespace

NvmeConnection::~NvmeConnection() {
  if (stream_ != nullptr) poller_.forget(*stream_);
}

void NvmeConnection::abandon() noexcept { stream_.reset(); }

Result<void> NvmeConnection::open(const net::Address& to) {
  DLFS_TRY_ASSIGN(stream_, network_.connect(to));
  return poller_.watch(*stream_, 0, {.readable = false, .writable = true});
}

Result<bool> NvmeConnection::connected() {
  const net::Moved state = stream_->finish_connect();
  if (state.state == net::Moved::State::kWouldBlock) return false;
  if (state.state == net::Moved::State::kFailed) return base::errno_error(state.errno_value, "cannot connect");
  DLFS_TRY(poller_.watch(*stream_, 0, {}));
  return true;
}

void NvmeConnection::lost(const net::Moved& how, const char* doing) noexcept {
  closed_by_peer_ = true;
  session_.disconnected(how.state == net::Moved::State::kClosed
                            ? std::string("it was closed by the target")
                            : fmt::format("{} ({})", std::strerror(how.errno_value), doing));
}

bool NvmeConnection::receive(std::uint64_t now_ns) noexcept {
  bool moved = false;
  for (int round = 0; round < kReceiveRounds; ++round) {
    const nvme::Want want = session_.want();
    if (want.size() == 0) break;
    const net::Moved got = stream_->receive(want.direct, want.stage);
    if (got.state == net::Moved::State::kWouldBlock) break;
    if (got.state != net::Moved::State::kSome) {
      lost(got, "while receiving");
      return true;
    }
    moved = true;
    session_.received(got.bytes, now_ns);
    if (got.bytes < want.size()) break;
  }
  return moved;
}

void NvmeConnection::send() noexcept {
  std::array<nvme::ConstBytes, net::Stream::kMaxPieces> pieces;
  const bool was_blocked = blocked_;
  blocked_ = false;
  while (const std::size_t count = session_.gather(pieces)) {
    const net::Moved gone = stream_->send(std::span(pieces).first(count));
    session_.sent(gone.bytes);
    if (gone.state == net::Moved::State::kSome) continue;
    blocked_ = gone.state == net::Moved::State::kWouldBlock;
    if (!blocked_) lost(gone, "while sending");
    break;
  }
  if (blocked_ != was_blocked && !poller_.watch(*stream_, 0, {.readable = true, .writable = blocked_}).ok()) {
    session_.disconnected("it cannot be watched");
  }
}

}  // namespace dlfs::block
