#include "target/server.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "base/error.h"
#include "base/mix.h"
#include "base/try.h"
#include "block/nvme_tcp.h"
#include "target/poller.h"

namespace dlfs::target {
namespace {

constexpr std::uint32_t kMinBlockBytes = 512, kMaxBlockBytes = 65'536;
constexpr std::size_t kMaxNamespaces = 1024, kMaxListeners = 64;
constexpr std::uint32_t kMaxPollers = 64;
constexpr std::uint32_t kLeastQueueEntries = 32;

// 16 bytes that stay the same for the same words.
std::array<std::byte, 16> identity_of(std::string_view words, std::uint64_t salt) {
  std::uint64_t a = base::mix64(salt), b = base::mix64(salt + 1);
  for (const char c : words) {
    a = base::mix64(a ^ static_cast<unsigned char>(c));
    b = base::mix64(b + static_cast<unsigned char>(c));
  }
  std::array<std::byte, 16> bytes;
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::byte>(a >> (8 * i));
    bytes[8 + i] = static_cast<std::byte>(b >> (8 * i));
  }
  return bytes;
}

Result<Space> describe(const ServerOptions& options, const NamespaceOptions& wanted, std::size_t index) {
  const block::OpenOptions open{.write = !wanted.read_only, .queue_depth = options.device_depth};
  DLFS_TRY_ASSIGN(const auto device,
                  options.open_device ? options.open_device(wanted.url, open) : block::open_device(wanted.url, open));
  const block::Geometry& geometry = device->geometry();
  Space space{.url = wanted.url, .read_only = wanted.read_only || geometry.read_only};
  space.block_bytes = std::max(kMinBlockBytes, geometry.block_bytes);
  if (space.block_bytes > kMaxBlockBytes) {
    return base::make_error(Code::kUnsupported, "{} has blocks of {} bytes; at most {} can be served",
                            base::escape(wanted.url), space.block_bytes, kMaxBlockBytes);
  }
  space.block_bytes_log2 = static_cast<std::uint8_t>(std::countr_zero(space.block_bytes));
  space.blocks = geometry.capacity_bytes >> space.block_bytes_log2;
  if (space.blocks == 0) {
    return base::make_error(Code::kInvalidArgument,
                            "{} has {} bytes, less than one block of {}; make it larger (truncate -s 1GiB)",
                            base::escape(wanted.url), geometry.capacity_bytes, space.block_bytes);
  }
  const std::string name = fmt::format("{}#{}#{}", options.nqn, index, device->url());
  space.nguid = identity_of(name, 1);
  space.uuid = identity_of(name, 3);
  space.uuid[6] = (space.uuid[6] & std::byte{0x0F}) | std::byte{0x80};  // RFC 9562, version 8
  space.uuid[8] = (space.uuid[8] & std::byte{0x3F}) | std::byte{0x80};
  return space;
}

Result<void> check(const ServerOptions& options) {
  if (options.namespaces.empty() || options.namespaces.size() > kMaxNamespaces) {
    return base::make_error(Code::kInvalidArgument, "a target serves 1 to {} namespaces, not {}", kMaxNamespaces,
                            options.namespaces.size());
  }
  if (options.listen.empty() || options.listen.size() > kMaxListeners) {
    return base::make_error(Code::kInvalidArgument, "a target listens on 1 to {} addresses", kMaxListeners);
  }
  if (options.pollers < 1 || options.pollers > kMaxPollers) {
    return base::make_error(Code::kInvalidArgument, "a target has 1 to {} pollers, not {}", kMaxPollers,
                            options.pollers);
  }
  if (options.max_queue_entries < kLeastQueueEntries || options.max_queue_entries > 1024 || options.max_queues < 1 ||
      options.max_queues > 1024) {
    return base::make_error(Code::kInvalidArgument,
                            "a target has queues of {} to 1024 entries, and 1 to 1024 of them a controller",
                            kLeastQueueEntries);
  }
  for (const std::string* name : {&options.nqn}) {
    if (name->size() > nvme::kMaxNqnBytes || *name == nvme::kDiscoveryNqn || name->find('\0') != std::string::npos) {
      return base::make_error(Code::kInvalidArgument,
                              "'{}' cannot be the NQN of a subsystem: at most {} characters, and not the discovery NQN",
                              base::escape(*name), nvme::kMaxNqnBytes);
    }
  }
  return {};
}

std::string default_nqn(const ServerOptions& options) {
  std::string words;
  for (const NamespaceOptions& each : options.namespaces) words += each.url + '\n';
  std::string text;
  for (const std::byte byte : identity_of(words, 5)) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return "nqn.2026-01.io.dlfs:" + text;
}

class ServerImpl final : public Server {
 public:
  static Result<std::unique_ptr<Server>> create(ServerOptions options, net::Network& network) {
    DLFS_TRY(check(options));
    if (options.nqn.empty()) options.nqn = default_nqn(options);
    std::vector<Space> spaces;
    for (std::size_t i = 0; i < options.namespaces.size(); ++i) {
      DLFS_TRY_ASSIGN(spaces.emplace_back(), describe(options, options.namespaces[i], i + 1));
      options.namespaces[i].read_only = spaces.back().read_only;
    }
    std::unique_ptr<ServerImpl> server(new ServerImpl(network));
    DLFS_TRY(server->listen(options));
    // Two servers that are paths to one subsystem must not give the same controller id: begin elsewhere.
    const auto first = static_cast<std::uint16_t>(base::mix64(server->listeners_[0]->local().port()) % 0x7FFF + 1);
    server->registry_ = std::make_unique<Registry>(options, std::move(spaces), first);
    DLFS_TRY(server->make_pollers());
    return std::unique_ptr<Server>(std::move(server));
  }

