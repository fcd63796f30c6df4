// The BlockDevice over NVMe/TCP: requests cut into commands, spread over paths and queues, tried again where that
// helps.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/fork_guard.h"
#include "block/device.h"
#include "block/nvme_path.h"

namespace dlfs::block {

class NvmeTcpDevice final : public BlockDevice {
 public:
  // **Blocks** until a path is live, all have failed, or connect_timeout has passed.
  static Result<std::unique_ptr<BlockDevice>> open(const NvmeTcpUrl& url, const OpenOptions& options,
                                                   net::Network& network);
  ~NvmeTcpDevice() override;

  const Geometry& geometry() const noexcept override { return geometry_; }
  const std::string& url() const noexcept override { return name_; }
  const std::string& notes() const noexcept override { return notes_; }
  const char* engine() const noexcept override { return "nvme-tcp"; }
  std::size_t submit(std::span<const Request> requests) noexcept override;
  std::size_t poll(std::span<Completion> completions) noexcept override;
  int wait_descriptor() const noexcept override { return poller_->descriptor(); }
  std::size_t in_flight() const noexcept override { return in_flight_; }
  void register_memory(std::span<std::byte>) noexcept override {}
  std::chrono::steady_clock::time_point now() const noexcept override;
  void wait(std::chrono::nanoseconds longest, int other) noexcept override;
  std::uint64_t interruptions() const noexcept override { return interruptions_; }
  std::string explain(const Completion& completion) const override;

 private:
  // A request of the caller: cut into pieces as there is room for them.
  struct Whole {
    Request request{};
    std::uint32_t issued_bytes = 0, pieces_out = 0;
    bool flush_issued = false, failed = false;
    Completion completion{};
    std::uint64_t since_ns = 0;  // submitted, or the last time a path was there
  };
  // One command.
  struct Piece {
    std::uint32_t whole = 0, length_bytes = 0;
    std::byte* data = nullptr;
    std::uint64_t offset_bytes = 0, sent_ns = 0, not_before_ns = 0;
    std::uint64_t first_sent_ns = 0;  // 0: never
    std::uint16_t path = 0;
    std::uint16_t refusal = 0;  // the status of the last attempt; 0: it was lost
    std::uint8_t attempts = 0, timeouts = 0;
  };
  using Queue = NvmePath::Queue;

  NvmeTcpDevice(NvmeTcpUrl url, net::Network& network, std::unique_ptr<net::Poller> poller);
  Result<void> bring_up(const OpenOptions& options);
  Error nothing_works() const;
  void describe_device(const NvmePath& path, const OpenOptions& options);

  void turn(std::uint64_t now_ns);  // one round of everything
  void turn_path(NvmePath& path, std::uint64_t now_ns);
  void came_up(NvmePath& path, std::uint64_t now_ns);
  void lose(NvmePath& path, Error why, std::uint64_t now_ns);
  void look_at_changes(NvmePath& path);
  void take(NvmePath& path, Queue& queue, std::uint64_t now_ns);
  void on_completion(NvmePath& path, const nvme::Completion& completion, bool lost, std::uint64_t now_ns);
  void on_refusal(std::uint32_t index, NvmePath& path, const nvme::Status& status, std::uint64_t now_ns);
  void retry(std::uint32_t index, std::uint64_t not_before_ns);
  std::uint64_t tried_until_ns(const Piece& piece) const noexcept;
  void expire_retries(std::uint64_t now_ns);
  void fail_piece(std::uint32_t index, int errno_value, std::uint16_t status);
  void end_piece(std::uint32_t index);
  void finish(std::uint32_t whole);
  void issue(std::uint64_t now_ns);
  bool issue_retries(std::uint64_t now_ns);
  bool issue_whole(std::uint32_t whole, std::uint64_t now_ns);
  bool issue_piece(std::uint32_t index, std::uint64_t now_ns);
  Queue* choose(NvmePath** path) noexcept;
  void send_touched();
  void give_up(std::uint64_t now_ns);
  void fail_all(int errno_value);
  void arm(std::uint64_t now_ns);
  void rouse() noexcept;
  std::uint32_t new_piece();
  int check(const Request& request) const noexcept;
  bool writes(const Piece& piece) const noexcept { return wholes_[piece.whole].request.op == Op::kWrite; }
  bool any_usable() const noexcept;

  NvmeTcpUrl url_;
  net::Network& network_;
  std::unique_ptr<net::Poller> poller_;
  std::string name_, notes_;
  Geometry geometry_{};
  base::ForkGuard guard_;
  std::vector<std::unique_ptr<NvmePath>> paths_;
  std::vector<bool> was_live_;
  nvme::NamespaceInfo space_{};  // as it was opened
  unsigned block_shift_ = 9;
  bool live_once_ = false;
  std::string changed_;  // why the namespace is not the one that was opened; empty: it is
  std::uint64_t no_path_since_ns_ = 0, last_turn_ns_ = 0, armed_ns_ = ~std::uint64_t{0};
  bool was_away_ = false;  // nobody turned for long: commands that are late now are not the controller's fault
  std::uint64_t interruptions_ = 0;
  std::uint64_t writes_held_until_ns_ = 0;  // see lose()

  std::vector<Whole> wholes_;
  std::vector<std::uint32_t> free_wholes_;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> free_pieces_;
  std::deque<std::uint32_t> pending_;  // wholes with something to issue
  std::vector<std::uint32_t> retries_;
  std::vector<Completion> done_;
  std::size_t done_begin_ = 0, in_flight_ = 0;
};

}  // namespace dlfs::block
