#include "nvme/admin_driver.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace dlfs::nvme {

using base::make_error;

namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kReadyPoll_ns = 5'000'000;
constexpr std::uint32_t kMaxDiscoveryEntries = 10'000, kDiscoveryPart = 16, kMaxDiscoveryAttempts = 8;
constexpr std::size_t kMaxNamespacesKept = 65'536, kMaxAnaLogBytes = 1u << 20;
constexpr std::uint32_t kQueueEntries = 32;
constexpr std::uint64_t kOwnTag = 1, kUserTag = 2, kEventTag = 3;
constexpr std::uint32_t kNoticeNamespace = 1u << 8, kNoticeAna = 1u << 11, kNoticeDiscovery = 1u << 31;  // OAES
constexpr std::uint32_t kOldestVersion = 0x0001'0200;  // 1.2: before that there was no fabric

enum class Step : std::uint8_t {
  kConnect,
  kCapabilities,
  kVersion,
  kConfiguration,
  kDisable,
  kWaitDisabled,
  kEnable,
  kWaitReady,
  kController,
  kDiscoveryHeader,
  kDiscoveryEntries,
  kDiscoveryAgain,
  kQueues,
  kNamespaces,
  kChangedLog,
  kNamespace,
  kDescriptors,
  kAna,
  kEvents,
  kDone,
};

const char* step_name(Step step) {
  switch (step) {
    case Step::kConnect:
      return "connecting";
    case Step::kCapabilities:
    case Step::kVersion:
    case Step::kConfiguration:
      return "reading the controller's properties";
    case Step::kDisable:
    case Step::kWaitDisabled:
      return "resetting the controller";
    case Step::kEnable:
    case Step::kWaitReady:
      return "enabling the controller";
    case Step::kController:
      return "identifying the controller";
    case Step::kDiscoveryHeader:
    case Step::kDiscoveryEntries:
    case Step::kDiscoveryAgain:
      return "reading the discovery log";
    case Step::kQueues:
      return "asking for I/O queues";
    case Step::kNamespaces:
      return "listing the namespaces";
    case Step::kChangedLog:
      return "reading the changed namespaces";
    case Step::kNamespace:
    case Step::kDescriptors:
      return "identifying the namespace";
    case Step::kAna:
      return "reading the access states";
    case Step::kEvents:
      return "asking for events";
    case Step::kDone:
      break;
  }
  return "running";
}

std::string list_of(const std::vector<std::uint32_t>& nsids) {
  std::string text;
  for (std::size_t i = 0; i < nsids.size() && i < 16; ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", nsids[i]);
  if (nsids.size() > 16) text += ", ...";
  return text.empty() ? "none" : text;
}

}  // namespace

struct AdminDriver::Impl {
  explicit Impl(AdminOptions o) : options(std::move(o)), session(with_queue(options)) { page.resize(kIdentifyBytes); }
  static HostOptions with_queue(const AdminOptions& options) {
    HostOptions session = options.session;
    session.qid = 0;
    session.cntlid = kAnyController;
    session.depth = kQueueEntries - 1;
    return session;
  }

  AdminOptions options;
  HostSession session;
  State state = State::kIdle;
  Step step = Step::kConnect;
  Error error{};
  bool final = false;      // do_not_retry()
  bool waiting = false;    // an own command is under way
  bool rereading = false;  // after kReady: the namespace or its state
  bool refresh_wanted = false, list_changed = false;
  std::uint64_t now_ns = 0, poll_at_ns = kNever, ready_by_ns = kNever;
  std::vector<std::byte> page;
  std::uint32_t events_out = 0;
  bool events_refused = false;
  bool user_busy = false;
  std::optional<Completion> user_answer;

  Capabilities capabilities{};
  std::uint32_t version = 0, configuration = 0;
  ControllerIdentity controller{};
  std::uint32_t io_queues = 0;
  std::vector<std::uint32_t> namespaces, listing;
  std::optional<NamespaceInfo> space, reading;
  std::vector<DiscoveryEntry> entries, entries_coming;
  DiscoveryHeader header{};
  std::uint32_t attempts = 0;
  Changes changes{};

  // ---- commands ----

  void fail(Error what, bool no_retry) {
    if (state == State::kFailed) return;
    state = State::kFailed;
    error = std::move(what);
    final = no_retry;
  }

