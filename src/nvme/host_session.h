// One NVMe/TCP queue, the host's side: a state machine that takes bytes and time and gives bytes and completions.
//
// The owner moves the bytes:   gather() -> send -> sent();   want() -> receive -> received();   tick() when
// next_tick_ns() is due.
// **Thread**: one at a time. **Lifetime**: buffers of a command belong to the session from submit() until its
// completion was taken. Between gather() and its sent(), and between want() and its received(), no other call is made.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dlfs/result.h"
#include "nvme/receiver.h"
#include "nvme/send_queue.h"

namespace dlfs::nvme {

struct HostOptions {
  std::string subnqn{}, hostnqn{};
  std::array<std::byte, 16> hostid{};
  std::uint16_t qid = 0;                  // 0: the Admin Queue
  std::uint16_t cntlid = kAnyController;  // of an I/O queue: what the Admin Queue's Connect gave
  std::uint32_t depth = 32;               // commands in flight, 1 to 4095; the queue has one entry more
  bool disable_sq_flow_control = true;
  bool header_digest = false, data_digest = false;        // asked for; a controller that does not agree is refused
  std::uint32_t alignment_bytes = 4;                      // HPDA
  std::uint32_t max_r2t = 1;                              // 1 to kMaxR2T
  std::uint32_t in_capsule_bytes = kAdminInCapsuleBytes;  // of I/O queues: IOCCSZ less the command's 64 bytes
  std::uint32_t keep_alive_ms = 0;  // of the Admin Queue; 0: none. Half of it passes between two Keep Alives
  std::uint64_t connect_timeout_ns = 5'000'000'000;
  std::size_t stage_bytes = 262'144;
  std::uint32_t large_read_bytes = 16 * 1024;  // while the oldest command is longer, data go straight to their place
};

struct HostCommand {
  Sqe sqe{};          // cid and SGL are the session's to fill in
  Bytes read_into{};  // one of the two, or neither; as long as the command's transfer
  ConstBytes write_from{};
  std::uint64_t tag = 0;  // comes back in the completion
  std::uint64_t timeout_ns =
      0;  // 0: none. When it passes the session fails: what the controller does with the command is unknown
};

struct Completion {
  std::uint64_t tag = 0;
  std::uint64_t result = 0;  // DW0 and DW1
  Status status{};
  bool from_controller =
      false;  // false: the session failed, or the data were damaged or missing; status says so as a controller would
};

enum class SessionState : std::uint8_t { kIdle, kHandshake, kReady, kFailed };

class HostSession final : private PduHandler {
 public:
  static constexpr std::uint32_t kMaxR2T = 4, kMaxDepth = 4095;

  explicit HostSession(HostOptions options);
  HostSession(const HostSession&) = delete;
  HostSession& operator=(const HostSession&) = delete;

  void start(std::uint64_t now_ns);  // the connection stands: begins the handshake
  SessionState state() const noexcept { return state_; }
  // Why the session failed; the owner closes the connection once nothing is left to send. Precondition: state() ==
  // kFailed.
  const Error& error() const noexcept { return error_; }
  std::uint16_t cntlid() const noexcept { return cntlid_; }  // from kReady on

  // False: not ready, or as many commands as the depth allows are in flight or finished and not taken.
  bool submit(const HostCommand& command, std::uint64_t now_ns);
  std::size_t in_flight() const noexcept { return in_flight_; }
  // Finished commands, each once, in the order in which they finished.
  std::size_t take(std::span<Completion> into) noexcept;

  std::size_t gather(
      std::span<ConstBytes> into);  // what to send next: headers and callers' data, many capsules at once
  void sent(std::size_t bytes);
  bool anything_to_send() const noexcept {
    return !send_.empty() || (pending_count_ > 0 && state_ != SessionState::kFailed);
  }

  Want want() noexcept;
  void received(std::size_t bytes, std::uint64_t now_ns);

