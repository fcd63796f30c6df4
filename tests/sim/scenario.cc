#include "sim/scenario.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "block/nvme_tcp.h"
#include "reader/reader.h"
#include "sim/sim_network.h"
#include "target/server.h"
#include "volume/volume.h"
#include "volume/writer_internal.h"

namespace dlfs::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kHealed_ns = 900 * kSecond;  // an epoch without faults takes less, whatever went before
constexpr const char* kNqn = "nqn.2026-01.io.example:sim";

// Gives completions away that a planted fault loses.
class LossyDevice final : public block::BlockDevice {
 public:
  LossyDevice(std::unique_ptr<block::BlockDevice> inner, World& world) : inner_(std::move(inner)), world_(world) {}
  const block::Geometry& geometry() const noexcept override { return inner_->geometry(); }
  const std::string& url() const noexcept override { return inner_->url(); }
  const std::string& notes() const noexcept override { return inner_->notes(); }
  const char* engine() const noexcept override { return inner_->engine(); }
  std::size_t submit(std::span<const block::Request> requests) noexcept override { return inner_->submit(requests); }
  std::size_t poll(std::span<block::Completion> completions) noexcept override {
    std::size_t count = inner_->poll(completions);
    if (count > 0 && world_.chance(0.02)) --count;
    return count;
  }
  int wait_descriptor() const noexcept override { return inner_->wait_descriptor(); }
  std::size_t in_flight() const noexcept override { return inner_->in_flight(); }
  void register_memory(std::span<std::byte>) noexcept override {}
  std::chrono::steady_clock::time_point now() const noexcept override { return inner_->now(); }
  void wait(std::chrono::nanoseconds longest, int other) noexcept override { inner_->wait(longest, other); }
  std::string explain(const block::Completion& completion) const override { return inner_->explain(completion); }

 private:
  std::unique_ptr<block::BlockDevice> inner_;
  World& world_;
};

// A target process: it can be killed, started again and frozen.
class TargetProcess {
 public:
  TargetProcess(SimNetwork& network, SimDisk& disk, std::uint16_t port) : network_(network), disk_(disk), port_(port) {
    actor_.step = [this] { return server_ != nullptr && !frozen_ && server_->step(0); };
    actor_.next_ns = [this] { return server_ == nullptr || frozen_ ? ~std::uint64_t{0} : server_->next_step_ns(0); };
    network_.world.actors.push_back(&actor_);
    start();
  }
  ~TargetProcess() { std::erase(network_.world.actors, &actor_); }

  void start() {
    if (server_ != nullptr) return;
    target::ServerOptions options;
    options.listen = {{"10.0.0.1", port_}};
    options.nqn = kNqn;
    options.namespaces = {{.url = "mem:simulated"}};
    dead_ = std::make_shared<bool>(false);
    options.max_memory_bytes = 4u << 20;
    options.ana = ana_;
    options.open_device = [this](const std::string&,
                                 const block::OpenOptions& open) -> Result<std::unique_ptr<block::BlockDevice>> {
      return disk_.open(open.write, dead_);
    };
    server_ = target::Server::create(std::move(options), network_).value();
  }
  void kill() {
    *dead_ = true;  // what it had at the drive is answered, so that it can go; the drive keeps its cache
    server_.reset();
  }
  void freeze(bool frozen) { frozen_ = frozen; }
  void set_ana(nvme::AnaState state) {
    ana_ = state;
    if (server_ != nullptr) server_->set_ana_state(state);
  }
  std::uint16_t port() const { return port_; }

 private:
  SimNetwork& network_;
  SimDisk& disk_;
  std::uint16_t port_;
  nvme::AnaState ana_ = nvme::AnaState::kOptimized;
  bool frozen_ = false;
  std::shared_ptr<bool> dead_;
  World::Actor actor_;
  std::unique_ptr<target::Server> server_;
};

class Scenario {
 public:
  Scenario(std::uint64_t seed, Plant plant) : world_(seed), network_(world_), plant_(plant) {}

  Outcome run() {
    draw();
    for (unsigned i = 0; i < paths_; ++i)
      targets_.push_back(std::make_unique<TargetProcess>(network_, *disk_, static_cast<std::uint16_t>(4420 + i)));
    if (fails(pack_all()) || fails(read_all())) outcome_.ok = false;
    outcome_.trace = world_.trace();
    outcome_.virtual_s = static_cast<double>(world_.now_ns()) / kSecond - 1;
    for (const std::string& line : world_.log()) outcome_.events += "  " + line + "\n";
    volume_.reset();
    targets_.clear();
    return outcome_;
  }

