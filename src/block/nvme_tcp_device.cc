#include "block/nvme_tcp_device.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "base/check.h"
#include "base/error.h"
#include "base/try.h"

namespace dlfs::block {
namespace {

using nvme::Status;
using nvme::StatusCode;

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint32_t kPreferredTransferBytes = 256u << 10;
constexpr std::uint32_t kMaxTransferBytes = 4u << 20;
constexpr std::uint8_t kMaxAttempts = 6, kMaxTimeouts = 3;  // of one command: refused for a while; not answered at all
constexpr std::uint64_t kRetryDelay_ns = 10'000'000;        // where the controller names none; doubles
constexpr std::uint64_t kAdminRound_ns = 1'000'000, kIdleAdminRound_ns = 20'000;
constexpr auto kOpenSlice = std::chrono::milliseconds(50);
constexpr std::chrono::seconds kGoodbye{2};  // the destructor waits for writes in flight

std::uint64_t ns(std::chrono::milliseconds time) { return static_cast<std::uint64_t>(time.count()) * 1'000'000; }

bool better(nvme::AnaState a, nvme::AnaState b) { return static_cast<unsigned>(a) < static_cast<unsigned>(b); }
bool usable(nvme::AnaState state) {
  return state == nvme::AnaState::kOptimized || state == nvme::AnaState::kNonOptimized;
}

// Another path may do better than this one; the namespace's state should be looked at again.
bool path_related(StatusCode code) { return (static_cast<unsigned>(code) >> 8) == 3; }

int errno_of(const Status& status, Op op) {
  switch (status.code) {
    case StatusCode::kNamespaceWriteProtected:
    case StatusCode::kAccessDenied:
      return op == Op::kRead ? EACCES : EROFS;
    case StatusCode::kCapacityExceeded:
      return ENOSPC;
    default:
      return EIO;
  }
}

// Why `now` is not the namespace that was opened as `then`; empty when it is.
std::string difference(const nvme::NamespaceInfo& then, const std::optional<nvme::NamespaceInfo>& now) {
  if (!now) return fmt::format("namespace {} is gone", then.nsid);
  if (now->identity.nguid != then.identity.nguid || now->identity.eui64 != then.identity.eui64 ||
      now->ids != then.ids) {
    return fmt::format("namespace {} is now another one (its NGUID, EUI64 or UUID changed)", then.nsid);
  }
  if (now->identity.block_bytes_log2 != then.identity.block_bytes_log2) {
    return fmt::format("namespace {} was formatted with blocks of {} bytes (it had {})", then.nsid,
                       1u << now->identity.block_bytes_log2, 1u << then.identity.block_bytes_log2);
  }
  if (now->identity.blocks != then.identity.blocks) {
    return fmt::format("namespace {} changed its capacity from {} to {} bytes", then.nsid, then.capacity_bytes(),
                       now->capacity_bytes());
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<BlockDevice>> open_nvme_tcp_device(const NvmeTcpUrl& url, const OpenOptions& options,
                                                          net::Network& network) {
  return NvmeTcpDevice::open(url, options, network);
}

NvmeTcpDevice::NvmeTcpDevice(NvmeTcpUrl url, net::Network& network, std::unique_ptr<net::Poller> poller)
    : url_(std::move(url)), network_(network), poller_(std::move(poller)) {}

// ---- opening ----

Result<std::unique_ptr<BlockDevice>> NvmeTcpDevice::open(const NvmeTcpUrl& url, const OpenOptions& options,
                                                         net::Network& network) {
  DLFS_TRY_ASSIGN(auto poller, network.make_poller());
  std::unique_ptr<NvmeTcpDevice> device(new NvmeTcpDevice(url, network, std::move(poller)));
  device->name_ = url.canonical();
  fill_host_identity(device->url_);
  DLFS_TRY(device->bring_up(options));
  return std::unique_ptr<BlockDevice>(std::move(device));
}

Result<void> NvmeTcpDevice::bring_up(const OpenOptions& options) {
  const std::uint32_t wanted = std::max(options.queue_depth, 1u);
  const std::uint32_t depth = url_.queue_depth != 0 ? url_.queue_depth : (wanted + url_.queues - 1) / url_.queues;
  std::optional<Error> unresolved;
  for (std::size_t i = 0; i < url_.paths.size(); ++i) {
    auto addresses = network_.resolve(url_.paths[i]);
    if (!addresses.ok()) {
      notes_ +=
          fmt::format("{}path {}: {}", notes_.empty() ? "" : "\n", url_.paths[i].text(), addresses.error().message);
      unresolved = std::move(addresses).error();
      continue;
    }
    paths_.push_back(std::make_unique<NvmePath>(url_, i, std::move(addresses).value(), depth, network_, *poller_));
  }
  if (paths_.empty()) {
    unresolved->message = fmt::format("cannot open {}: {}", base::escape(name_), unresolved->message);
    return *unresolved;
  }
  was_live_.resize(paths_.size());
  const std::uint64_t until_ns = network_.now_ns() + ns(url_.connect_timeout);
  while (true) {
    const std::uint64_t now_ns = network_.now_ns();
    for (auto& path : paths_) path->turn(now_ns);
    const auto live = std::find_if(paths_.begin(), paths_.end(), [](const auto& path) { return path->live(); });
    if (live != paths_.end()) {
      describe_device(**live, options);
      turn(now_ns);
      return {};
    }
    const bool all_failed = std::all_of(paths_.begin(), paths_.end(), [](const auto& path) {
      return path->state() == NvmePath::State::kRefused || path->attempts() >= path->address_count();
    });
    if (all_failed || now_ns >= until_ns) return nothing_works();
    std::array<net::Poller::Ready, 16> ready;
    arm(now_ns);
    poller_->wait(ready, std::min<std::chrono::nanoseconds>(kOpenSlice, std::chrono::nanoseconds(until_ns - now_ns)));
    armed_ns_ = kNever;
  }
}

Error NvmeTcpDevice::nothing_works() const {
  Error error = paths_[0]->error();
  std::string why;
  for (const auto& path : paths_) {
    const std::string reason = path->attempts() == 0
                                   ? fmt::format("no answer within {} ms", url_.connect_timeout.count())
                                   : path->error().message;
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", path->name(), reason);
    if (path->attempts() == 0) error = {.code = Code::kTimedOut, .message = {}};
  }
  error.message = fmt::format("cannot open {}: {}", base::escape(name_), why);
  return error;
}

void NvmeTcpDevice::describe_device(const NvmePath& path, const OpenOptions& options) {
  space_ = path.space();
  block_shift_ = space_.identity.block_bytes_log2;
  const std::uint32_t block_bytes = 1u << block_shift_;
  auto most = static_cast<std::uint32_t>(path.depth() * path.queue_count());
  if (url_.queue_depth == 0) most = std::min(most, std::max(options.queue_depth, 1u));
  geometry_ = {.capacity_bytes = space_.capacity_bytes(),
               .block_bytes = block_bytes,
               .memory_alignment_bytes = 1,
               .preferred_transfer_bytes = std::max(kPreferredTransferBytes, block_bytes),
               .max_transfer_bytes = kMaxTransferBytes,
               .max_in_flight = most,
               .read_only = !(options.write || options.create) || space_.identity.write_protected,
               .growable = false,
               // Waiting for a path, trying (see tried_until_ns), and the last attempt.
               .patience = 2 * (url_.ctrl_loss_timeout + url_.io_timeout)};
  wholes_.resize(geometry_.max_in_flight);
  for (std::uint32_t i = geometry_.max_in_flight; i-- > 0;) free_wholes_.push_back(i);
  done_.reserve(geometry_.max_in_flight);
  live_once_ = true;
}

NvmeTcpDevice::~NvmeTcpDevice() {
  if (guard_.forked()) {
    for (auto& path : paths_) path->abandon();
    return;
  }
  // Reads may be left where they are: nobody else writes to their memory. Writes are given time to get through.
  const bool writing = std::any_of(wholes_.begin(), wholes_.end(),
                                   [](const Whole& one) { return one.pieces_out > 0 && one.request.op != Op::kRead; });
  if (!writing || !live_once_) return;
  const auto until = now() + kGoodbye;
  while (in_flight_ > done_.size() - done_begin_ && any_usable() && now() < until) {
    turn(network_.now_ns());
    wait(std::chrono::milliseconds(1), -1);
  }
}

// ---- time ----

std::chrono::steady_clock::time_point NvmeTcpDevice::now() const noexcept {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(network_.now_ns()));
}

void NvmeTcpDevice::wait(std::chrono::nanoseconds longest, int other) noexcept {
  if (guard_.forked()) return;
  if (poller_->descriptor() >= 0) return BlockDevice::wait(longest, other);
  std::array<net::Poller::Ready, 16> ready;
  poller_->wait(ready, longest);
}

void NvmeTcpDevice::arm(std::uint64_t now_ns) {
  if (now_ns >= armed_ns_) {
    std::array<net::Poller::Ready, 16> ready;
    poller_->wait(ready, std::chrono::nanoseconds::zero());  // or the timer would stay readable
    armed_ns_ = kNever;
  }
  std::uint64_t next_ns = kNever;
  for (const auto& path : paths_) next_ns = std::min(next_ns, path->next_turn_ns());
  for (const std::uint32_t index : retries_) {
    std::uint64_t at_ns = pieces_[index].not_before_ns;
    if (writes(pieces_[index])) at_ns = std::max(at_ns, writes_held_until_ns_);
    if (at_ns <= now_ns) at_ns = kNever;  // it waits for room or a path, not for time
    next_ns = std::min({next_ns, at_ns, tried_until_ns(pieces_[index])});
  }
  if (no_path_since_ns_ != 0 && (!pending_.empty() || !retries_.empty())) {
    next_ns = std::min(next_ns, now_ns + ns(url_.ctrl_loss_timeout) / 8 + 1'000'000);
  }
  if (next_ns >= armed_ns_) return;
  armed_ns_ = next_ns;
  poller_->set_timer(next_ns);
}

// What is done waits on no socket: a sleeper is told, and the next arm() takes that back.
void NvmeTcpDevice::rouse() noexcept {
  if (armed_ns_ == 0) return;
  poller_->wake();
  armed_ns_ = 0;
}

// ---- one round ----

void NvmeTcpDevice::turn(std::uint64_t now_ns) {
  // Nobody turned for longer than the target keeps an idle association: it is gone, or about to be.
  const std::uint64_t keep_alive_ns = ns(url_.keep_alive);
  const std::uint64_t away_ns = last_turn_ns_ == 0 ? 0 : now_ns - last_turn_ns_;
  const bool stale = keep_alive_ns > 0 && away_ns > keep_alive_ns * 3 / 4;
  was_away_ = away_ns > ns(url_.io_timeout) / 2;
  if (was_away_) {
    if (no_path_since_ns_ != 0) no_path_since_ns_ += away_ns;
    for (Piece& piece : pieces_) {
      if (piece.first_sent_ns != 0) piece.first_sent_ns += away_ns;
    }
  }
  last_turn_ns_ = now_ns;
  for (auto& path : paths_) {
    if (stale && path->live())
      lose(*path, {Code::kDeviceLost, "nobody used it for longer than its keep-alive time"}, now_ns);
    turn_path(*path, now_ns);
  }
  if (any_usable()) {
    no_path_since_ns_ = 0;
  } else if (no_path_since_ns_ == 0) {
    no_path_since_ns_ = now_ns;
  }
  if (!changed_.empty()) fail_all(ESTALE);
  issue(now_ns);
  if (no_path_since_ns_ != 0) give_up(now_ns);
  send_touched();
}

void NvmeTcpDevice::turn_path(NvmePath& path, std::uint64_t now_ns) {
  const std::size_t index = static_cast<std::size_t>(
      std::find_if(paths_.begin(), paths_.end(), [&](const auto& one) { return one.get() == &path; }) - paths_.begin());
  bool moved = false;
  if (path.live()) {
    for (auto& queue : path.queues()) {
      moved |= queue->connection.receive(now_ns);
      take(path, *queue, now_ns);
    }
  }
  // The Admin Queue of a live path has little to say: it is not asked in every round while data flow.
  const std::uint64_t unasked_ns = now_ns - path.asked_ns;
  if (!path.live() || now_ns >= path.next_turn_ns() || path.failure() != nullptr || unasked_ns >= kAdminRound_ns ||
      (!moved && unasked_ns >= kIdleAdminRound_ns)) {
    path.asked_ns = now_ns;
    path.tick(now_ns);
    path.turn(now_ns);
  }
  if (const Error* failure = path.failure(); failure != nullptr) lose(path, *failure, now_ns);
  if (path.live()) look_at_changes(path);
  if (path.live() && !was_live_[index]) came_up(path, now_ns);
  was_live_[index] = path.live();
}

void NvmeTcpDevice::came_up(NvmePath& path, std::uint64_t now_ns) {
  const std::string other = difference(space_, path.space());
  if (other.empty()) return;
  const bool alone =
      std::none_of(paths_.begin(), paths_.end(), [&](const auto& one) { return one.get() != &path && one->live(); });
  if (alone) changed_ = other;
  path.refuse(base::make_error(Code::kDeviceLost, "{}", other), now_ns);
}

void NvmeTcpDevice::look_at_changes(NvmePath& path) {
  const auto changes = path.admin().take_changes();
  if (!changes.namespace_changed) return;
  if (const std::string other = difference(space_, path.admin().namespace_info()); !other.empty()) changed_ = other;
}

// A write that was under way may still be executed later by a target that has not noticed the loss, after the same
// write was sent again and, worse, after a newer one. Where the target closed the connection, it knows. Else writes
// wait until its keep-alive timer has run out, when it must have dropped the old association (Base 2.0, 3.9); reads go
// on at once.
void NvmeTcpDevice::lose(NvmePath& path, Error why, std::uint64_t now_ns) {
  bool writing = false;
  const auto index = static_cast<std::uint16_t>(
      std::find_if(paths_.begin(), paths_.end(), [&](const auto& one) { return one.get() == &path; }) - paths_.begin());
  for (const Piece& piece : pieces_) writing |= piece.sent_ns != 0 && piece.path == index && writes(piece);
  for (auto& queue : path.queues()) {
    queue->session.disconnected("the path to it was lost");
    take(path, *queue, now_ns);
  }
  path.lose(std::move(why), now_ns);
  ++interruptions_;
  if (writing) writes_held_until_ns_ = std::max(writes_held_until_ns_, path.old_commands_until_ns());
}

void NvmeTcpDevice::take(NvmePath& path, Queue& queue, std::uint64_t now_ns) {
  std::array<nvme::Completion, 64> completions;
  while (const std::size_t count = queue.session.take(completions)) {
    const bool lost = queue.session.state() == nvme::SessionState::kFailed;
    for (std::size_t i = 0; i < count; ++i) on_completion(path, completions[i], lost, now_ns);
    if (count < completions.size()) break;
  }
}

// ---- completions ----

void NvmeTcpDevice::on_completion(NvmePath& path, const nvme::Completion& completion, bool lost, std::uint64_t now_ns) {
  const auto index = static_cast<std::uint32_t>(completion.tag);
  Piece& piece = pieces_[index];
  if (completion.status.ok()) {
    wholes_[piece.whole].completion.length_bytes += piece.length_bytes;
    return end_piece(index);
  }
  if (lost && !completion.from_controller) {
    const bool overdue = !was_away_ && now_ns >= piece.sent_ns + ns(url_.io_timeout);
    piece.sent_ns = 0;
    piece.refusal = 0;
    if (overdue && ++piece.timeouts >= kMaxTimeouts) return fail_piece(index, ETIMEDOUT, 0);
    return retry(index, now_ns);
  }
  on_refusal(index, path, completion.status, now_ns);
}

void NvmeTcpDevice::on_refusal(std::uint32_t index, NvmePath& path, const Status& status, std::uint64_t now_ns) {
  Piece& piece = pieces_[index];
  piece.sent_ns = 0;
  const auto wire = static_cast<std::uint16_t>(encode(status) >> 1);
  const Op op = wholes_[piece.whole].request.op;
  const bool of_namespace = status.code == StatusCode::kInvalidNamespace ||
                            status.code == StatusCode::kNamespaceNotReady || status.code == StatusCode::kLbaOutOfRange;
  if (path.live() && (path_related(status.code) || of_namespace)) path.admin().refresh(now_ns);
  if ((status.do_not_retry && !path_related(status.code)) || ++piece.attempts >= kMaxAttempts) {
    return fail_piece(index, errno_of(status, op), wire);
  }
  piece.refusal = wire;
  std::uint64_t delay_ns = kRetryDelay_ns << (piece.attempts - 1);
  if (status.retry_delay != 0 && path.live()) {
    delay_ns = std::uint64_t{path.admin().controller().retry_delays_100ms[status.retry_delay - 1]} * 100'000'000;
  }
  retry(index, now_ns + delay_ns);
}

void NvmeTcpDevice::retry(std::uint32_t index, std::uint64_t not_before_ns) {
  Piece& piece = pieces_[index];
  piece.not_before_ns = not_before_ns;
  if (wholes_[piece.whole].failed) return end_piece(index);
  retries_.push_back(index);
}

// A path that breaks under the same command again and again, or a controller that puts it off for hours, must not keep
// its owner waiting for ever: after this time it is not tried again.
std::uint64_t NvmeTcpDevice::tried_until_ns(const Piece& piece) const noexcept {
  return piece.first_sent_ns + ns(url_.ctrl_loss_timeout + url_.io_timeout);
}

void NvmeTcpDevice::expire_retries(std::uint64_t now_ns) {
  for (std::size_t i = 0; i < retries_.size();) {
    const std::uint32_t index = retries_[i];
    const Piece& piece = pieces_[index];
    if (now_ns < tried_until_ns(piece)) {
      ++i;
      continue;
    }
    retries_[i] = retries_.back();
    retries_.pop_back();
    const Status status = nvme::decode_status(static_cast<std::uint16_t>(piece.refusal << 1));
    fail_piece(index, piece.refusal == 0 ? ETIMEDOUT : errno_of(status, wholes_[piece.whole].request.op),
               piece.refusal);
  }
}

void NvmeTcpDevice::fail_piece(std::uint32_t index, int errno_value, std::uint16_t status) {
  Whole& whole = wholes_[pieces_[index].whole];
  if (!whole.failed) {
    whole.failed = true;
    whole.completion.errno_value = errno_value;
    whole.completion.nvme_status = status;
  }
  end_piece(index);
}

void NvmeTcpDevice::end_piece(std::uint32_t index) {
  const std::uint32_t number = pieces_[index].whole;
  pieces_[index].sent_ns = 0;
  free_pieces_.push_back(index);
  Whole& whole = wholes_[number];
  DLFS_CHECK(whole.pieces_out > 0);
  --whole.pieces_out;
  const bool all_issued =
      whole.flush_issued || (whole.request.op != Op::kFlush && whole.issued_bytes == whole.request.length_bytes);
  if (whole.pieces_out == 0 && (all_issued || whole.failed)) finish(number);
}

// Precondition: no piece of it is out. It may still stand in pending_, and is then dropped there.
void NvmeTcpDevice::finish(std::uint32_t number) {
  Whole& whole = wholes_[number];
  if (!pending_.empty() && (whole.failed || whole.request.op == Op::kFlush)) std::erase(pending_, number);
  done_.push_back(whole.completion);
  free_wholes_.push_back(number);
}

void NvmeTcpDevice::fail_all(int errno_value) {
  while (!retries_.empty()) {
    const std::uint32_t index = retries_.back();
    retries_.pop_back();
    fail_piece(index, errno_value, 0);
  }
  while (!pending_.empty()) {
    const std::uint32_t number = pending_.front();
    pending_.pop_front();
    Whole& whole = wholes_[number];
    whole.failed = true;
    if (whole.completion.errno_value == 0) whole.completion.errno_value = errno_value;
    if (whole.pieces_out == 0) finish(number);
  }
}

// No path: what has waited for longer than ctrl_loss_timeout fails.
void NvmeTcpDevice::give_up(std::uint64_t now_ns) {
  const std::uint64_t limit_ns = ns(url_.ctrl_loss_timeout);
  const auto hopeless = [&](std::uint32_t number) {
    return now_ns >= std::max(wholes_[number].since_ns, no_path_since_ns_) + limit_ns;
  };
  for (std::size_t i = 0; i < retries_.size();) {
    if (!hopeless(pieces_[retries_[i]].whole)) {
      ++i;
      continue;
    }
    const std::uint32_t index = retries_[i];
    retries_.erase(retries_.begin() + static_cast<std::ptrdiff_t>(i));
    fail_piece(index, ENODEV, 0);
  }
  for (std::size_t i = 0; i < pending_.size();) {
    const std::uint32_t number = pending_[i];
    if (!hopeless(number) && !wholes_[number].failed) {
      ++i;
      continue;
    }
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    Whole& whole = wholes_[number];
    whole.failed = true;
    if (whole.completion.errno_value == 0) whole.completion.errno_value = ENODEV;
    if (whole.pieces_out == 0) finish(number);
  }
}

std::string NvmeTcpDevice::explain(const Completion& completion) const {
  if (completion.errno_value == ESTALE) return changed_ + "; open the device again when that is right";
  if (completion.errno_value == ENODEV) {
    std::string why = fmt::format("no path to it for {} ms (ctrl_loss_timeout)", url_.ctrl_loss_timeout.count());
    for (const auto& path : paths_)
      why +=
          fmt::format("; {}: {}", path->name(), path->live() ? "its access state forbids I/O" : path->error().message);
    return why;
  }
  if (completion.errno_value == ETIMEDOUT) {
    std::string why = fmt::format(
        "the controller did not answer within {} ms, {} times (io_timeout), or the connection broke under it for {} ms",
        url_.io_timeout.count(), kMaxTimeouts, (url_.ctrl_loss_timeout + url_.io_timeout).count());
    for (const auto& path : paths_) {
      if (!path->error().message.empty()) why += fmt::format("; {}: {}", path->name(), path->error().message);
    }
    return why;
  }
  if (completion.nvme_status == 0) return {};
  return "the controller says: " +
         nvme::describe(nvme::decode_status(static_cast<std::uint16_t>(completion.nvme_status << 1)));
}

// ---- issuing ----

int NvmeTcpDevice::check(const Request& request) const noexcept {
  if (request.op == Op::kFlush) return 0;
  if (request.op == Op::kWrite && geometry_.read_only) return EROFS;
  if ((request.offset_bytes | request.length_bytes) % geometry_.block_bytes != 0 ||
      (request.data == nullptr && request.length_bytes > 0)) {
    return EINVAL;
  }
  const std::uint64_t capacity = geometry_.capacity_bytes;
  if (request.offset_bytes > capacity || request.length_bytes > capacity - request.offset_bytes) {
    return request.op == Op::kWrite ? ENOSPC : EIO;
  }
  return 0;
}

std::size_t NvmeTcpDevice::submit(std::span<const Request> requests) noexcept {
  if (guard_.forked()) return 0;
  const std::size_t room = geometry_.max_in_flight - in_flight_;
  const std::size_t count = std::min(requests.size(), room);
  if (count == 0) return 0;
  const std::uint64_t now_ns = network_.now_ns();
  if (done_begin_ > geometry_.max_in_flight) {
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(done_begin_));
    done_begin_ = 0;
  }
  for (const Request& request : requests.first(count)) {
    const std::uint32_t number = free_wholes_.back();
    free_wholes_.pop_back();
    Whole& whole = wholes_[number];
    whole = {.request = request, .completion = {.user_data = request.user_data}, .since_ns = now_ns};
    ++in_flight_;
    whole.completion.errno_value = check(request);
    const bool nothing = request.op != Op::kFlush && request.length_bytes == 0;
    if (whole.completion.errno_value != 0 || nothing) {
      done_.push_back(whole.completion);
      free_wholes_.push_back(number);
      rouse();
      continue;
    }
    pending_.push_back(number);
  }
  if (now_ns - last_turn_ns_ > 100'000'000) {
    turn(now_ns);  // an idle handle looks first whether its connections still stand
    if (done_begin_ < done_.size()) rouse();
  } else {
    issue(now_ns);
    send_touched();
  }
  arm(now_ns);
  return count;
}

std::size_t NvmeTcpDevice::poll(std::span<Completion> completions) noexcept {
  if (guard_.forked()) return 0;
  const std::uint64_t now_ns = network_.now_ns();
  if (done_begin_ == done_.size()) turn(now_ns);
  const std::size_t count = std::min(completions.size(), done_.size() - done_begin_);
  std::copy_n(done_.begin() + static_cast<std::ptrdiff_t>(done_begin_), count, completions.begin());
  done_begin_ += count;
  in_flight_ -= count;
  if (done_begin_ == done_.size()) {
    done_.clear();
    done_begin_ = 0;
    arm(now_ns);
  } else {
    rouse();
  }
  return count;
}

void NvmeTcpDevice::issue(std::uint64_t now_ns) {
  expire_retries(now_ns);
  if (!retries_.empty() && !issue_retries(now_ns)) return;
  while (!pending_.empty()) {
    const std::uint32_t number = pending_.front();
    if (!issue_whole(number, now_ns)) return;
    pending_.pop_front();
  }
}

bool NvmeTcpDevice::issue_retries(std::uint64_t now_ns) {
  for (std::size_t i = 0; i < retries_.size();) {
    const std::uint32_t index = retries_[i];
    const Piece& piece = pieces_[index];
    if (now_ns < piece.not_before_ns || (writes(piece) && now_ns < writes_held_until_ns_)) {
      ++i;
      continue;
    }
    if (!issue_piece(index, now_ns)) return false;
    retries_[i] = retries_.back();
    retries_.pop_back();
  }
  return true;
}

std::uint32_t NvmeTcpDevice::new_piece() {
  if (free_pieces_.empty()) {
    free_pieces_.push_back(static_cast<std::uint32_t>(pieces_.size()));
    pieces_.emplace_back();
  }
  const std::uint32_t index = free_pieces_.back();
  free_pieces_.pop_back();
  return index;
}

// Issues the rest of a request; false when the queues are full before it is all out.
bool NvmeTcpDevice::issue_whole(std::uint32_t number, std::uint64_t now_ns) {
  Whole& whole = wholes_[number];
  const Request& request = whole.request;
  if (request.op == Op::kWrite && now_ns < writes_held_until_ns_) return false;
  while (request.op == Op::kFlush ? !whole.flush_issued : whole.issued_bytes < request.length_bytes) {
    NvmePath* path = nullptr;
    if (choose(&path) == nullptr) return false;
    const std::uint32_t index = new_piece();
    const std::uint32_t most = std::max(path->max_transfer_bytes() >> block_shift_, 1u) << block_shift_;
    const std::uint32_t blocks_limit = std::min<std::uint64_t>(std::uint64_t{65'536} << block_shift_, most);
    const std::uint32_t length = std::min(request.length_bytes - whole.issued_bytes, blocks_limit);
    pieces_[index] = {.whole = number,
                      .length_bytes = request.op == Op::kFlush ? 0 : length,
                      .data = request.data + whole.issued_bytes,
                      .offset_bytes = request.offset_bytes + whole.issued_bytes};
    ++whole.pieces_out;
    if (!issue_piece(index, now_ns)) {
      --whole.pieces_out;
      free_pieces_.push_back(index);
      return false;
    }
    whole.issued_bytes += pieces_[index].length_bytes;
    whole.flush_issued = request.op == Op::kFlush;
  }
  return true;
}

bool NvmeTcpDevice::any_usable() const noexcept {
  return std::any_of(paths_.begin(), paths_.end(),
                     [](const auto& path) { return path->live() && usable(path->space().ana); });
}

// The least busy queue of the best access state; null when all are full or there is none.
NvmeTcpDevice::Queue* NvmeTcpDevice::choose(NvmePath** chosen) noexcept {
  Queue* best = nullptr;
  for (auto& path : paths_) {
    if (!path->live() || !usable(path->space().ana)) continue;
    for (auto& queue : path->queues()) {
      if (queue->session.in_flight() >= path->depth()) continue;
      const bool wins =
          best == nullptr || better(path->space().ana, (*chosen)->space().ana) ||
          (path->space().ana == (*chosen)->space().ana && queue->session.in_flight() < best->session.in_flight());
      if (!wins) continue;
      best = queue.get();
      *chosen = path.get();
    }
  }
  return best;
}

bool NvmeTcpDevice::issue_piece(std::uint32_t index, std::uint64_t now_ns) {
  NvmePath* path = nullptr;
  Queue* queue = choose(&path);
  if (queue == nullptr) return false;
  Piece& piece = pieces_[index];
  const Op op = wholes_[piece.whole].request.op;
  nvme::HostCommand command{.tag = index, .timeout_ns = ns(url_.io_timeout)};
  if (op == Op::kFlush) {
    command.sqe = nvme::flush(space_.nsid);
  } else {
    command.sqe = nvme::ReadWrite{.opcode = op == Op::kRead ? nvme::Opcode::kRead : nvme::Opcode::kWrite,
                                  .nsid = space_.nsid,
                                  .lba = piece.offset_bytes >> block_shift_,
                                  .blocks = piece.length_bytes >> block_shift_}
                      .to_sqe();
    if (op == Op::kRead) {
      command.read_into = {piece.data, piece.length_bytes};
    } else {
      command.write_from = {piece.data, piece.length_bytes};
    }
  }
  if (!queue->session.submit(command, now_ns)) return false;
  piece.sent_ns = now_ns;
  if (piece.first_sent_ns == 0) piece.first_sent_ns = now_ns;
  piece.path = static_cast<std::uint16_t>(
      std::find_if(paths_.begin(), paths_.end(), [&](const auto& one) { return one.get() == path; }) - paths_.begin());
  queue->touched = true;
  return true;
}

void NvmeTcpDevice::send_touched() {
  for (auto& path : paths_) {
    if (!path->live()) continue;
    for (auto& queue : path->queues()) {
      if (!std::exchange(queue->touched, false) && !queue->session.anything_to_send()) continue;
      queue->connection.send();
    }
  }
}

}  // namespace dlfs::block