  void send(const Sqe& sqe, Bytes into = {}) {
    waiting = session.submit({.sqe = sqe, .read_into = into, .tag = kOwnTag, .timeout_ns = options.command_timeout_ns},
                             now_ns);
    if (!waiting) fail(make_error(Code::kIo, "{} failed: no room on the Admin Queue", step_name(step)), false);
  }
  Bytes page_bytes(std::size_t bytes) {
    page.assign(bytes, std::byte{0});
    return page;
  }
  IdentifyView identify_page() const { return IdentifyView(page.data(), kIdentifyBytes); }

  void go(Step next) {
    step = next;
    begin();
  }

  void begin() {
    switch (step) {
      case Step::kConnect:
        return;
      case Step::kCapabilities:
        return send(PropertyGet{.offset = kCapOffset, .wide = true}.to_sqe());
      case Step::kVersion:
        return send(PropertyGet{.offset = kVersionOffset}.to_sqe());
      case Step::kConfiguration:
        return send(PropertyGet{.offset = kConfigurationOffset}.to_sqe());
      case Step::kDisable:
        return send(PropertySet{.offset = kConfigurationOffset, .value = 0}.to_sqe());
      case Step::kEnable:
        return send(PropertySet{.offset = kConfigurationOffset, .value = encode(wanted_configuration())}.to_sqe());
      case Step::kWaitDisabled:
      case Step::kWaitReady:
        return send(PropertyGet{.offset = kControllerStatusOffset}.to_sqe());
      case Step::kController:
        return send(Identify{.cns = Cns::kController}.to_sqe(), page_bytes(kIdentifyBytes));
      case Step::kDiscoveryHeader:
      case Step::kDiscoveryAgain:
        return send(GetLogPage{.page = LogPage::kDiscovery, .length_bytes = kDiscoveryHeaderBytes}.to_sqe(),
                    page_bytes(kDiscoveryHeaderBytes));
      case Step::kDiscoveryEntries:
        return read_entries();
      case Step::kQueues:
        return send(SetFeatures{.feature = FeatureId::kNumberOfQueues,
                                .value = encode(QueueCounts{options.io_queues, options.io_queues})}
                        .to_sqe());
      case Step::kNamespaces:
        return send(Identify{.cns = Cns::kActiveNamespaces, .nsid = listing.empty() ? 0 : listing.back()}.to_sqe(),
                    page_bytes(kIdentifyBytes));
      case Step::kChangedLog:
        return send(GetLogPage{.page = LogPage::kChangedNamespaces, .length_bytes = kChangedNamespacesBytes}.to_sqe(),
                    page_bytes(kChangedNamespacesBytes));
      case Step::kNamespace:
        return send(Identify{.cns = Cns::kNamespace, .nsid = options.nsid}.to_sqe(), page_bytes(kIdentifyBytes));
      case Step::kDescriptors:
        return send(Identify{.cns = Cns::kDescriptors, .nsid = options.nsid}.to_sqe(), page_bytes(kIdentifyBytes));
      case Step::kAna:
        return send(GetLogPage{.page = LogPage::kAna, .length_bytes = ana_log_bytes()}.to_sqe(),
                    page_bytes(ana_log_bytes()));
      case Step::kEvents:
        return send(
            SetFeatures{.feature = FeatureId::kAsyncEventConfiguration, .value = encode(wanted_events())}.to_sqe());
      case Step::kDone:
        return;
    }
  }

  Configuration wanted_configuration() const {
    return {.enable = true, .page_bytes = capabilities.min_page_bytes, .sqe_bytes = kSqeBytes, .cqe_bytes = kCqeBytes};
  }
  AsyncEventConfig wanted_events() const {
    return {.namespace_attribute = (controller.async_events & kNoticeNamespace) != 0,
            .ana_change = (controller.async_events & kNoticeAna) != 0,
            .discovery_log_change = (controller.async_events & kNoticeDiscovery) != 0};
  }
  // Base 2.0, 5.16.1.13: a header of 16 bytes, and each group 32 bytes and its namespaces.
  std::uint64_t ana_log_bytes() const {
    const std::uint64_t spaces = std::max(controller.max_namespaces, controller.namespaces);
    const std::uint64_t bytes =
        16 + 32ull * std::max(1u, controller.ana_groups) + 4 * std::min<std::uint64_t>(spaces, kMaxNamespacesKept);
    const std::uint64_t limit = std::min<std::uint64_t>(kMaxAnaLogBytes, max_transfer());
    return std::min(bytes + 4096, limit) / 4 * 4;
  }
  std::uint32_t max_transfer() const {
    const unsigned shift = controller.max_transfer_pages_log2;
    if (shift == 0) return 0xFFFF'FFFF;
    const std::uint64_t bytes = shift >= 32 ? ~std::uint64_t{0} : std::uint64_t{capabilities.min_page_bytes} << shift;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, 0xFFFF'FFFF));
  }