  void tick(std::uint64_t now_ns);
  std::uint64_t next_tick_ns() const noexcept { return next_tick_ns_; }  // ~0: none
  void disconnected(std::string_view why);  // the peer or the network closed the connection

 private:
  static constexpr std::uint16_t kNone = 0xFFFF;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  struct Grant {  // an R2T not yet served
    std::uint16_t ttag = 0;
    std::uint32_t offset = 0, left = 0;
  };
  enum class SlotState : std::uint8_t { kFree, kQueued, kSent };
  enum class Purpose : std::uint8_t { kUser, kConnect, kKeepAlive };
  struct Slot {
    SlotState state = SlotState::kFree;
    Purpose purpose = Purpose::kUser;
    bool pending = false, in_capsule = false, last_seen = false, damaged = false, answered = false;
    std::uint8_t grant_count = 0;
    std::uint16_t generation = 0, newer = kNone, older = kNone;
    std::uint32_t length = 0;
    std::uint32_t done = 0;       // bytes that came, or that were put into the send queue
    std::uint32_t requested = 0;  // bytes that R2Ts asked for
    std::uint32_t sends = 0;      // pieces of the data in the send queue
    std::byte* read_into = nullptr;
    const std::byte* write_from = nullptr;
    std::uint64_t tag = 0, deadline_ns = kNever;
    Cqe answer{};
    std::array<Grant, kMaxR2T> grants{};
    Sqe sqe{};
  };

  std::expected<Bytes, Fault> on_header(const PduShape& shape, const std::byte* header) override;
  void on_data(bool intact) override;

  std::expected<Bytes, Fault> on_ic_resp(const std::byte* header);
  std::expected<Bytes, Fault> on_response(const std::byte* header);
  std::expected<Bytes, Fault> on_c2h_data(const PduShape& shape, const std::byte* header);
  std::expected<Bytes, Fault> on_r2t(const std::byte* header);
  Slot* find(std::uint16_t cid) noexcept;
  std::uint16_t cid_of(const Slot& slot) const noexcept;

  Slot& take_slot(const HostCommand& command, Purpose purpose, std::uint64_t now_ns);
  void make_pending(Slot& slot) noexcept;
  void fill_send_queue();
  void send_capsule(Slot& slot);
  void send_h2c_data(Slot& slot);
  void answer(Slot& slot, const Cqe& cqe);
  void finish(Slot& slot);
  void release(Slot& slot) noexcept;
  void connected(const Completion& completion);
  void complete(const Slot& slot, const Completion& completion);
  void fail(Error error);
  void terminate(const Fault& fault);
  void update_next_tick() noexcept;
  std::uint16_t index_of(const Slot& slot) const noexcept { return static_cast<std::uint16_t>(&slot - slots_.data()); }

  HostOptions options_;
  SessionState state_ = SessionState::kIdle;
  bool initialized_ = false;  // the ICResp came
  Error error_{};
  std::uint16_t cntlid_ = kAnyController;
  Framing outgoing_{};
  std::uint32_t max_h2c_data_bytes_ = kMinMaxH2CDataBytes;
  unsigned slot_bits_ = 0;
  std::vector<Slot> slots_;  // depth for the user, one for the session's own commands
  std::vector<std::uint16_t> free_, pending_;
  std::size_t pending_begin_ = 0, pending_count_ = 0;
  std::uint16_t oldest_ = kNone, newest_ = kNone;
  std::size_t in_flight_ = 0;
  std::vector<Completion> completions_;
  std::size_t completion_begin_ = 0, completion_count_ = 0;
  Slot* current_ = nullptr;  // whose C2HData is coming in
  C2HData current_pdu_{};
  SendQueue send_;
  PduReceiver receiver_;
  std::array<std::byte, kConnectDataBytes> connect_data_{};
  std::uint64_t now_ns_ = 0, next_tick_ns_ = kNever, handshake_deadline_ns_ = kNever, keep_alive_at_ns_ = kNever;
};

}  // namespace dlfs::nvme
