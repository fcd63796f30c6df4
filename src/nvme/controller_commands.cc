// What a controller session makes of commands: Fabrics, admin, and the checks of I/O before it is handed out.
#include "base/check.h"
#include "nvme/controller_session.h"

namespace dlfs::nvme {
namespace {

constexpr Status kInvalidField{StatusCode::kInvalidField, true}, kInvalidNamespace{StatusCode::kInvalidNamespace, true};
constexpr Status kSequence{StatusCode::kCommandSequenceError, true};

constexpr std::uint32_t kMaxAdminQueueEntries = 4096;  // ASQSZ: 3.1.2.2.2 gives the same limit for memory-based queues

// Offsets that Connect Invalid Parameters names. Base 2.0, 6.3.
constexpr std::uint16_t kSqsizeAt = 44;
// SGLS: SGLs without alignment; an offset in the address of an in-capsule descriptor; Transport SGL Data Blocks.
constexpr std::uint32_t kSglSupport = 1u << 0 | 1u << 20 | 1u << 21;

}  // namespace

void ControllerSession::dispatch(Slot& slot) {
  if (slot.refused) return answer(slot, *slot.refused);
  if (slot.sqe.is_fabrics()) return fabrics(slot);
  if (state_ != State::kReady) return answer(slot, kSequence);
  if (qid_ != 0) return io(slot);
  if (!status_.ready) return answer(slot, kSequence);
  admin(slot);
}

// ---- Fabrics ----

void ControllerSession::fabrics(Slot& slot) {
  const FabricsType type = slot.sqe.fabrics_type();
  if (type == FabricsType::kConnect) return connect(slot);
  if (state_ != State::kReady) return answer(slot, kSequence);
  if (type == FabricsType::kDisconnect) {
    if (qid_ == 0) return answer(slot, {StatusCode::kInvalidQueueType, true});
    return answer(slot, decode_disconnect(slot.sqe).record_format == 0
                            ? Status{}
                            : Status{StatusCode::kConnectIncompatibleFormat, true});
  }
  if (qid_ == 0 && type == FabricsType::kPropertyGet) return property_get(slot);
  if (qid_ == 0 && type == FabricsType::kPropertySet) return property_set(slot);
  answer(slot, kInvalidField);
}

void ControllerSession::connect(Slot& slot) {
  if (state_ != State::kAwaitConnect) return answer(slot, kSequence);
  const Connect command = decode_connect(slot.sqe);
  const auto refuse = [&](InvalidParameter parameter) {
    answer(slot, {StatusCode::kConnectInvalidParameters, true}, encode(parameter));
  };
  if (command.record_format != 0) return answer(slot, {StatusCode::kConnectIncompatibleFormat, true});
  if (slot.done != kConnectDataBytes) return answer(slot, {StatusCode::kDataSglLengthInvalid, true});
  // MQES limits I/O queues (3.1.3.1). A host may ask for a longer Admin Queue than there are slots; one that really
  // puts so many commands into it is stopped when they run out.
  const std::uint32_t longest = command.qid == 0 ? kMaxAdminQueueEntries : options_.max_queue_entries;
  if (command.queue_entries < 2 || command.queue_entries > longest) return refuse({kSqsizeAt, false});
  const auto data = decode_connect_data(std::span<const std::byte, kConnectDataBytes>(slot.buffer, kConnectDataBytes));
  if (!data) return refuse({data.error(), true});
  const ConnectAnswer decision = subsystem_.connect(command, *data);
  if (decision.status.code == StatusCode::kConnectInvalidParameters) return refuse(decision.invalid);
  if (!decision.status.ok()) return answer(slot, decision.status);
  state_ = State::kReady;
  qid_ = command.qid;
  cntlid_ = decision.cntlid;
  hostnqn_ = data->hostnqn;
  queue_entries_ = command.queue_entries;
  sq_flow_control_ = !command.disable_sq_flow_control;
  sq_head_ = 1;  // Connect took the first entry
  keep_alive_ms_ = qid_ == 0 ? command.keep_alive_ms : 0;
  next_tick_ns_ = keep_alive_ms_ > 0 ? now_ns_ : kNever;
  answer(slot, {}, encode(ConnectResult{.cntlid = cntlid_}));
}

void ControllerSession::property_get(Slot& slot) {
  const auto command = decode_property_get(slot.sqe);
  if (!command) return answer(slot, kInvalidField);
  const Capabilities capabilities{.max_queue_entries = options_.max_queue_entries, .ready_timeout_ms = 5000};
  const struct {
    std::uint32_t offset;
    bool wide;
    std::uint64_t value;
  } properties[] = {{kCapOffset, true, encode(capabilities)},
                    {kVersionOffset, false, kVersion14},
                    {kConfigurationOffset, false, configuration_wire_},
                    {kControllerStatusOffset, false, encode(status_)}};
  for (const auto& property : properties) {
    if (property.offset == command->offset && property.wide == command->wide) return answer(slot, {}, property.value);
  }
  answer(slot, kInvalidField);
}

// Only CC can be set. Base 2.0, 3.5 (initialisation) and 3.6 (shutdown).
void ControllerSession::property_set(Slot& slot) {
  const auto command = decode_property_set(slot.sqe);
  if (!command || command->offset != kConfigurationOffset || command->wide) return answer(slot, kInvalidField);
  const bool was_enabled = decode_configuration(configuration_wire_).enable;
  configuration_wire_ = static_cast<std::uint32_t>(command->value);
  const Configuration wanted = decode_configuration(configuration_wire_);
  if (wanted.enable && !was_enabled) {
    const bool possible = wanted.command_set == 0 && wanted.page_bytes == 4096 && wanted.sqe_bytes == kSqeBytes &&
                          wanted.cqe_bytes == kCqeBytes;
    status_ = {.ready = possible, .fatal = !possible};
  } else if (!wanted.enable) {
    reset();
  }
  if (wanted.shutdown != Shutdown::kNone) status_.shutdown = ShutdownState::kComplete;
  answer(slot, {});
}

// Base 2.0, 3.7.2: a reset forgets what was set and aborts what is under way, which here can only be requests for
// events.
void ControllerSession::reset() {
  status_ = {};
  events_.clear();
  async_config_ = {};
  parked_ = 0;
  for (Slot& slot : slots_) {
    if (slot.state == SlotState::kParked) free_slot(slot);
  }
}

// ---- admin ----

void ControllerSession::admin(Slot& slot) {
  switch (static_cast<Opcode>(slot.sqe.opcode)) {
    case Opcode::kIdentify:
      return identify(slot);
    case Opcode::kSetFeatures:
      return set_features(slot);
    case Opcode::kGetFeatures:
      return get_features(slot);
    case Opcode::kGetLogPage:
      return get_log_page(slot);
    case Opcode::kAsyncEventRequest:
      return async_event(slot);
    case Opcode::kAbort:
      return abort(slot);
    case Opcode::kKeepAlive:
      return answer(slot, {});
    default:
      return answer(slot, {StatusCode::kInvalidOpcode, true});
  }
}

void ControllerSession::answer_with(Slot& slot, std::vector<std::byte> data) {
  if (slot.sqe.sgl.length_bytes != data.size()) return answer(slot, {StatusCode::kDataSglLengthInvalid, true});
  if (admin_bytes_ + data.size() > kMaxAdminBytes)
    return answer(slot, StatusCode::kCommandInterrupted);  // to be tried again
  admin_bytes_ += data.size();
  slot.admin_data = std::move(data);
  slot.answer_data = slot.admin_data;
  answer(slot, {});
}

ControllerIdentity ControllerSession::identity() const {
  ControllerIdentity identity = subsystem_.controller_identity();
  identity.cntlid = cntlid_;
  identity.version = kVersion14;
  identity.max_transfer_pages_log2 = static_cast<std::uint8_t>(options_.max_transfer_log2);
  identity.async_event_limit = options_.async_events;
  identity.keep_alive_granularity_ms = 1000;
  identity.max_commands = static_cast<std::uint16_t>(options_.max_queue_entries);
  identity.sgl_support = kSglSupport;
  identity.io_command_capsule_bytes = kSqeBytes + options_.in_capsule_bytes;
  identity.io_response_capsule_bytes = kCqeBytes;
  identity.in_capsule_data_offset_bytes = 0;
  identity.max_sgl_descriptors = 1;
  identity.disconnect = true;
  return identity;
}

void ControllerSession::identify(Slot& slot) {
  const Identify command = decode_identify(slot.sqe);
  std::vector<std::byte> page(kIdentifyBytes);
  const IdentifyBuffer to(page);
  const bool active = subsystem_.namespace_shape(command.nsid).has_value();
  switch (command.cns) {
    case Cns::kController:
      encode(identity(), to);
      break;
    case Cns::kNamespace:
      if (active) {
        encode(subsystem_.namespace_identity(command.nsid), to);
      } else if (command.nsid == 0 || command.nsid > subsystem_.controller_identity().namespaces) {
        return answer(slot, kInvalidNamespace);
      }
      break;  // a namespace that could be and is not active: all zero
    case Cns::kDescriptors:
      if (!active) return answer(slot, kInvalidNamespace);
      encode(subsystem_.namespace_ids(command.nsid), to);
      break;
    case Cns::kActiveNamespaces: {
      if (command.nsid >= kMaxNsid) return answer(slot, kInvalidNamespace);
      std::vector<std::uint32_t> list = subsystem_.active_namespaces();
      std::erase_if(list, [&](std::uint32_t nsid) { return nsid <= command.nsid; });
      list.resize(std::min(list.size(), kMaxNamespaceList));
      encode_namespace_list(list, to);
      break;
    }
    default:
      return answer(slot, kInvalidField);
  }
  answer_with(slot, std::move(page));
}

void ControllerSession::set_features(Slot& slot) {
  const SetFeatures command = decode_set_features(slot.sqe);
  if (command.save) return answer(slot, {StatusCode::kFeatureNotSaveable, true});
  switch (command.feature) {
    case FeatureId::kNumberOfQueues: {
      const QueueCounts wanted = decode_queue_counts(command.value);
      if (wanted.submission > 65'535 || wanted.completion > 65'535) return answer(slot, kInvalidField);
      return answer(slot, {}, encode(subsystem_.grant_queues(wanted)));
    }
    case FeatureId::kKeepAliveTimer:
      keep_alive_ms_ = command.value;
      next_tick_ns_ = keep_alive_ms_ > 0 ? now_ns_ : kNever;
      return answer(slot, {});
    case FeatureId::kAsyncEventConfiguration:
      async_config_ = decode_async_event_config(command.value);
      return answer(slot, {});
    case FeatureId::kVolatileWriteCache:
      return answer(slot, {StatusCode::kFeatureNotChangeable, true});
  }
  answer(slot, kInvalidField);
}

void ControllerSession::get_features(Slot& slot) {
  constexpr std::uint8_t kCurrent = 0, kSupported = 3;
  constexpr std::uint64_t kChangeable = 1u << 2;
  const GetFeatures command = decode_get_features(slot.sqe);
  if (command.select != kCurrent && command.select != kSupported) return answer(slot, kInvalidField);
  std::uint64_t value = 0;
  bool changeable = true;
  switch (command.feature) {
    case FeatureId::kNumberOfQueues:
      value = encode(subsystem_.grant_queues({65'535, 65'535}));
      break;
    case FeatureId::kKeepAliveTimer:
      value = keep_alive_ms_;
      break;
    case FeatureId::kAsyncEventConfiguration:
      value = encode(async_config_);
      break;
    case FeatureId::kVolatileWriteCache:
      value = subsystem_.controller_identity().write_cache ? 1 : 0;
      changeable = false;
      break;
    default:
      return answer(slot, kInvalidField);
  }
  answer(slot, {}, command.select == kCurrent ? value : (changeable ? kChangeable : 0));
}

void ControllerSession::get_log_page(Slot& slot) {
  const GetLogPage command = decode_get_log_page(slot.sqe);
  if (command.length_bytes != slot.sqe.sgl.length_bytes) return answer(slot, {StatusCode::kDataSglLengthInvalid, true});
  if (command.offset_bytes % 4 != 0) return answer(slot, kInvalidField);
  const auto page = subsystem_.log_page(command);
  if (!page) return answer(slot, {StatusCode::kInvalidLogPage, true});
  if (command.offset_bytes > page->size()) return answer(slot, kInvalidField);
  // The length is bounded: it is the SGL's, which check_sgl() has compared with MDTS.
  std::vector<std::byte> part(command.length_bytes);
  const ConstBytes rest = ConstBytes(*page).subspan(command.offset_bytes);
  std::ranges::copy(rest.first(std::min(rest.size(), part.size())), part.begin());
  answer_with(slot, std::move(part));
}

void ControllerSession::async_event(Slot& slot) {
  if (parked_ >= options_.async_events) return answer(slot, {StatusCode::kAsyncEventLimitExceeded, true});
  slot.state = SlotState::kParked;
  ++parked_;
  deliver_events();
}

bool ControllerSession::wanted(const AsyncEvent& event) const noexcept {
  if (event.type != AsyncEvent::kNotice) return true;
  if (event.info == AsyncEvent::kNamespaceChanged) return async_config_.namespace_attribute;
  if (event.info == AsyncEvent::kAnaChanged) return async_config_.ana_change;
  if (event.info == AsyncEvent::kDiscoveryChanged) return async_config_.discovery_log_change;
  return true;
}

// Events of one kind that the host has not seen yet are one event: it reads the log page anyway.
void ControllerSession::notify(const AsyncEvent& event) {
  if (state_ != State::kReady || qid_ != 0 || !wanted(event)) return;
  if (std::ranges::find(events_, event) == events_.end()) events_.push_back(event);
  deliver_events();
}

void ControllerSession::deliver_events() {
  for (Slot& slot : slots_) {
    if (events_.empty() || parked_ == 0) return;
    if (slot.state != SlotState::kParked) continue;
    --parked_;
    answer(slot, {}, encode(events_.front()));
    events_.pop_front();
  }
}

// All other admin commands are answered at once, and I/O commands are another queue's: only requests for events can be
// aborted.
void ControllerSession::abort(Slot& slot) {
  const Abort command = decode_abort(slot.sqe);
  Slot* target = command.sqid == 0 ? find(command.cid) : nullptr;
  const bool aborted = target != nullptr && target->state == SlotState::kParked;
  if (aborted) {
    --parked_;
    answer(*target, StatusCode::kAbortRequested);
  }
  answer(slot, {}, aborted ? 0 : 1);
}

// ---- I/O ----

Status ControllerSession::check_io(const Slot& slot) const {
  const Sqe& sqe = slot.sqe;
  const auto opcode = static_cast<Opcode>(sqe.opcode);
  if (opcode == Opcode::kFlush && sqe.nsid == kAllNamespaces) return {};
  const auto shape = subsystem_.namespace_shape(sqe.nsid);
  if (!shape) return kInvalidNamespace;
  if (opcode == Opcode::kFlush) return {};
  if (shape->read_only && opcode != Opcode::kRead) return {StatusCode::kNamespaceWriteProtected, true};
  if (opcode == Opcode::kDatasetManagement) {
    const std::uint64_t expected = decode_dataset_management(sqe).ranges * kDsmRangeBytes;
    return sqe.sgl.length_bytes == expected ? Status{} : Status{StatusCode::kDataSglLengthInvalid, true};
  }
  const ReadWrite command = decode_read_write(sqe);
  if (command.lba > shape->blocks || command.blocks > shape->blocks - command.lba)
    return {StatusCode::kLbaOutOfRange, true};
  if (opcode == Opcode::kWriteZeroes) return {};
  const std::uint64_t expected = std::uint64_t{command.blocks} * shape->block_bytes;
  return sqe.sgl.length_bytes == expected ? Status{} : Status{StatusCode::kDataSglLengthInvalid, true};
}

void ControllerSession::io(Slot& slot) {
  switch (static_cast<Opcode>(slot.sqe.opcode)) {
    case Opcode::kFlush:
    case Opcode::kWrite:
    case Opcode::kRead:
    case Opcode::kWriteZeroes:
    case Opcode::kDatasetManagement:
      break;
    default:
      return answer(slot, {StatusCode::kInvalidOpcode, true});
  }
  if (const Status status = check_io(slot); !status.ok()) return answer(slot, status);
  const Transfer transfer = slot.sqe.transfer();
  slot.length = transfer == Transfer::kNone ? 0 : slot.sqe.sgl.length_bytes;
  run(slot);
  if (transfer == Transfer::kToController && slot.done == 0 && slot.length > 0) slot.state = SlotState::kNeedsBuffer;
}

}  // namespace dlfs::nvme
