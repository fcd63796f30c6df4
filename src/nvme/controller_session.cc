#include "nvme/controller_session.h"

#include <bit>

#include "base/check.h"
#include "base/error.h"

namespace dlfs::nvme {

using base::make_error;

namespace {

constexpr std::uint64_t kKeepAliveGrace_ns = 1'000'000'000;

std::unexpected<Fault> fault(FatalError error, std::uint32_t information = 0) {
  return std::unexpected(Fault{error, information});
}
std::unexpected<Fault> invalid(std::uint32_t offset) { return fault(FatalError::kInvalidHeaderField, offset); }

// The command's SGL against the data in its capsule. Base 2.0, 4.1.2; NVMe/TCP 1.0, 2.
Status check_sgl(const Sqe& sqe, std::uint32_t data_bytes, std::uint32_t max_transfer_bytes) {
  if ((sqe.flags & 0x03u) != 0 || (!sqe.is_fabrics() && sqe.flags >> 6 != 1)) return {StatusCode::kInvalidField, true};
  if (sqe.sgl.length_bytes > max_transfer_bytes) return {StatusCode::kInvalidField, true};
  if (sqe.transfer() == Transfer::kToController && sqe.sgl.type == Sgl::kInCapsule) {
    if (sqe.sgl.address != 0) return {StatusCode::kSglOffsetInvalid, true};
    return sqe.sgl.length_bytes == data_bytes ? Status{} : Status{StatusCode::kDataSglLengthInvalid, true};
  }
  if (data_bytes != 0) return {StatusCode::kDataSglLengthInvalid, true};
  if (sqe.sgl.length_bytes > 0 && sqe.sgl.type != Sgl::kTransport) return {StatusCode::kSglTypeInvalid, true};
  return {};
}

}  // namespace

ControllerSession::ControllerSession(ControllerOptions options, Subsystem& subsystem, std::uint64_t now_ns)
    : options_(options),
      subsystem_(subsystem),
      receiver_(Receiver::kController, options_.stage_bytes),
      now_ns_(now_ns) {
  DLFS_CHECK(options_.max_queue_entries >= 2 && options_.max_queue_entries <= 1024 && options_.max_transfer_log2 <= 16);
  const std::uint32_t slots = options_.max_queue_entries;
  slots_.resize(slots);
  for (std::uint32_t i = slots; i-- > 0;) free_.push_back(static_cast<std::uint16_t>(i));
  buckets_.assign(std::bit_ceil(slots), kNone);
  pending_.resize(slots);
  runnable_.resize(slots);
  released_.reserve(slots);
  next_tick_ns_ = now_ns + options_.connect_timeout_ns;
}

// ---- slots ----

ControllerSession::Slot* ControllerSession::find(std::uint16_t cid) noexcept {
  for (std::uint16_t i = bucket(cid); i != kNone; i = slots_[i].next_in_bucket) {
    if (slots_[i].sqe.cid == cid) return &slots_[i];
  }
  return nullptr;
}

ControllerSession::Slot* ControllerSession::take_slot(const Sqe& sqe) {
  if (free_.empty()) return nullptr;
  Slot& slot = slots_[free_.back()];
  free_.pop_back();
  std::vector<std::byte> kept = std::move(slot.in_capsule);
  slot = Slot{};
  slot.in_capsule = std::move(kept);
  slot.sqe = sqe;
  slot.state = SlotState::kReceiving;
  slot.next_in_bucket = std::exchange(bucket(sqe.cid), index_of(slot));
  return &slot;
}

void ControllerSession::free_slot(Slot& slot) {
  std::uint16_t* link = &bucket(slot.sqe.cid);
  while (*link != index_of(slot)) link = &slots_[*link].next_in_bucket;
  *link = slot.next_in_bucket;
  slot.state = SlotState::kFree;
  admin_bytes_ -= slot.admin_data.size();
  slot.admin_data = {};
  free_.push_back(index_of(slot));
}

ControllerSession::Slot& ControllerSession::taken_slot(std::uint32_t id) noexcept {
  DLFS_CHECK(id < slots_.size() && slots_[id].state != SlotState::kFree && slots_[id].taken);
  return slots_[id];
}

std::uint32_t ControllerSession::in_capsule_limit() const noexcept {
  return state_ == State::kReady && qid_ != 0 ? options_.in_capsule_bytes : kAdminInCapsuleBytes;
}

// ---- receiving ----

Want ControllerSession::want() noexcept { return receiver_.want(large_incoming_ == 0); }

void ControllerSession::received(std::size_t bytes, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (const auto found = receiver_.received(bytes, *this)) terminate(*found);
}

std::expected<Bytes, Fault> ControllerSession::on_header(const PduShape& shape, const std::byte* header) {
  if (shape.type == PduType::kH2CTermReq) {
    const Fault reason = decode_term_req(header);
    fail(make_error(Code::kIo, "the host ended the connection: {} (FES {:02X}h, FEI {:X}h)",
                    fatal_error_name(reason.error), static_cast<unsigned>(reason.error), reason.information));
    return Bytes{};
  }
  if ((state_ == State::kAwaitIcReq) != (shape.type == PduType::kIcReq)) return fault(FatalError::kSequenceError);
  switch (shape.type) {
    case PduType::kIcReq:
      return on_ic_req(header);
    case PduType::kCapsuleCmd:
      return on_capsule(shape, header);
    case PduType::kH2CData:
      return on_h2c_data(shape, header);
    default:
      return invalid(kPduTypeAt);
  }
}

std::expected<Bytes, Fault> ControllerSession::on_ic_req(const std::byte* header) {
  const auto request = decode_ic_req(header);
  if (!request) return std::unexpected(request.error());
  const bool header_digest = request->header_digest && options_.allow_header_digest;
  const bool data_digest = request->data_digest && options_.allow_data_digest;
  const IcResp response{.alignment_bytes = options_.alignment_bytes,
                        .header_digest = header_digest,
                        .data_digest = data_digest,
                        .max_h2c_data_bytes = options_.max_h2c_data_bytes};
  send_.push([&](HeaderBuffer to) { return encode(response, to); });
  outgoing_ = {header_digest, data_digest, request->alignment_bytes};
  receiver_.set_framing({header_digest, data_digest, options_.alignment_bytes});
  state_ = State::kAwaitConnect;
  return Bytes{};
}

std::expected<Bytes, Fault> ControllerSession::on_capsule(const PduShape& shape, const std::byte* header) {
  const Sqe sqe = decode_capsule(header);
  if (shape.data_bytes > in_capsule_limit()) return fault(FatalError::kLimitExceeded);
  if (Slot* same = find(sqe.cid); same != nullptr) {
    // A host that shuts down may have forgotten its requests for events and use their ids again (SPDK does).
    if (same->state != SlotState::kParked) return invalid(kSqeAt + 2);
    --parked_;
    free_slot(*same);
  }
  Slot* slot = take_slot(sqe);
  if (slot == nullptr) return fault(FatalError::kSequenceError);  // more commands than the queue has entries
  last_heard_ns_ = now_ns_;
  sq_head_ = static_cast<std::uint16_t>((sq_head_ + 1u) % queue_entries_);
  if (const Status status = check_sgl(sqe, shape.data_bytes, max_transfer_bytes()); !status.ok())
    slot->refused = status;
  if (shape.data_bytes == 0) {
    dispatch(*slot);
    return Bytes{};
  }
  current_ = slot;
  current_bytes_ = shape.data_bytes;
  current_is_capsule_ = true;
  if (slot->refused) return Bytes{};
  if (slot->in_capsule.size() < shape.data_bytes) slot->in_capsule.resize(shape.data_bytes);
  slot->buffer = slot->in_capsule.data();
  return Bytes{slot->buffer, shape.data_bytes};
}

std::expected<Bytes, Fault> ControllerSession::on_h2c_data(const PduShape& shape, const std::byte* header) {
  const H2CData pdu = decode_h2c_data(header);
  if (pdu.ttag >= slots_.size() || slots_[pdu.ttag].state != SlotState::kWaitingR2T || !slots_[pdu.ttag].r2t_sent)
    return invalid(kTtagAt);
  Slot& slot = slots_[pdu.ttag];
  if (pdu.cid != slot.sqe.cid) return invalid(kDataCidAt);
  if (pdu.length_bytes != shape.data_bytes) return invalid(kDataLengthAt);
  if (pdu.length_bytes > options_.max_h2c_data_bytes) return fault(FatalError::kLimitExceeded);
  if (std::uint64_t{pdu.offset_bytes} + pdu.length_bytes > slot.length) return fault(FatalError::kDataOutOfRange);
  if (pdu.offset_bytes != slot.done) return invalid(kDataOffsetAt);
  if (pdu.last != (pdu.offset_bytes + pdu.length_bytes == slot.length)) return invalid(kFlagsAt);
  current_ = &slot;
  current_bytes_ = pdu.length_bytes;
  current_is_capsule_ = false;
  return Bytes{slot.buffer + pdu.offset_bytes, pdu.length_bytes};
}

void ControllerSession::on_data(bool intact) {
  DLFS_CHECK(current_ != nullptr);
  Slot& slot = *std::exchange(current_, nullptr);
  slot.done += current_bytes_;
  slot.damaged = slot.damaged || !intact;
  if (current_is_capsule_) {
    if (slot.damaged && !slot.refused) slot.refused = StatusCode::kTransientTransportError;
    return dispatch(slot);
  }
  if (slot.done < slot.length) return;
  if (slot.length > kLargeBytes) --large_incoming_;
  run(slot);
}

// ---- I/O ----

void ControllerSession::run(Slot& slot) {
  slot.state = SlotState::kRunning;
  runnable_[(runnable_begin_ + runnable_count_++) % runnable_.size()] = index_of(slot);
}

std::size_t ControllerSession::take(std::span<IoRequest> into) {
  std::size_t count = 0;
  for (; count < into.size() && runnable_count_ > 0; ++count, --runnable_count_) {
    const std::uint16_t id = runnable_[runnable_begin_];
    runnable_begin_ = (runnable_begin_ + 1) % runnable_.size();
    Slot& slot = slots_[id];
    const ReadWrite command = decode_read_write(slot.sqe);
    IoRequest request{.id = id,
                      .opcode = command.opcode,
                      .nsid = command.nsid,
                      .lba = command.lba,
                      .blocks = command.blocks,
                      .force_unit_access = command.force_unit_access,
                      .deallocate = command.deallocate,
                      .length_bytes = slot.length};
    if (command.opcode == Opcode::kDatasetManagement) {
      const DatasetManagement dsm = decode_dataset_management(slot.sqe);
      request.lba = 0;
      request.blocks = dsm.ranges;
      request.force_unit_access = false;
      request.deallocate = dsm.deallocate;
    } else if (command.opcode == Opcode::kFlush) {
      request = {.id = id, .opcode = command.opcode, .nsid = command.nsid};
    }
    request.needs_buffer = slot.state == SlotState::kNeedsBuffer;
    request.damaged = slot.damaged;
    if (slot.buffer != nullptr) request.data = {slot.buffer, slot.length};
    if (!slot.taken) ++taken_;
    slot.taken = true;
    into[count] = request;
  }
  return count;
}

void ControllerSession::provide(std::uint32_t id, Bytes buffer) {
  Slot& slot = taken_slot(id);
  if (state_ == State::kFailed) return;
  DLFS_CHECK(slot.state == SlotState::kNeedsBuffer && buffer.size() == slot.length);
  slot.buffer = buffer.data();
  slot.state = SlotState::kWaitingR2T;
  make_pending(slot);
}

void ControllerSession::complete(std::uint32_t id, const Status& status, ConstBytes data) {
  Slot& slot = taken_slot(id);
  slot.taken = false;
  --taken_;
  if (state_ == State::kFailed) return free_slot(slot);
  DLFS_CHECK(slot.state == SlotState::kRunning || slot.state == SlotState::kNeedsBuffer);
  if (status.ok() && !slot.damaged && slot.sqe.transfer() == Transfer::kToHost) {
    DLFS_CHECK(data.size() == slot.length);
    slot.answer_data = data;
    slot.tell_released = true;
  }
  answer(slot, slot.damaged ? Status(StatusCode::kTransientTransportError) : status);
}

std::size_t ControllerSession::take_released(std::span<std::uint32_t> ids) noexcept {
  const std::size_t count = std::min(ids.size(), released_.size());
  std::copy_n(released_.begin(), count, ids.begin());
  released_.erase(released_.begin(), released_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

// ---- sending ----

void ControllerSession::answer(Slot& slot, const Status& status, std::uint64_t result) {
  slot.state = SlotState::kAnswering;
  slot.answer = {.result = result, .sqhd = sq_head_, .cid = slot.sqe.cid, .status = status};
  make_pending(slot);
}

void ControllerSession::make_pending(Slot& slot) noexcept {
  DLFS_CHECK(!slot.pending && pending_count_ < pending_.size());
  slot.pending = true;
  pending_[(pending_begin_ + pending_count_++) % pending_.size()] = index_of(slot);
}

void ControllerSession::fill_send_queue() {
  while (pending_count_ > 0 && send_.room()) {
    Slot& slot = slots_[pending_[pending_begin_]];
    pending_begin_ = (pending_begin_ + 1) % pending_.size();
    --pending_count_;
    slot.pending = false;
    if (slot.state == SlotState::kWaitingR2T) {
      send_r2t(slot);
    } else {
      send_answer(slot);
    }
  }
}

// One R2T for all data of the command; the host cuts them at MAXH2CDATA.
void ControllerSession::send_r2t(Slot& slot) {
  const R2T pdu{.cid = slot.sqe.cid, .ttag = index_of(slot), .offset_bytes = 0, .length_bytes = slot.length};
  send_.push([&](HeaderBuffer to) { return encode(pdu, outgoing_, to); });
  slot.r2t_sent = true;
  if (slot.length > kLargeBytes) ++large_incoming_;
}

void ControllerSession::send_answer(Slot& slot) {
  const ConstBytes data = slot.answer_data;
  // Without flow control a response says nothing that the last data PDU cannot say.
  const bool success = !data.empty() && !sq_flow_control_ && slot.answer.status.ok() && slot.answer.result == 0;
  if (!data.empty()) {
    const C2HData pdu{.cid = slot.sqe.cid,
                      .offset_bytes = 0,
                      .length_bytes = static_cast<std::uint32_t>(data.size()),
                      .last = true,
                      .success = success};
    send_.push([&](HeaderBuffer to) { return encode(pdu, outgoing_, to); }, data, index_of(slot),
               outgoing_.data_digest);
  }
  slot.answer.sqhd = sq_flow_control_ ? sq_head_ : std::uint16_t{0xFFFF};
  if (!success) send_.push([&](HeaderBuffer to) { return encode_response(slot.answer, outgoing_, to); });
  if (data.empty()) free_slot(slot);
}

std::size_t ControllerSession::gather(std::span<ConstBytes> into) {
  if (state_ != State::kFailed) fill_send_queue();
  return send_.gather(into);
}

void ControllerSession::sent(std::size_t bytes) {
  send_.sent(bytes, [&](std::uint32_t owner) {
    Slot& slot = slots_[owner];
    if (slot.tell_released) released_.push_back(owner);
    free_slot(slot);
  });
}

// ---- time, and the end ----

void ControllerSession::tick(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (state_ == State::kFailed || now_ns < next_tick_ns_) return;
  if (state_ != State::kReady) {
    return fail(
        make_error(Code::kTimedOut, "a host did not connect within {} ms", options_.connect_timeout_ns / 1'000'000));
  }
  next_tick_ns_ = kNever;
  if (keep_alive_ms_ == 0) return;
  const std::uint64_t dead_at_ns = expires_ns();
  if (now_ns >= dead_at_ns) {
    return fail(make_error(Code::kTimedOut, "host {} was silent for longer than its keep-alive time of {} ms",
                           base::escape(hostnqn_), keep_alive_ms_));
  }
  next_tick_ns_ = dead_at_ns;
}

std::uint64_t ControllerSession::expires_ns() const noexcept {
  if (keep_alive_ms_ == 0) return kNever;
  return last_heard_ns_ + std::uint64_t{keep_alive_ms_} * 1'000'000 + kKeepAliveGrace_ns;
}

void ControllerSession::disconnected(std::string_view why) {
  if (state_ == State::kFailed) return;
  fail(make_error(Code::kDeviceLost, "the connection to host {} ended: {}", base::escape(hostnqn_), why));
}

void ControllerSession::terminate(const Fault& reason) {
  if (state_ == State::kFailed) return;
  std::array<std::byte, kMaxTermDataBytes> header;
  const ConstBytes offending = receiver_.header();
  std::ranges::copy(offending, header.begin());
  const bool whole = send_.abandon();
  fail(make_error(Code::kIo, "host {} broke the protocol: {} (FES {:02X}h, FEI {:X}h)", base::escape(hostnqn_),
                  fatal_error_name(reason.error), static_cast<unsigned>(reason.error), reason.information));
  if (whole) send_.push_term(PduType::kC2HTermReq, {reason, ConstBytes(header).first(offending.size())});
}

void ControllerSession::fail(Error error) {
  if (state_ == State::kFailed) return;
  state_ = State::kFailed;
  error_ = std::move(error);
  receiver_.stop();
  send_.abandon();
  current_ = nullptr;
  pending_count_ = runnable_count_ = 0;
  next_tick_ns_ = kNever;
  events_.clear();
  for (Slot& slot : slots_) {
    if (slot.state == SlotState::kFree || slot.taken) continue;
    if (slot.state == SlotState::kAnswering && slot.tell_released) released_.push_back(index_of(slot));
    free_slot(slot);
  }
}

}  // namespace dlfs::nvme