 private:
  using Check = std::optional<std::string>;
  bool fails(const Check& check) {
    if (check) outcome_.failure = *check;
    return check.has_value();
  }

  // ---- what is drawn ----

  void draw() {
    block_bytes_ = world_.chance(0.5) ? 512 : 4096;
    chunk_bytes_ = 64u << 10;
    const std::size_t samples = world_.between(1, 160);
    for (std::size_t i = 0; i < samples; ++i) {
      const std::uint64_t kind = world_.prng.below(20);
      const std::size_t size = kind == 0 ? 0 : kind == 1 ? world_.between(60'000, 200'000) : world_.between(1, 6000);
      sizes_.push_back(size);
    }
    disk_ = std::make_unique<SimDisk>(world_, 24u << 20, block_bytes_);
    disk_->plant = Plant::kNone;
    paths_ = world_.chance(0.3) ? 2 : 1;
    network_.digests = world_.chance(0.5);
    queues_ = static_cast<std::uint32_t>(world_.between(1, 3));
    depth_ = static_cast<std::uint32_t>(world_.between(1, 64));
    keep_alive_s_ = world_.between(1, 10);  // without it nothing keeps late copies of writes away
    outcome_.scenario =
        fmt::format("{} samples, blocks of {}, {} path(s), {} queue(s), depth {}, digests {}, keep-alive {} s", samples,
                    block_bytes_, paths_, queues_, depth_, network_.digests ? "on" : "off", keep_alive_s_);
  }

  // A sample's bytes in a version of the data set.
  std::vector<std::byte> content(std::size_t id, std::uint64_t version) const {
    std::vector<std::byte> bytes(sizes_[id]);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(base::mix64(id * 0x1'0000'0001 + version * 77 + i / 8) >> (i % 8 * 8));
    return bytes;
  }

  std::string url() const {
    std::string text = "nvme-tcp://";
    for (unsigned i = 0; i < paths_; ++i) text += fmt::format("{}10.0.0.1:{}", i > 0 ? "," : "", 4420 + i);
    text += fmt::format(
        "/{}?nsid=1&hostnqn=nqn.sim.host&hostid=11111111-2222-3333-4444-555555555555&queues={}&keep_alive={}s&io_"
        "timeout=15s",
        kNqn, queues_, keep_alive_s_);
    if (network_.digests) text += "&header_digest=on&data_digest=on";
    return text;
  }

  Result<std::unique_ptr<block::BlockDevice>> open_device(std::string_view text, block::OpenOptions options) {
    options.queue_depth = depth_;
    auto parsed = block::parse_nvme_tcp_url(text);
    if (!parsed.ok()) return std::move(parsed).error();
    auto device = block::open_nvme_tcp_device(*parsed, options, network_);
    if (!device.ok() || plant_ != Plant::kLostCompletion) return device;
    return std::unique_ptr<block::BlockDevice>(std::make_unique<LossyDevice>(std::move(device).value(), world_));
  }

  // ---- faults ----

  void begin_faults() {
    faulty_ = true;
    const auto some = [&](double most) {
      return world_.chance(0.5) ? most * static_cast<double>(world_.prng.below(1000)) / 1000 : 0.0;
    };
    network_.faults = {.reset = some(0.002), .flip = some(0.002), .stall = some(0.02), .refuse = some(0.3)};
    disk_->faults = {.error = some(0.002), .interrupted = some(0.02), .slow = some(0.02)};
    plan_event();
  }

  // Now and then something befalls a target, until the world heals.
  void plan_event() {
    world_.at(world_.now_ns() + world_.between(1'000'000, 3 * kSecond), [this] {
      if (!faulty_) return;
      befall(*targets_[world_.prng.below(targets_.size())]);
      plan_event();
    });
  }

  void befall(TargetProcess& target) {
    const std::uint64_t later_ns = world_.now_ns() + world_.between(10'000'000, 12 * kSecond);
    switch (world_.prng.below(5)) {
      case 0:
        world_.note("a target was killed");
        target.kill();
        world_.at(later_ns, [&target] { target.start(); });
        break;
      case 1:
        world_.note("a target froze");
        target.freeze(true);
        world_.at(later_ns, [&target] { target.freeze(false); });
        break;
      case 2:
        world_.note("a port went silent");
        network_.silent.insert(target.port());
        world_.at(later_ns, [this, port = target.port()] { network_.silent.erase(port); });
        break;
      case 3:
        world_.note("all connections were reset");
        network_.reset_all();
        break;
      default:
        target.set_ana(world_.chance(0.5) ? nvme::AnaState::kInaccessible : nvme::AnaState::kNonOptimized);
        world_.at(later_ns, [&target] { target.set_ana(nvme::AnaState::kOptimized); });
        break;
    }
  }

