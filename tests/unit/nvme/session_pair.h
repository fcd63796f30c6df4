// A subsystem in memory, and a host and a controller session joined without a network. Also used by the fuzzers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/mix.h"
#include "nvme/controller_session.h"
#include "nvme/host_session.h"

namespace dlfs::nvme::test {

inline constexpr char kSubnqn[] = "nqn.2026-01.io.example:stor1";
inline constexpr char kHostnqn[] = "nqn.2026-01.io.example:host1";

// Namespace 1 can be written, namespace 2 only read; both are the same blocks.
class MemorySubsystem : public Subsystem {
 public:
  static constexpr std::uint32_t kBlockBytes = 512;
  explicit MemorySubsystem(std::size_t blocks) : bytes(blocks * kBlockBytes) {}

  ConnectAnswer connect(const Connect& command, const ConnectData& data) override {
    ++connects;
    if (data.subnqn != kSubnqn)
      return {.status = {StatusCode::kConnectInvalidParameters, true}, .invalid = {256, true}};
    if (data.hostnqn != kHostnqn) return {.status = {StatusCode::kConnectInvalidHost, true}};
    if (command.qid == 0) return {.cntlid = 7};
    if (data.cntlid != 7) return {.status = {StatusCode::kConnectInvalidParameters, true}, .invalid = {16, true}};
    return {.cntlid = data.cntlid};
  }
  ControllerIdentity controller_identity() override {
    ControllerIdentity identity;
    identity.serial_number = "MEMORY";
    identity.model_number = "test";
    identity.namespaces = 4;
    identity.subnqn = kSubnqn;
    return identity;
  }
  std::optional<NamespaceShape> namespace_shape(std::uint32_t nsid) override {
    if (nsid != 1 && nsid != 2) return std::nullopt;
    return NamespaceShape{kBlockBytes, bytes.size() / kBlockBytes, nsid == 2};
  }
  NamespaceIdentity namespace_identity(std::uint32_t nsid) override {
    NamespaceIdentity identity;
    identity.blocks = identity.capacity_blocks = bytes.size() / kBlockBytes;
    identity.write_protected = nsid == 2;
    return identity;
  }
  NamespaceIds namespace_ids(std::uint32_t nsid) override {
    NamespaceIds ids;
    ids.eui64.emplace()[7] = static_cast<std::byte>(nsid);
    ids.command_set = 0;
    return ids;
  }
  std::vector<std::uint32_t> active_namespaces() override { return {1, 2}; }
  std::optional<std::vector<std::byte>> log_page(const GetLogPage& command) override {
    if (command.page == LogPage::kSmart) {
      std::vector<std::byte> page(kSmartBytes);
      encode(SmartLog{.host_reads = reads}, std::span<std::byte, kSmartBytes>(page));
      return page;
    }
    if (command.page == LogPage::kAna) return encode(AnaLog{1, {{.id = 1, .change_count = 1, .nsids = {1, 2}}}});
    return std::nullopt;
  }
  QueueCounts grant_queues(const QueueCounts& wanted) override {
    return {std::min(wanted.submission, 4u), std::min(wanted.completion, 4u)};
  }

  std::vector<std::byte> bytes;
  std::uint64_t connects = 0, reads = 0, writes = 0;
};

// The owner of a controller session: executes its I/O on the subsystem's memory, in an order drawn from a seed.
class Executor {
 public:
  Executor(ControllerSession& session, MemorySubsystem& subsystem, std::uint64_t seed)
      : session_(session), subsystem_(subsystem), prng_(seed) {}

  // Takes all requests and executes some. True when something was done.
  bool step() {
    bool busy = false;
    IoRequest requests[8];
    while (const std::size_t count = session_.take(requests)) {
      busy = true;
      for (std::size_t i = 0; i < count; ++i) accept(requests[i]);
    }
    std::uint32_t ids[8];
    while (session_.take_released(ids) > 0) busy = true;
    if (session_.state() == ControllerSession::State::kFailed) give_back();
    while (!ready_.empty() && prng_.below(4) != 0) {
      busy = true;
      const std::size_t at = prng_.below(ready_.size());
      const IoRequest request = ready_[at];
      ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(at));
      execute(request);
    }
    return busy || !ready_.empty();
  }

 private:
  void accept(const IoRequest& request) {
    if (!request.needs_buffer) {
      std::erase(waiting_, request.id);
      ready_.push_back(request);
      return;
    }
    if (buffers_.size() <= request.id) buffers_.resize(request.id + 1);
    buffers_[request.id].assign(request.length_bytes, std::byte{0});
    waiting_.push_back(request.id);
    session_.provide(request.id, buffers_[request.id]);
  }

