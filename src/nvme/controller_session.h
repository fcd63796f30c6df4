// One NVMe/TCP queue, the controller's side: a state machine that takes bytes and time and gives bytes and I/O
// requests.
//
// The owner moves the bytes as with HostSession (gather, sent, want, received, tick). Fabrics and admin commands are
// answered within; I/O commands come out of take() and are completed later, in any order.
// **Thread**: one at a time. **Lifetime**: a request's buffers are the session's or the owner's as said below; a failed
// session is kept until every request that was taken has been completed.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "dlfs/result.h"
#include "nvme/property.h"
#include "nvme/receiver.h"
#include "nvme/send_queue.h"
#include "nvme/subsystem.h"

namespace dlfs::nvme {

struct ControllerOptions {
  bool allow_header_digest = true, allow_data_digest = true;
  std::uint32_t alignment_bytes = 4;      // CPDA
  std::uint32_t max_queue_entries = 128;  // 2 to 1024: CAP.MQES, and the longest queue that Connect may ask for
  std::uint32_t in_capsule_bytes = kAdminInCapsuleBytes;  // of I/O queues; the Admin Queue takes kAdminInCapsuleBytes
  std::uint32_t max_h2c_data_bytes = 1'048'576;           // MAXH2CDATA
  std::uint32_t max_transfer_log2 = 8;                    // MDTS: 2^n pages of 4096 bytes, for one command
  std::uint32_t async_events = 4;                         // AERL + 1
  std::uint64_t connect_timeout_ns = 5'000'000'000;       // until Connect has been answered
  std::size_t stage_bytes = 262'144;
};

// An I/O command. Read, Flush and Write Zeroes carry no data; the data of Write and Dataset Management are here when
// `data` is not empty.
struct IoRequest {
  std::uint32_t id = 0;  // the session's number for it, until complete()
  Opcode opcode = Opcode::kRead;
  std::uint32_t nsid = 0;
  std::uint64_t lba = 0;
  std::uint32_t blocks = 0;  // of Dataset Management: ranges of kDsmRangeBytes in `data`
  bool force_unit_access = false, deallocate = false;
  std::uint32_t length_bytes = 0;  // of the data
  Bytes data{};
  bool damaged = false;  // the data failed their digest: do not use them; complete() will say so whatever its status
  bool needs_buffer = false;  // a write whose data are still at the host: call provide(), and take() will give it again
};

class ControllerSession final : private PduHandler {
 public:
  enum class State : std::uint8_t { kAwaitIcReq, kAwaitConnect, kReady, kFailed };

  ControllerSession(ControllerOptions options, Subsystem& subsystem, std::uint64_t now_ns);
  ControllerSession(const ControllerSession&) = delete;
  ControllerSession& operator=(const ControllerSession&) = delete;

  State state() const noexcept { return state_; }
  // Why it ended (an orderly Disconnect among the reasons). The owner closes the connection once nothing is left to
  // send.
  const Error& error() const noexcept { return error_; }
  // From kReady on.
  std::uint16_t qid() const noexcept { return qid_; }
  std::uint16_t cntlid() const noexcept { return cntlid_; }
  const std::string& hostnqn() const noexcept { return hostnqn_; }
  // Of the Admin Queue: what the host set. The owner ends the I/O queues of a controller that is disabled or shut down.
  const ControllerStatus& controller_status() const noexcept { return status_; }
  const AsyncEventConfig& async_event_config() const noexcept { return async_config_; }

  std::size_t gather(std::span<ConstBytes> into);
  void sent(std::size_t bytes);
  bool anything_to_send() const noexcept { return !send_.empty() || pending_count_ > 0; }
  Want want() noexcept;
  void received(std::size_t bytes, std::uint64_t now_ns);
  void tick(std::uint64_t now_ns);
  std::uint64_t next_tick_ns() const noexcept { return next_tick_ns_; }
  // Of the Admin Queue: when the host counts as gone if it stays silent; ~0: never.
  std::uint64_t expires_ns() const noexcept;
  void disconnected(std::string_view why);

  // ---- I/O ----
  std::size_t take(std::span<IoRequest> into);
  // A buffer of length_bytes for a request that needs one; the owner's, used until the request is complete.
  void provide(std::uint32_t id, Bytes buffer);
  // `data` of a successful Read, length_bytes long: the owner's, used until take_released() names the request.
  // After a failure of the session this only gives the request back.
  void complete(std::uint32_t id, const Status& status, ConstBytes data = {});
  std::size_t take_released(std::span<std::uint32_t> ids) noexcept;  // Reads whose data are through; each once
  std::size_t in_flight() const noexcept { return taken_; }          // taken and not completed

  // An event for the host, of the Admin Queue: told when a request for events is there and the host wants such events.
  void notify(const AsyncEvent& event);