  ~ServerImpl() override {
    stop();
    pollers_.clear();
  }

  const std::string& nqn() const noexcept override { return registry_->options().nqn; }

  std::vector<net::Address> addresses() const override { return addresses_; }

  std::vector<std::string> urls() const override {
    std::vector<std::string> urls;
    for (std::size_t i = 1; i <= registry_->spaces().size(); ++i) {
      block::NvmeTcpUrl url;
      url.paths = {{addresses_[0].host(), addresses_[0].port()}};
      url.subnqn = nqn();
      url.nsid = static_cast<std::uint32_t>(i);
      urls.push_back(url.canonical());
    }
    return urls;
  }

  Result<void> start() override {
    for (auto& poller : pollers_) DLFS_TRY(poller->start());
    threads_ = true;
    return {};
  }

  void stop() override {
    if (stopped_ || registry_ == nullptr) return;
    stopped_ = true;
    for (auto& poller : pollers_) poller->drain();
    if (threads_) {
      const auto until = std::chrono::steady_clock::now() + registry_->options().drain;
      while (!idle() && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (auto& poller : pollers_) poller->abandon();
    for (auto& poller : pollers_) poller->join();
  }

  bool step(std::uint32_t poller) override { return pollers_.at(poller)->turn(); }
  std::uint64_t next_step_ns(std::uint32_t poller) const noexcept override { return pollers_[poller]->next_turn_ns(); }

  ServerStatistics statistics() const noexcept override {
    const Counters& counters = registry_->counters();
    return {.connections = counters.connections,
            .refused = counters.refused,
            .controllers = registry_->controllers(),
            .reads = counters.reads,
            .writes = counters.writes,
            .read_bytes = counters.read_bytes,
            .written_bytes = counters.written_bytes,
            .errors = counters.errors};
  }

  void announce_change(std::uint32_t nsid) override {
    registry_->namespace_changed(nsid);
    poke_all();
  }
  void set_ana_state(nvme::AnaState state) override {
    registry_->set_ana(state);
    poke_all();
  }

 private:
  explicit ServerImpl(net::Network& network) : network_(network) {}

  Result<void> listen(const ServerOptions& options) {
    for (const net::Endpoint& endpoint : options.listen) {
      DLFS_TRY_ASSIGN(const auto found, network_.resolve(endpoint));
      DLFS_TRY_ASSIGN(auto listener, network_.listen(found.front()));
      addresses_.push_back(listener->local());
      listeners_.push_back(std::move(listener));
    }
    return {};
  }

  Result<void> make_pollers() {
    const ServerOptions& options = registry_->options();
    for (std::uint32_t i = 0; i < options.pollers; ++i) {
      DLFS_TRY_ASSIGN(auto poller,
                      ServerPoller::create(*registry_, network_, options.max_memory_bytes / options.pollers,
                                           [this] { poke_all(); }));
      pollers_.push_back(std::move(poller));
    }
    return pollers_[0]->listen(listeners_, [this](std::unique_ptr<net::Stream> stream) { place(std::move(stream)); });
  }

  // A new connection, to the next poller in turn. **Thread**: the first poller's.
  void place(std::unique_ptr<net::Stream> stream) {
    Counters& counters = registry_->counters();
    if (counters.connections.load() >= registry_->options().max_connections) {
      if (counters.refused.fetch_add(1) == 0 || counters.refused.load() % 1000 == 0) {
        registry_->log(fmt::format("refused a connection from {}: there are {} already (--max-connections)",
                                   stream->peer().text(), registry_->options().max_connections));
      }
      return;
    }
    ++counters.connections;
    pollers_[next_poller_++ % pollers_.size()]->adopt(std::move(stream));
  }

  void poke_all() {
    for (auto& poller : pollers_) poller->poke();
  }
  bool idle() const {
    return std::all_of(pollers_.begin(), pollers_.end(), [](const auto& poller) { return poller->idle(); });
  }

  net::Network& network_;
  std::unique_ptr<Registry> registry_;
  std::vector<std::unique_ptr<net::Listener>> listeners_;
  std::vector<net::Address> addresses_;
  std::vector<std::unique_ptr<ServerPoller>> pollers_;
  std::size_t next_poller_ = 0;
  bool threads_ = false, stopped_ = false;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::create(ServerOptions options, net::Network& network) {
  return ServerImpl::create(std::move(options), network);
}

}  // namespace dlfs::target