  void execute(const IoRequest& request) {
    const Bytes place =
        Bytes(subsystem_.bytes)
            .subspan(std::min<std::size_t>(request.lba * MemorySubsystem::kBlockBytes, subsystem_.bytes.size()));
    switch (request.opcode) {
      case Opcode::kRead:
        ++subsystem_.reads;
        return session_.complete(request.id, {}, place.first(request.length_bytes));
      case Opcode::kWrite:
        ++subsystem_.writes;
        if (!request.damaged) std::ranges::copy(request.data, place.begin());
        break;
      case Opcode::kWriteZeroes:
        std::ranges::fill(place.first(std::size_t{request.blocks} * MemorySubsystem::kBlockBytes), std::byte{0});
        break;
      default:
        break;
    }
    session_.complete(request.id, {});
  }

  void give_back() {
    for (const IoRequest& request : ready_) session_.complete(request.id, {});
    for (const std::uint32_t id : waiting_) session_.complete(id, {});
    ready_.clear();
    waiting_.clear();
  }

  ControllerSession& session_;
  MemorySubsystem& subsystem_;
  base::Prng prng_;
  std::vector<IoRequest> ready_;
  std::vector<std::uint32_t> waiting_;
  std::vector<std::vector<std::byte>> buffers_;
};

// Moves at most `limit` bytes from one session to the other; `tap`, when given, sees (and may change) them.
template <class From, class To, class Tap>
std::size_t carry(From& from, To& to, std::size_t limit, std::uint64_t now_ns, Tap&& tap) {
  ConstBytes pieces[8];
  const std::size_t count = from.gather(pieces);
  const Want want = to.want();
  limit = std::min(limit, want.size());
  std::vector<std::byte> moved;
  for (std::size_t i = 0; i < count && moved.size() < limit; ++i) {
    const ConstBytes part = pieces[i].first(std::min(pieces[i].size(), limit - moved.size()));
    moved.insert(moved.end(), part.begin(), part.end());
  }
  if (moved.empty()) return 0;
  tap(moved);
  const std::size_t direct = std::min(moved.size(), want.direct.size());
  std::copy_n(moved.begin(), direct, want.direct.begin());
  std::copy(moved.begin() + static_cast<std::ptrdiff_t>(direct), moved.end(), want.stage.begin());
  from.sent(moved.size());
  to.received(moved.size(), now_ns);
  return moved.size();
}

struct Pair {
  Pair(HostOptions host_options, const ControllerOptions& controller_options, std::size_t blocks, std::uint64_t seed)
      : subsystem(blocks),
        host(named(std::move(host_options))),
        controller(controller_options, subsystem, 0),
        executor(controller, subsystem, seed),
        prng(seed) {
    host.start(0);
  }

  static HostOptions named(HostOptions options) {
    if (options.subnqn.empty()) options.subnqn = kSubnqn;
    if (options.hostnqn.empty()) options.hostnqn = kHostnqn;
    return options;
  }

  // One exchange in each direction, of random size. False when nothing moved and nothing is to be done.
  bool step() {
    const auto limit = [&] { return prng.below(3) == 0 ? 1 + prng.below(16) : 1 + prng.below(most_bytes); };
    bool busy =
        carry(host, controller, limit(), now_ns, [&](std::vector<std::byte>& bytes) { to_controller(bytes); }) > 0;
    busy = executor.step() || busy;
    busy = carry(controller, host, limit(), now_ns, [&](std::vector<std::byte>& bytes) { to_host(bytes); }) > 0 || busy;
    return busy;
  }
  void settle() {
    while (step()) {
    }
  }

  void to_controller(std::vector<std::byte>& bytes) { append(sent_by_host, bytes); }
  void to_host(std::vector<std::byte>& bytes) { append(sent_by_controller, bytes); }
  void append(std::vector<std::byte>& log, const std::vector<std::byte>& bytes) const {
    if (record) log.insert(log.end(), bytes.begin(), bytes.end());
  }

  MemorySubsystem subsystem;
  HostSession host;
  ControllerSession controller;
  Executor executor;
  base::Prng prng;
  std::uint64_t now_ns = 0;
  std::size_t most_bytes = 20'000;
  bool record = false;
  std::vector<std::byte> sent_by_host, sent_by_controller;
};

}  // namespace dlfs::nvme::test