  // ---- answers ----

  void on_answer(const Completion& completion) {
    waiting = false;
    if (!completion.status.ok()) return on_refusal(completion);
    switch (step) {
      case Step::kConnect:
      case Step::kDone:
        return;
      case Step::kCapabilities:
        return on_capabilities(completion.result);
      case Step::kVersion:
        version = static_cast<std::uint32_t>(completion.result);
        if (version < kOldestVersion) {
          return fail(make_error(Code::kUnsupported,
                                 "the controller reports NVMe version {:08X}h; at least 1.2 is needed", version),
                      true);
        }
        return go(Step::kConfiguration);
      case Step::kConfiguration:
        configuration = static_cast<std::uint32_t>(completion.result);
        ready_by_ns = now_ns + std::uint64_t{capabilities.ready_timeout_ms} * 1'000'000;
        return go(decode_configuration(configuration).enable ? Step::kDisable : Step::kEnable);
      case Step::kDisable:
        return go(Step::kWaitDisabled);
      case Step::kEnable:
        ready_by_ns = now_ns + std::uint64_t{capabilities.ready_timeout_ms} * 1'000'000;
        return go(Step::kWaitReady);
      case Step::kWaitDisabled:
      case Step::kWaitReady:
        return on_controller_status(decode_controller_status(static_cast<std::uint32_t>(completion.result)));
      case Step::kController:
        return on_controller();
      case Step::kDiscoveryHeader:
        return on_discovery_header();
      case Step::kDiscoveryEntries:
        return on_discovery_entries();
      case Step::kDiscoveryAgain:
        return on_discovery_again();
      case Step::kQueues: {
        const QueueCounts granted = decode_queue_counts(static_cast<std::uint32_t>(completion.result));
        io_queues = std::min({options.io_queues, granted.submission, granted.completion});
        return go(Step::kNamespaces);
      }
      case Step::kNamespaces:
        return on_namespaces();
      case Step::kChangedLog:
        return go(Step::kNamespaces);  // what it says is in the list as well; reading it clears the event
      case Step::kNamespace:
        return on_namespace();
      case Step::kDescriptors:
        if (const auto ids = decode_namespace_ids(identify_page())) reading->ids = *ids;
        return after_descriptors();
      case Step::kAna:
        return on_ana();
      case Step::kEvents:
        return finish();
    }
  }

  // What is optional is done without; anything else ends the attempt.
  void on_refusal(const Completion& completion) {
    if (completion.from_controller) {
      if (step == Step::kDescriptors) return after_descriptors();
      if (step == Step::kEvents) {
        events_refused = true;
        return finish();
      }
      if (step == Step::kChangedLog) return go(Step::kNamespaces);
      if (step == Step::kNamespace && completion.status.code == StatusCode::kInvalidNamespace) return no_namespace();
      if (step == Step::kNamespaces && options.nsid != 0 && listing.empty()) {  // an old controller without the list
        namespaces = {options.nsid};
        return go(Step::kNamespace);
      }
    }
    Error what = make_error(Code::kIo, "{} failed: {}", step_name(step), describe(completion.status));
    what.nvme_status = static_cast<std::uint16_t>(encode(completion.status) >> 1);
    fail(std::move(what), completion.from_controller && completion.status.do_not_retry);
  }

