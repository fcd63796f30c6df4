#include "nvme/host_session.h"

#include <bit>

#include "base/check.h"
#include "base/error.h"

namespace dlfs::nvme {

using base::make_error;

namespace {

std::unexpected<Fault> fault(FatalError error, std::uint32_t information = 0) {
  return std::unexpected(Fault{error, information});
}
std::unexpected<Fault> invalid(std::uint32_t offset) { return fault(FatalError::kInvalidHeaderField, offset); }

}  // namespace

HostSession::HostSession(HostOptions options)
    : options_(std::move(options)), receiver_(Receiver::kHost, options_.stage_bytes) {
  DLFS_CHECK(options_.depth >= 1 && options_.depth <= kMaxDepth && options_.max_r2t >= 1 &&
             options_.max_r2t <= kMaxR2T);
  const std::uint32_t slots = options_.depth + 1;
  slot_bits_ = static_cast<unsigned>(std::bit_width(slots - 1));
  slots_.resize(slots);
  pending_.resize(slots);
  for (std::uint32_t i = slots; i-- > 0;) free_.push_back(static_cast<std::uint16_t>(i));
  completions_.resize(slots);
}

// ---- the handshake ----

void HostSession::start(std::uint64_t now_ns) {
  DLFS_CHECK(state_ == SessionState::kIdle);
  now_ns_ = now_ns;
  state_ = SessionState::kHandshake;
  handshake_deadline_ns_ = now_ns + options_.connect_timeout_ns;
  const IcReq request{.alignment_bytes = options_.alignment_bytes,
                      .header_digest = options_.header_digest,
                      .data_digest = options_.data_digest,
                      .max_r2t = options_.max_r2t};
  send_.push([&](HeaderBuffer to) { return encode(request, to); });
  update_next_tick();
}

std::expected<Bytes, Fault> HostSession::on_ic_resp(const std::byte* header) {
  const auto response = decode_ic_resp(header);
  if (!response) return std::unexpected(response.error());
  if (response->header_digest != options_.header_digest || response->data_digest != options_.data_digest) {
    return fault(FatalError::kUnsupportedParameter, kDigestsAt);
  }
  initialized_ = true;
  max_h2c_data_bytes_ = response->max_h2c_data_bytes;
  outgoing_ = {options_.header_digest, options_.data_digest, response->alignment_bytes};
  receiver_.set_framing({options_.header_digest, options_.data_digest, options_.alignment_bytes});
  encode(
      ConnectData{
          .hostid = options_.hostid, .cntlid = options_.cntlid, .subnqn = options_.subnqn, .hostnqn = options_.hostnqn},
      connect_data_);
  const Connect connect{.qid = options_.qid,
                        .queue_entries = options_.depth + 1,
                        .disable_sq_flow_control = options_.disable_sq_flow_control,
                        .keep_alive_ms = options_.qid == 0 ? options_.keep_alive_ms : 0};
  take_slot({.sqe = connect.to_sqe(), .write_from = connect_data_}, Purpose::kConnect, now_ns_);
  return Bytes{};
}

void HostSession::connected(const Completion& completion) {
  if (!completion.status.ok()) {
    Error error =
        make_error(Code::kIo, "the controller refused to connect host {} to {}: {}", base::escape(options_.hostnqn),
                   base::escape(options_.subnqn), describe(completion.status));
    error.nvme_status = static_cast<std::uint16_t>(encode(completion.status) >> 1);
    return fail(std::move(error));
  }
  const ConnectResult result = decode_connect_result(completion.result);
  if (result.authentication != 0) {
    return fail(make_error(Code::kUnsupported, "the subsystem {} wants authentication, which is not supported",
                           base::escape(options_.subnqn)));
  }
  cntlid_ = result.cntlid;
  state_ = SessionState::kReady;
  handshake_deadline_ns_ = kNever;
  if (options_.qid == 0 && options_.keep_alive_ms > 0)
    keep_alive_at_ns_ = now_ns_ + std::uint64_t{options_.keep_alive_ms} * 500'000;
  update_next_tick();
}

// ---- commands ----

bool HostSession::submit(const HostCommand& command, std::uint64_t now_ns) {
  if (state_ != SessionState::kReady || in_flight_ + completion_count_ >= options_.depth) return false;
  now_ns_ = now_ns;
  const Transfer transfer = command.sqe.transfer();
  DLFS_CHECK(command.read_into.empty() || (transfer == Transfer::kToHost && command.write_from.empty()));
  DLFS_CHECK(command.write_from.empty() || transfer == Transfer::kToController);
  DLFS_CHECK(command.read_into.size() <= 0xFFFF'FFFF && command.write_from.size() <= 0xFFFF'FFFF);
  take_slot(command, Purpose::kUser, now_ns);
  return true;
}

HostSession::Slot& HostSession::take_slot(const HostCommand& command, Purpose purpose, std::uint64_t now_ns) {
  DLFS_CHECK(!free_.empty());
  Slot& slot = slots_[free_.back()];
  free_.pop_back();
  // A slot that was answered early may still stand among the pending ones; it keeps that place.
  slot = {.state = SlotState::kQueued,
          .purpose = purpose,
          .pending = slot.pending,
          .generation = static_cast<std::uint16_t>(slot.generation + 1),
          .older = newest_,
          .read_into = command.read_into.data(),
          .write_from = command.write_from.data(),
          .tag = command.tag,
          .sqe = command.sqe};
  slot.length = static_cast<std::uint32_t>(std::max(command.read_into.size(), command.write_from.size()));
  slot.in_capsule = !command.write_from.empty() &&
                    (command.write_from.size() <= options_.in_capsule_bytes || purpose == Purpose::kConnect);
  if (command.timeout_ns > 0) slot.deadline_ns = now_ns + command.timeout_ns;
  if (cid_of(slot) == 0xFFFF) ++slot.generation;  // a number that error logs use for "no command"
  slot.sqe.cid = cid_of(slot);
  slot.sqe.sgl = {0, slot.length, slot.in_capsule ? Sgl::kInCapsule : Sgl::kTransport};
  (newest_ == kNone ? oldest_ : slots_[newest_].newer) = index_of(slot);
  newest_ = index_of(slot);
  if (purpose == Purpose::kUser) ++in_flight_;
  next_tick_ns_ = std::min(next_tick_ns_, slot.deadline_ns);
  make_pending(slot);
  return slot;
}

std::uint16_t HostSession::cid_of(const Slot& slot) const noexcept {
  return static_cast<std::uint16_t>(unsigned{slot.generation} << slot_bits_ | index_of(slot));
}

// The command of this cid whose capsule is on its way or there; null for any other number, an old generation's among
// them.
HostSession::Slot* HostSession::find(std::uint16_t cid) noexcept {
  const std::size_t index = cid & ((1u << slot_bits_) - 1);
  if (index >= slots_.size()) return nullptr;
  Slot& slot = slots_[index];
  return slot.state == SlotState::kSent && !slot.answered && slot.sqe.cid == cid ? &slot : nullptr;
}

std::size_t HostSession::take(std::span<Completion> into) noexcept {
  const std::size_t count = std::min(into.size(), completion_count_);
  for (std::size_t i = 0; i < count; ++i) into[i] = completions_[(completion_begin_ + i) % completions_.size()];
  completion_begin_ = (completion_begin_ + count) % completions_.size();
  completion_count_ -= count;
  return count;
}

// ---- sending ----

void HostSession::make_pending(Slot& slot) noexcept {
  if (slot.pending) return;
  DLFS_CHECK(pending_count_ < pending_.size());
  slot.pending = true;
  pending_[(pending_begin_ + pending_count_++) % pending_.size()] = index_of(slot);
}

void HostSession::fill_send_queue() {
  while (pending_count_ > 0 && send_.room()) {
    Slot& slot = slots_[pending_[pending_begin_]];
    pending_begin_ = (pending_begin_ + 1) % pending_.size();
    --pending_count_;
    slot.pending = false;
    if (slot.state == SlotState::kQueued) {
      send_capsule(slot);
    } else if (slot.grant_count > 0) {
      send_h2c_data(slot);
    }
    if (slot.grant_count > 0) make_pending(slot);  // behind the others: all writes advance
  }
}

void HostSession::send_capsule(Slot& slot) {
  const std::uint32_t data_bytes = slot.in_capsule ? slot.length : 0;
  slot.state = SlotState::kSent;
  slot.done = data_bytes;
  slot.sends = data_bytes > 0 ? 1 : 0;
  send_.push([&](HeaderBuffer to) { return encode_capsule(slot.sqe, data_bytes, outgoing_, to); },
             {slot.write_from, data_bytes}, index_of(slot), outgoing_.data_digest);
}

void HostSession::send_h2c_data(Slot& slot) {
  Grant& grant = slot.grants[0];
  const std::uint32_t length = std::min(grant.left, max_h2c_data_bytes_);
  const H2CData pdu{.cid = slot.sqe.cid,
                    .ttag = grant.ttag,
                    .offset_bytes = grant.offset,
                    .length_bytes = length,
                    .last = length == grant.left};
  send_.push([&](HeaderBuffer to) { return encode(pdu, outgoing_, to); }, {slot.write_from + grant.offset, length},
             index_of(slot), outgoing_.data_digest);
  ++slot.sends;
  slot.done += length;
  grant.offset += length;
  grant.left -= length;
  if (grant.left > 0) return;
  std::move(slot.grants.begin() + 1, slot.grants.begin() + slot.grant_count, slot.grants.begin());
  --slot.grant_count;
}

std::size_t HostSession::gather(std::span<ConstBytes> into) {
  if (state_ != SessionState::kFailed) fill_send_queue();
  return send_.gather(into);
}

void HostSession::sent(std::size_t bytes) {
  send_.sent(bytes, [&](std::uint32_t owner) {
    Slot& slot = slots_[owner];
    DLFS_CHECK(slot.sends > 0);
    if (--slot.sends == 0 && slot.answered) finish(slot);
  });
}

// ---- receiving ----

Want HostSession::want() noexcept {
  const bool burst =
      oldest_ == kNone || slots_[oldest_].length <= options_.large_read_bytes || slots_[oldest_].read_into == nullptr;
  return receiver_.want(burst);
}

void HostSession::received(std::size_t bytes, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (const auto found = receiver_.received(bytes, *this)) terminate(*found);
}

std::expected<Bytes, Fault> HostSession::on_header(const PduShape& shape, const std::byte* header) {
  if (shape.type == PduType::kC2HTermReq) {
    const Fault reason = decode_term_req(header);
    fail(make_error(Code::kIo, "the controller ended the connection: {} (FES {:02X}h, FEI {:X}h)",
                    fatal_error_name(reason.error), static_cast<unsigned>(reason.error), reason.information));
    return Bytes{};
  }
  if (initialized_ == (shape.type == PduType::kIcResp)) return fault(FatalError::kSequenceError);
  switch (shape.type) {
    case PduType::kIcResp:
      return on_ic_resp(header);
    case PduType::kCapsuleResp:
      return on_response(header);
    case PduType::kC2HData:
      return on_c2h_data(shape, header);
    case PduType::kR2T:
      return on_r2t(header);
    default:
      return invalid(kPduTypeAt);
  }
}

std::expected<Bytes, Fault> HostSession::on_response(const std::byte* header) {
  const Cqe cqe = decode_response(header);
  Slot* slot = find(cqe.cid);
  if (slot == nullptr) return invalid(kResponseCidAt);
  answer(*slot, cqe);
  return Bytes{};
}

std::expected<Bytes, Fault> HostSession::on_c2h_data(const PduShape& shape, const std::byte* header) {
  const C2HData pdu = decode_c2h_data(header);
  Slot* slot = find(pdu.cid);
  if (slot == nullptr) return invalid(kDataCidAt);
  if (pdu.length_bytes != shape.data_bytes) return invalid(kDataLengthAt);
  if (pdu.success && !pdu.last) return invalid(kFlagsAt);
  if (slot->read_into == nullptr || std::uint64_t{pdu.offset_bytes} + pdu.length_bytes > slot->length) {
    return fault(FatalError::kDataOutOfRange);
  }
  if (slot->last_seen) return fault(FatalError::kSequenceError);
  if (pdu.offset_bytes != slot->done) return invalid(kDataOffsetAt);  // data of one command come in order
  current_ = slot;
  current_pdu_ = pdu;
  return Bytes{slot->read_into + pdu.offset_bytes, pdu.length_bytes};
}

void HostSession::on_data(bool intact) {
  DLFS_CHECK(current_ != nullptr);
  Slot& slot = *std::exchange(current_, nullptr);
  slot.done += current_pdu_.length_bytes;
  slot.last_seen = current_pdu_.last;
  slot.damaged = slot.damaged || !intact;
  if (current_pdu_.success) answer(slot, {.cid = slot.sqe.cid});
}

std::expected<Bytes, Fault> HostSession::on_r2t(const std::byte* header) {
  const R2T pdu = decode_r2t(header);
  Slot* slot = find(pdu.cid);
  if (slot == nullptr) return invalid(kDataCidAt);
  if (slot->write_from == nullptr || slot->in_capsule) return fault(FatalError::kSequenceError);
  if (pdu.length_bytes == 0) return invalid(kDataLengthAt);
  if (std::uint64_t{pdu.offset_bytes} + pdu.length_bytes > slot->length) return fault(FatalError::kDataOutOfRange);
  if (pdu.offset_bytes != slot->requested) return invalid(kDataOffsetAt);
  if (slot->grant_count == options_.max_r2t) return fault(FatalError::kLimitExceeded);
  slot->grants[slot->grant_count++] = {pdu.ttag, pdu.offset_bytes, pdu.length_bytes};
  slot->requested += pdu.length_bytes;
  make_pending(*slot);
  return Bytes{};
}

// The controller has answered. The completion waits while the caller's buffer is still being sent from.
void HostSession::answer(Slot& slot, const Cqe& cqe) {
  slot.answered = true;
  slot.answer = cqe;
  slot.grant_count = 0;
  if (slot.sends == 0) finish(slot);
}

void HostSession::finish(Slot& slot) {
  Completion completion{
      .tag = slot.tag, .result = slot.answer.result, .status = slot.answer.status, .from_controller = true};
  // A success is only believed when all data went where they belong.
  if (completion.status.ok() && (slot.damaged || slot.done != slot.length)) {
    completion.status = slot.damaged ? StatusCode::kTransientTransportError : StatusCode::kDataTransferError;
    completion.from_controller = false;
  }
  const Purpose purpose = slot.purpose;
  if (purpose == Purpose::kUser) complete(slot, completion);
  release(slot);
  if (purpose == Purpose::kConnect) connected(completion);
}

void HostSession::complete(const Slot& slot, const Completion& completion) {
  DLFS_CHECK(slot.purpose == Purpose::kUser && completion_count_ < completions_.size());
  completions_[(completion_begin_ + completion_count_++) % completions_.size()] = completion;
  --in_flight_;
}

void HostSession::release(Slot& slot) noexcept {
  (slot.older == kNone ? oldest_ : slots_[slot.older].newer) = slot.newer;
  (slot.newer == kNone ? newest_ : slots_[slot.newer].older) = slot.older;
  slot.state = SlotState::kFree;
  free_.push_back(index_of(slot));
}

// ---- time, and the end ----

void HostSession::tick(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (state_ == SessionState::kFailed || now_ns < next_tick_ns_) return;
  if (now_ns >= handshake_deadline_ns_) {
    return fail(make_error(Code::kTimedOut, "the controller did not accept the connection within {} ms",
                           options_.connect_timeout_ns / 1'000'000));
  }
  for (std::uint16_t i = oldest_; i != kNone; i = slots_[i].newer) {
    if (now_ns < slots_[i].deadline_ns) continue;
    if (slots_[i].purpose == Purpose::kKeepAlive) {
      return fail(make_error(Code::kTimedOut, "the controller did not answer a Keep Alive within {} ms",
                             options_.keep_alive_ms));
    }
    return fail(make_error(Code::kTimedOut, "a command (opcode {:02X}h) was not answered within its time",
                           slots_[i].sqe.opcode));
  }
  if (now_ns >= keep_alive_at_ns_) {
    // One at a time: while one is under way its deadline decides.
    const std::uint64_t period_ns = std::uint64_t{options_.keep_alive_ms} * 1'000'000;
    if (free_.size() + in_flight_ == slots_.size()) {
      take_slot({.sqe = keep_alive(), .timeout_ns = period_ns / 2}, Purpose::kKeepAlive, now_ns);
    }
    keep_alive_at_ns_ = now_ns + period_ns / 2;
  }
  update_next_tick();
}

void HostSession::update_next_tick() noexcept {
  next_tick_ns_ = std::min(handshake_deadline_ns_, keep_alive_at_ns_);
  for (std::uint16_t i = oldest_; i != kNone; i = slots_[i].newer)
    next_tick_ns_ = std::min(next_tick_ns_, slots_[i].deadline_ns);
}

void HostSession::disconnected(std::string_view why) {
  if (state_ == SessionState::kFailed) return;
  fail(make_error(Code::kDeviceLost, "the connection to the controller was lost: {}", why));
  send_.abandon();
}

void HostSession::terminate(const Fault& reason) {
  if (state_ == SessionState::kFailed) return;
  std::array<std::byte, kMaxTermDataBytes> header;  // fail() stops the receiver, whose bytes these are
  const ConstBytes offending = receiver_.header();
  std::ranges::copy(offending, header.begin());
  const bool whole = send_.abandon();
  const bool digests = reason.error == FatalError::kUnsupportedParameter && reason.information == kDigestsAt;
  fail(digests ? make_error(Code::kUnsupported,
                            "the target does not agree to these digests (header_digest {}, data_digest {}): leave them "
                            "off, or turn them on there",
                            options_.header_digest ? "on" : "off", options_.data_digest ? "on" : "off")
               : make_error(Code::kIo, "the controller broke the protocol: {} (FES {:02X}h, FEI {:X}h)",
                            fatal_error_name(reason.error), static_cast<unsigned>(reason.error), reason.information));
  // Behind half a PDU nothing else can be said; closing the connection says it all.
  if (whole) send_.push_term(PduType::kH2CTermReq, {reason, ConstBytes(header).first(offending.size())});
}

void HostSession::fail(Error error) {
  if (state_ == SessionState::kFailed) return;
  state_ = SessionState::kFailed;
  error_ = std::move(error);
  receiver_.stop();
  send_.abandon();
  current_ = nullptr;
  pending_count_ = 0;
  next_tick_ns_ = kNever;
  while (oldest_ != kNone) {
    Slot& slot = slots_[oldest_];
    if (slot.purpose == Purpose::kUser) complete(slot, {.tag = slot.tag, .status = StatusCode::kHostPathingError});
    release(slot);
  }
}

}  // namespace dlfs::nvme