  void heal() {
    faulty_ = false;
    network_.faults = {};
    disk_->faults = {};
    network_.silent.clear();
    for (auto& target : targets_) {
      target->freeze(false);
      target->start();
      target->set_ana(nvme::AnaState::kOptimized);
    }
    world_.note("the world healed");
  }

  void lose_power() {
    world_.note("the power failed");
    for (auto& target : targets_) target->kill();
    disk_->lose_power();
    network_.reset_all();
    for (auto& target : targets_) target->start();
  }

  static bool documented(Code code) {
    return code == Code::kIo || code == Code::kDeviceLost || code == Code::kTimedOut;
  }

  // ---- packing ----

  Result<void> pack(std::uint64_t version) {
    layout::Schema schema = layout::parse_schema("data: bytes").value();
    volume::WriterOptions options;
    options.chunk_bytes = chunk_bytes_;
    options.overwrite = true;
    options.pool_bytes = 1u << 20;
    options.seed = version;
    auto writer = volume::create_writer(
        url(), schema, options,
        [this](std::string_view text, const block::OpenOptions& open) { return open_device(text, open); });
    if (!writer.ok()) return std::move(writer).error();
    for (std::size_t id = 0; id < sizes_.size(); ++id) {
      const auto bytes = content(id, version);
      const layout::FieldValue field(bytes);
      if (auto added = (*writer)->append("s" + std::to_string(id), std::span(&field, 1)); !added.ok()) return added;
    }
    auto committed = (*writer)->commit();
    if (!committed.ok()) return std::move(committed).error();
    return {};
  }

  Result<std::shared_ptr<const volume::Volume>> mount() {
    volume::MountOptions options;
    options.open_device = [this](std::string_view text, const block::OpenOptions& open) {
      return open_device(text, open);
    };
    return volume::Volume::mount(url(), options);
  }

  // Some packs under faults and losses of power: after each the volume is an old one, the new one, or says that it is
  // incomplete.
  Check pack_all() {
    const std::uint64_t rounds = world_.between(0, 2);
    for (std::uint64_t version = 1; version <= rounds; ++version) {
      begin_faults();
      const bool power = world_.chance(0.4);
      if (power) {
        world_.at(world_.now_ns() + world_.between(1'000'000, kSecond / 4), [this, version] {
          if (packing_ == version) lose_power();
        });
      }
      packing_ = version;
      const auto packed = pack(version);
      packing_ = 0;
      world_.note(packed.ok() ? "packed" : "the pack failed: " + std::string(code_name(packed.error().code)));
      heal();
      if (!packed.ok() && !documented(packed.error().code))
        return fmt::format("pack {} failed in a way that is not documented: {}", version, packed.error().message);
      if (packed.ok() && world_.chance(0.5)) lose_power();  // what was committed was flushed
      if (const Check wrong = look(version, packed.ok())) return wrong;
    }
    disk_->plant = plant_;
    const auto packed = pack(kFinal);
    if (!packed.ok()) return "a pack without faults failed: " + packed.error().message;
    version_ = kFinal;
    return {};
  }

  Check look(std::uint64_t version, bool packed) {
    auto mounted = mount();
    if (!mounted.ok()) {
      const Code code = mounted.error().code;
      const bool never = version_ == 0 && code == Code::kForeign;
      if (!packed && (code == Code::kIncomplete || never)) return {};
      return fmt::format("after pack {} ({}) the volume does not mount: {}", version, packed ? "done" : "failed",
                         mounted.error().message);
    }
    for (const std::uint64_t candidate : {version, version_}) {
      if (candidate == 0 || (packed && candidate != version)) continue;
      if (holds(**mounted, candidate)) {
        version_ = candidate;
        return {};
      }
    }
    return fmt::format("after pack {} ({}) the volume mounts and holds neither the old nor the new data", version,
                       packed ? "done" : "failed");
  }

  bool holds(const volume::Volume& volume, std::uint64_t version) {
    if (volume.size() != sizes_.size()) return false;
    for (std::uint32_t id = 0; id < sizes_.size(); ++id) {
      const auto record = volume.read(SampleId{id});
      if (!record.ok()) return false;
      const auto expected = content(id, version);
      if (!std::equal(expected.begin(), expected.end(), record->fields[0].begin(), record->fields[0].end()))
        return false;
    }
    return true;
  }

  // ---- reading ----