  void on_capabilities(std::uint64_t wire) {
    capabilities = decode_capabilities(wire);
    if ((capabilities.command_sets & 1) == 0 && !options.discovery) {
      return fail(make_error(Code::kUnsupported, "the controller does not offer the NVM command set (CAP.CSS {:02X}h)",
                             capabilities.command_sets),
                  true);
    }
    if (capabilities.max_queue_entries < 2) {
      return fail(make_error(Code::kIo, "the controller offers queues of {} entry; at least 2 are needed",
                             capabilities.max_queue_entries),
                  true);
    }
    capabilities.ready_timeout_ms = std::clamp(capabilities.ready_timeout_ms, 500u, 127'500u);
    go(Step::kVersion);
  }

  void on_controller_status(const ControllerStatus& status) {
    if (status.fatal)
      return fail(Error{Code::kIo, "the controller reports a fatal error (CSTS.CFS) while it is brought up"}, false);
    if (step == Step::kWaitDisabled && !status.ready) return go(Step::kEnable);
    if (step == Step::kWaitReady && status.ready) return go(Step::kController);
    if (now_ns >= ready_by_ns) {
      return fail(make_error(Code::kTimedOut, "the controller did not become {} within {} ms",
                             step == Step::kWaitReady ? "ready" : "disabled", capabilities.ready_timeout_ms),
                  false);
    }
    poll_at_ns = now_ns + kReadyPoll_ns;
  }

  void on_controller() {
    controller = decode_controller_identity(identify_page());
    const bool is_discovery = controller.type == ControllerType::kDiscovery;
    if (options.discovery) return go(Step::kDiscoveryHeader);
    if (is_discovery)
      return fail(
          make_error(Code::kUnsupported, "{} is a discovery controller and has no namespaces; use `dlfs discover`",
                     base::escape(options.session.subnqn)),
          true);
    if (controller.io_command_capsule_bytes < kSqeBytes || controller.in_capsule_data_offset_bytes != 0) {
      return fail(
          make_error(Code::kUnsupported,
                     "the controller takes capsules of {} bytes with data at offset {}; at least {} and 0 are needed",
                     controller.io_command_capsule_bytes, controller.in_capsule_data_offset_bytes, kSqeBytes),
          true);
    }
    go(options.io_queues > 0 ? Step::kQueues : Step::kNamespaces);
  }

  void on_namespaces() {
    const auto part = decode_namespace_list(identify_page());
    const bool ascending = part && (part->empty() || listing.empty() || part->front() > listing.back());
    if (!part || !ascending)
      return fail(Error{Code::kIo, "the controller's list of namespaces is damaged: it is not ascending"}, false);
    listing.insert(listing.end(), part->begin(), part->end());
    if (part->size() == kMaxNamespaceList && listing.size() < kMaxNamespacesKept) return go(Step::kNamespaces);
    namespaces = std::exchange(listing, {});
    if (options.nsid == 0) return after_namespace();
    if (!std::binary_search(namespaces.begin(), namespaces.end(), options.nsid)) return no_namespace();
    go(Step::kNamespace);
  }

  void no_namespace() {
    if (rereading) {
      reading.reset();
      return after_namespace();
    }
    fail(make_error(Code::kNotFound, "namespace {} is not there; there are: {}", options.nsid, list_of(namespaces)),
         true);
  }

  void on_namespace() {
    const auto identity = decode_namespace_identity(identify_page());
    if (!identity)
      return fail(
          make_error(Code::kUnsupported,
                     "namespace {} has a format that makes no sense (blocks below 512 bytes, or none)", options.nsid),
          true);
    if (identity->blocks == 0) return no_namespace();
    if (identity->metadata_bytes != 0) {
      return fail(
          make_error(
              Code::kUnsupported,
              "namespace {} is formatted with {} bytes of metadata a block; format it without (nvme format --lbaf)",
              options.nsid, identity->metadata_bytes),
          true);
    }
    if (identity->block_bytes_log2 > 16 || identity->blocks > (std::uint64_t{1} << 63) >> identity->block_bytes_log2) {
      return fail(make_error(Code::kUnsupported,
                             "namespace {} has {} blocks of 2^{} bytes, which is more than can be addressed",
                             options.nsid, identity->blocks, identity->block_bytes_log2),
                  true);
    }
    reading = NamespaceInfo{.nsid = options.nsid, .identity = *identity};
    go(Step::kDescriptors);
  }

  void after_descriptors() {
    if (controller.ana_reporting) return go(Step::kAna);
    after_namespace();
  }

  void on_ana() {
    const auto log = decode_ana_log(page);
    if (!log) return fail(Error{Code::kIo, "the controller's log of access states (ANA) is damaged"}, false);
    for (const AnaGroup& group : log->groups) {
      if (group.id == reading->identity.ana_group) reading->ana = group.state;
    }
    after_namespace();
  }

  void after_namespace() {
    if (!rereading) {
      space = std::exchange(reading, std::nullopt);
      return go(Step::kEvents);
    }
    const bool same = space.has_value() == reading.has_value() &&
                      (!space || (space->identity == reading->identity && space->ids == reading->ids));
    const bool same_state = !space || !reading || space->ana == reading->ana;
    changes.namespace_changed |= !same;
    changes.ana_changed |= !same_state;
    space = std::exchange(reading, std::nullopt);
    finish();
  }

  void finish() {
    step = Step::kDone;
    rereading = false;
    if (state == State::kBringingUp) state = State::kReady;
    keep_events_asked();
    if (refresh_wanted) begin_refresh();
  }

  // ---- discovery ----

  void on_discovery_header() {
    header =
        decode_discovery_header(std::span<const std::byte, kDiscoveryHeaderBytes>(page.data(), kDiscoveryHeaderBytes));
    if (header.records > kMaxDiscoveryEntries) {
      return fail(make_error(Code::kUnsupported, "the discovery log has {} entries; at most {} are read",
                             header.records, kMaxDiscoveryEntries),
                  true);
    }
    entries_coming.clear();
    go(header.records == 0 ? Step::kDiscoveryAgain : Step::kDiscoveryEntries);
  }
  void read_entries() {
    const std::uint64_t left = header.records - entries_coming.size();
    const std::uint64_t fits = std::max<std::uint64_t>(1, max_transfer() / kDiscoveryEntryBytes);
    const std::uint64_t count = std::min<std::uint64_t>({left, kDiscoveryPart, fits});
    const std::uint64_t bytes = count * kDiscoveryEntryBytes;
    send(GetLogPage{.page = LogPage::kDiscovery,
                    .length_bytes = bytes,
                    .offset_bytes = kDiscoveryHeaderBytes + entries_coming.size() * kDiscoveryEntryBytes}
             .to_sqe(),
         page_bytes(bytes));
  }
  void on_discovery_entries() {
    for (std::size_t at = 0; at < page.size(); at += kDiscoveryEntryBytes) {
      entries_coming.push_back(decode_discovery_entry(
          std::span<const std::byte, kDiscoveryEntryBytes>(page.data() + at, kDiscoveryEntryBytes)));
    }
    go(entries_coming.size() < header.records ? Step::kDiscoveryEntries : Step::kDiscoveryAgain);
  }
  void on_discovery_again() {
    const auto now =
        decode_discovery_header(std::span<const std::byte, kDiscoveryHeaderBytes>(page.data(), kDiscoveryHeaderBytes));
    if (now.generation != header.generation) {
      if (++attempts >= kMaxDiscoveryAttempts)
        return fail(Error{Code::kIo, "the discovery log changes faster than it can be read; try again"}, false);
      return go(Step::kDiscoveryHeader);
    }
    entries = std::exchange(entries_coming, {});
    if (rereading) changes.discovery_changed = true;
    attempts = 0;
    if (rereading) return finish();
    go(Step::kEvents);
  }

  // ---- events ----

  void keep_events_asked() {
    const bool any = wanted_events() != AsyncEventConfig{};
    if (events_refused || !any || events_out > 0 || state != State::kReady) return;
    if (session.submit({.sqe = async_event_request(), .tag = kEventTag}, now_ns)) ++events_out;
  }
  void on_event(const Completion& completion) {
    --events_out;
    if (!completion.status.ok()) {
      events_refused = true;
      return;
    }
    const AsyncEvent event = decode_async_event(completion.result);
    refresh_wanted = true;
    list_changed |= event.log_page == static_cast<std::uint8_t>(LogPage::kChangedNamespaces);
    if (!waiting && step == Step::kDone) begin_refresh();
  }
  void begin_refresh() {
    refresh_wanted = false;
    rereading = true;
    const bool log = std::exchange(list_changed, false);
    go(options.discovery ? Step::kDiscoveryHeader : log ? Step::kChangedLog : Step::kNamespaces);
  }
};

AdminDriver::AdminDriver(AdminOptions options) : impl_(new Impl(std::move(options)), [](Impl* impl) { delete impl; }) {}

HostSession& AdminDriver::session() noexcept { return impl_->session; }

void AdminDriver::start(std::uint64_t now_ns) {
  DLFS_CHECK(impl_->state == State::kIdle);
  impl_->now_ns = now_ns;
  impl_->state = State::kBringingUp;
  impl_->session.start(now_ns);
}

void AdminDriver::advance(std::uint64_t now_ns) {
  Impl& impl = *impl_;
  impl.now_ns = now_ns;
  if (impl.state == State::kIdle || impl.state == State::kFailed) return;
  if (impl.session.state() == SessionState::kFailed) {
    const Error& why = impl.session.error();
    const Status status = decode_status(static_cast<std::uint16_t>(why.nvme_status << 1));
    Error error = why;
    if (status.code == StatusCode::kConnectInvalidParameters) {
      error = make_error(
          Code::kNotFound,
          "there is no subsystem {} (or it does not take this connection: {}); `dlfs discover` lists what is there",
          base::escape(impl.options.session.subnqn), why.message);
    } else if (status.code == StatusCode::kConnectInvalidHost) {
      error = make_error(
          Code::kIo, "this host is not allowed to connect to {}; its NQN is {}: add it to the target's list of hosts",
          base::escape(impl.options.session.subnqn), base::escape(impl.options.session.hostnqn));
    }
    error.nvme_status = why.nvme_status;
    return impl.fail(std::move(error), status.do_not_retry || why.code == Code::kUnsupported);
  }
  if (impl.step == Step::kConnect && impl.session.state() == SessionState::kReady) impl.go(Step::kCapabilities);
  std::array<Completion, 16> completions;
  while (const std::size_t count = impl.session.take(completions)) {
    for (std::size_t i = 0; i < count && impl.state != State::kFailed; ++i) {
      const Completion& completion = completions[i];
      if (completion.tag == kUserTag) {
        impl.user_answer = completion;
      } else if (completion.tag == kEventTag) {
        impl.on_event(completion);
      } else {
        impl.on_answer(completion);
      }
    }
  }
  if (impl.state == State::kFailed) return;
  if (now_ns >= impl.poll_at_ns) {
    impl.poll_at_ns = kNever;
    impl.begin();
  }
  impl.keep_events_asked();
}

std::uint64_t AdminDriver::next_advance_ns() const noexcept { return impl_->poll_at_ns; }
AdminDriver::State AdminDriver::state() const noexcept { return impl_->state; }
const Error& AdminDriver::error() const noexcept { return impl_->error; }
bool AdminDriver::do_not_retry() const noexcept { return impl_->final; }
std::uint16_t AdminDriver::cntlid() const noexcept { return impl_->session.cntlid(); }
const Capabilities& AdminDriver::capabilities() const noexcept { return impl_->capabilities; }
std::uint32_t AdminDriver::version() const noexcept { return impl_->version; }
const ControllerIdentity& AdminDriver::controller() const noexcept { return impl_->controller; }
std::uint32_t AdminDriver::io_queues() const noexcept { return impl_->io_queues; }
std::uint32_t AdminDriver::queue_entries_limit() const noexcept { return impl_->capabilities.max_queue_entries; }
std::uint32_t AdminDriver::max_transfer_bytes() const noexcept { return impl_->max_transfer(); }
std::uint32_t AdminDriver::in_capsule_bytes() const noexcept {
  return impl_->controller.io_command_capsule_bytes - static_cast<std::uint32_t>(kSqeBytes);
}
std::uint32_t AdminDriver::keep_alive_ms() const noexcept { return impl_->options.session.keep_alive_ms; }
std::span<const std::uint32_t> AdminDriver::namespaces() const noexcept { return impl_->namespaces; }
const std::optional<NamespaceInfo>& AdminDriver::namespace_info() const noexcept { return impl_->space; }
const std::vector<DiscoveryEntry>& AdminDriver::discovery() const noexcept { return impl_->entries; }

AdminDriver::Changes AdminDriver::take_changes() noexcept { return std::exchange(impl_->changes, {}); }

void AdminDriver::refresh(std::uint64_t now_ns) {
  Impl& impl = *impl_;
  impl.now_ns = now_ns;
  if (impl.state != State::kReady) return;
  impl.refresh_wanted = true;
  if (!impl.waiting && impl.step == Step::kDone) impl.begin_refresh();
}

bool AdminDriver::submit(const Sqe& sqe, Bytes read_into, std::uint64_t now_ns) {
  if (impl_->state != State::kReady || impl_->user_busy) return false;
  impl_->user_busy = impl_->session.submit(
      {.sqe = sqe, .read_into = read_into, .tag = kUserTag, .timeout_ns = impl_->options.command_timeout_ns}, now_ns);
  return impl_->user_busy;
}

std::optional<Completion> AdminDriver::take_answer() noexcept {
  if (impl_->user_answer) impl_->user_busy = false;
  return std::exchange(impl_->user_answer, std::nullopt);
}

}  // namespace dlfs::nvme