 private:
  static constexpr std::uint16_t kNone = 0xFFFF;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static constexpr std::uint32_t kLargeBytes = 16 * 1024;   // from here on data go straight to their place
  static constexpr std::size_t kMaxAdminBytes = 4'194'304;  // of admin commands' data that the host has not fetched
  enum class SlotState : std::uint8_t {
    kFree,
    kReceiving,    // the capsule's data are coming
    kNeedsBuffer,  // a write to be taken, or taken, without a buffer
    kWaitingR2T,   // R2T to send, then data to come
    kRunning,      // to be taken, or taken
    kParked,       // an Asynchronous Event Request
    kAnswering,    // data or response to send
  };
  struct Slot {
    SlotState state = SlotState::kFree;
    bool taken = false, tell_released = false, damaged = false, pending = false, r2t_sent = false;
    std::uint16_t next_in_bucket = kNone;
    std::uint32_t length = 0, done = 0;
    std::byte* buffer = nullptr;  // of a write's data
    ConstBytes answer_data{};
    Sqe sqe{};
    Cqe answer{};
    std::optional<Status> refused{};      // known to fail before its data have come
    std::vector<std::byte> in_capsule{};  // storage; grows to what is used
    std::vector<std::byte> admin_data{};
  };

  std::expected<Bytes, Fault> on_header(const PduShape& shape, const std::byte* header) override;
  void on_data(bool intact) override;
  std::expected<Bytes, Fault> on_ic_req(const std::byte* header);
  std::expected<Bytes, Fault> on_capsule(const PduShape& shape, const std::byte* header);
  std::expected<Bytes, Fault> on_h2c_data(const PduShape& shape, const std::byte* header);

  Slot* find(std::uint16_t cid) noexcept;
  Slot* take_slot(const Sqe& sqe);
  void free_slot(Slot& slot);
  std::uint16_t& bucket(std::uint16_t cid) noexcept { return buckets_[cid & (buckets_.size() - 1)]; }
  std::uint32_t in_capsule_limit() const noexcept;
  std::uint32_t max_transfer_bytes() const noexcept { return 4096u << options_.max_transfer_log2; }

  // controller_commands.cc: what the commands mean
  void dispatch(Slot& slot);
  void fabrics(Slot& slot);
  void connect(Slot& slot);
  void property_get(Slot& slot);
  void property_set(Slot& slot);
  void reset();
  void admin(Slot& slot);
  void identify(Slot& slot);
  void set_features(Slot& slot);
  void get_features(Slot& slot);
  void get_log_page(Slot& slot);
  void async_event(Slot& slot);
  void abort(Slot& slot);
  void io(Slot& slot);
  Status check_io(const Slot& slot) const;
  void deliver_events();
  void answer_with(Slot& slot, std::vector<std::byte> data);
  bool wanted(const AsyncEvent& event) const noexcept;
  ControllerIdentity identity() const;

  void run(Slot& slot);
  void answer(Slot& slot, const Status& status, std::uint64_t result = 0);
  void make_pending(Slot& slot) noexcept;
  void fill_send_queue();
  void send_answer(Slot& slot);
  void send_r2t(Slot& slot);
  void fail(Error error);
  void terminate(const Fault& reason);
  std::uint16_t index_of(const Slot& slot) const noexcept { return static_cast<std::uint16_t>(&slot - slots_.data()); }
  Slot& taken_slot(std::uint32_t id) noexcept;

  ControllerOptions options_;
  Subsystem& subsystem_;
  State state_ = State::kAwaitIcReq;
  Error error_{};
  Framing outgoing_{};
  std::uint16_t qid_ = 0, cntlid_ = 0, sq_head_ = 0;
  std::uint32_t queue_entries_ = 2;
  bool sq_flow_control_ = true;
  std::string hostnqn_;
  std::uint32_t configuration_wire_ = 0;
  ControllerStatus status_{};
  AsyncEventConfig async_config_{};
  std::uint32_t parked_ = 0;
  std::deque<AsyncEvent> events_;
  std::uint32_t keep_alive_ms_ = 0;

  std::vector<Slot> slots_;
  std::vector<std::uint16_t> free_, buckets_;
  std::vector<std::uint16_t> pending_, runnable_;  // rings, one place a slot
  std::size_t admin_bytes_ = 0;
  std::size_t large_incoming_ = 0;  // writes beyond kLargeBytes whose data are on their way
  std::size_t pending_begin_ = 0, pending_count_ = 0, runnable_begin_ = 0, runnable_count_ = 0, taken_ = 0;
  std::vector<std::uint32_t> released_;
  Slot* current_ = nullptr;
  std::uint32_t current_bytes_ = 0;
  bool current_is_capsule_ = false;
  SendQueue send_;
  PduReceiver receiver_;
  std::uint64_t now_ns_ = 0, next_tick_ns_ = kNever, last_heard_ns_ = 0;
};

}  // namespace dlfs::nvme