  reader::Options draw_reader() {
    reader::Options options;
    options.threaded = false;
    options.order.mode = static_cast<order::Mode>(world_.prng.below(3));
    options.order.seed = world_.prng.next();
    options.order.batch = static_cast<std::uint32_t>(world_.between(1, 32));
    options.order.lanes = static_cast<std::uint32_t>(world_.between(1, 12));
    options.cache_bytes = world_.between(4, 16) << 20;
    options.depth = depth_;
    options.verify = plant_ != Plant::kUnverified;
    return options;
  }

  Check read_all() {
    auto mounted = mount();
    if (!mounted.ok()) return "a mount without faults failed: " + mounted.error().message;
    volume_ = *mounted;
    const std::uint64_t epochs = world_.between(1, 2);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      reader::Options options = draw_reader();
      options.order.epoch = epoch;
      begin_faults();
      world_.at(world_.now_ns() + world_.between(kSecond / 100, 30 * kSecond), [this] { heal(); });
      std::vector<std::vector<std::uint32_t>> batches;
      if (const Check wrong = read_epoch(options, batches)) return wrong;
      if (faulty_) heal();
      std::vector<std::vector<std::uint32_t>> undisturbed;
      if (const Check wrong = read_epoch(options, undisturbed)) return wrong;
      if (batches != undisturbed)
        return fmt::format("epoch {} under faults is not what an undisturbed reader delivers", epoch);
    }
    return {};
  }

  // One epoch; a reader that failed under faults is opened again where it stood.
  Check read_epoch(reader::Options options, std::vector<std::vector<std::uint32_t>>& batches) {
    std::vector<bool> seen(sizes_.size(), false);
    const std::uint64_t until_ns = world_.now_ns() + kHealed_ns;
    while (true) {
      options.start_batch = batches.size();
      auto opened = reader::Reader::open(volume_, options);
      if (!opened.ok()) {
        if (const Check wrong = excuse(opened.error(), until_ns)) return wrong;
        continue;
      }
      if (batches.size() == (*opened)->batches_per_epoch()) return complete(seen);
      while (true) {
        auto batch = (*opened)->next(600s);
        if (!batch.ok()) {
          if (const Check wrong = excuse(batch.error(), until_ns)) return wrong;
          break;
        }
        if (*batch == nullptr) return complete(seen);
        if (const Check wrong = inspect(**batch, seen)) return wrong;
        batches.emplace_back((*batch)->ids().begin(), (*batch)->ids().end());
        if ((*opened)->statistics().memory_peak_bytes > options.cache_bytes + (1u << 20))
          return std::string("the reader took more memory than it was given");
      }
    }
  }

  Check complete(const std::vector<bool>& seen) const {
    if (std::find(seen.begin(), seen.end(), false) != seen.end())
      return std::string("the epoch ended and a sample is missing");
    return {};
  }

  Check excuse(const Error& error, std::uint64_t until_ns) {
    world_.note("the reader failed: " + std::string(code_name(error.code)));
    world_.run(world_.now_ns() + kSecond / 4, [] { return false; });  // as a user would wait before trying again
    if (!documented(error.code)) return "an error that faults do not excuse: " + error.message;
    if (!faulty_ && ++unexcused_ > 3) return "an error in a world that is well: " + error.message;
    if (world_.now_ns() > until_ns) return "no progress in bounded time: " + error.message;
    return {};
  }

  Check inspect(const reader::Batch& batch, std::vector<bool>& seen) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::uint32_t id = batch.ids()[i];
      if (id >= sizes_.size() || seen[id])
        return fmt::format("sample {} was delivered twice, or there is none such", id);
      seen[id] = true;
      const auto expected = content(id, version_);
      const auto got = batch.field(i, 0);
      if (!std::equal(expected.begin(), expected.end(), got.begin(), got.end()))
        return fmt::format("sample {} was delivered with wrong bytes", id);
    }
    world_.note(fmt::format("batch {} of {} samples", batch.number(), batch.size()));
    return {};
  }

  static constexpr std::uint64_t kFinal = 9;
  World world_;
  SimNetwork network_;
  Plant plant_;
  std::unique_ptr<SimDisk> disk_;
  std::vector<std::unique_ptr<TargetProcess>> targets_;
  std::vector<std::size_t> sizes_;
  std::uint32_t block_bytes_ = 512, chunk_bytes_ = 0, queues_ = 1, depth_ = 32;
  std::uint64_t keep_alive_s_ = 10, version_ = 0, packing_ = 0;
  unsigned paths_ = 1;
  int unexcused_ = 0;
  bool faulty_ = false;
  std::shared_ptr<const volume::Volume> volume_;
  Outcome outcome_;
};

}  // namespace

Outcome run_scenario(std::uint64_t seed, Plant plant) { return Scenario(seed, plant).run(); }

}  // namespace dlfs::sim
