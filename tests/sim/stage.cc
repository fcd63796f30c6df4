#include "sim/stage.h"

#include <fmt/format.h>

namespace dlfs::sim {
namespace {

constexpr std::uint16_t kFirstPort = 4420;
constexpr std::uint64_t kDriveBytes = 24u << 20;
constexpr std::uint64_t kMs = 1'000'000;

// Swallows completions now and then: a planted fault.
class LossyDevice final : public block::BlockDevice {
 public:
  LossyDevice(std::unique_ptr<block::BlockDevice> inner, World& world) : inner_(std::move(inner)), world_(world) {}
  const block::Geometry& geometry() const noexcept override { return inner_->geometry(); }
  const std::string& url() const noexcept override { return inner_->url(); }
  const std::string& notes() const noexcept override { return inner_->notes(); }
  const char* engine() const noexcept override { return inner_->engine(); }
  std::size_t submit(std::span<const block::Request> requests) noexcept override { return inner_->submit(requests); }
  std::size_t poll(std::span<block::Completion> completions) noexcept override {
    const std::size_t count = inner_->poll(completions);
    return count > 0 && world_.chance(0.02) ? count - 1 : count;
  }
  int wait_descriptor() const noexcept override { return inner_->wait_descriptor(); }
  std::size_t in_flight() const noexcept override { return inner_->in_flight(); }
  void register_memory(std::span<std::byte>) noexcept override {}
  std::chrono::steady_clock::time_point now() const noexcept override { return inner_->now(); }
  void wait(std::chrono::nanoseconds longest, int other) noexcept override { inner_->wait(longest, other); }
  std::uint64_t interruptions() const noexcept override { return inner_->interruptions(); }
  std::string explain(const block::Completion& completion) const override { return inner_->explain(completion); }

 private:
  std::unique_ptr<block::BlockDevice> inner_;
  World& world_;
};

std::string again(std::uint64_t seed, Plant plant) {
  return plant == Plant::kNone ? fmt::format("dlfs_sim --seed {}", seed)
                               : fmt::format("dlfs_sim --seed {} --plant {}", seed, plant_name(plant));
}

}  // namespace

bool documented(Code code) noexcept {
  return code == Code::kIo || code == Code::kDeviceLost || code == Code::kTimedOut;
}

Stage::Stage(std::uint64_t seed, Plant planted)
    : world(seed, again(seed, planted)), network(world), plant(planted), data(world) {
  const std::uint32_t block_bytes = world.chance(0.5) ? 512 : 4096;
  disk = std::make_unique<SimDisk>(world, kDriveBytes, block_bytes);
  draw_host();
  const unsigned paths = world.chance(0.3) ? 2 : 1;
  make_url(paths);
  TargetLimits limits;
  if (world.chance(0.3)) {
    limits.max_queues = static_cast<std::uint32_t>(world.between(1, 2));
    limits.max_queue_entries = static_cast<std::uint32_t>(world.between(32, 40));
    limits.device_depth = static_cast<std::uint32_t>(world.between(1, 8));
    limits.max_memory_bytes = 1;  // the least that it takes
  }
  for (unsigned i = 0; i < paths; ++i) {
    const auto port = static_cast<std::uint16_t>(kFirstPort + i);
    targets_.push_back(std::make_unique<TargetProcess>(network, *disk, port, limits));
  }
  drawn_ = fmt::format("{} samples, blocks of {}, depth {}, queues of {}\n  {}", data.size(), block_bytes, depth_,
                       limits.max_queue_entries, url_);
}

Stage::~Stage() { targets_.clear(); }

std::string Stage::words() const { return drawn_; }

// ---- the host ----

void Stage::draw_host() {
  depth_ = static_cast<std::uint32_t>(world.chance(0.2) ? world.between(1, 3) : world.between(4, 64));
  keep_alive_ms_ = world.chance(0.15) ? 0 : world.between(1'000, 10'000);
  io_timeout_ms_ = world.between(2'000, 15'000);
  connect_timeout_ms_ = world.between(1'000, 5'000);
  loss_timeout_ms_ = world.between(5'000, 60'000);
}

void Stage::make_url(unsigned paths) {
  url_ = "nvme-tcp://";
  for (unsigned i = 0; i < paths; ++i) url_ += fmt::format("{}10.0.0.1:{}", i > 0 ? "," : "", kFirstPort + i);
  url_ += fmt::format("/{}?nsid=1&hostnqn=nqn.sim.host&hostid=11111111-2222-3333-4444-555555555555", kNqn);
  url_ += fmt::format("&queues={}&keep_alive={}ms&io_timeout={}ms&connect_timeout={}ms&ctrl_loss_timeout={}ms",
                      world.between(1, 3), keep_alive_ms_, io_timeout_ms_, connect_timeout_ms_, loss_timeout_ms_);
  const bool header = world.chance(0.5), data_too = world.chance(0.5);
  if (header) url_ += "&header_digest=on";
  if (data_too) url_ += "&data_digest=on";
  network.flips = header && data_too;
}

Result<std::unique_ptr<block::BlockDevice>> Stage::open_device(std::string_view text, block::OpenOptions options) {
  options.queue_depth = depth_;
  auto parsed = block::parse_nvme_tcp_url(text);
  if (!parsed.ok()) return std::move(parsed).error();
  auto device = block::open_nvme_tcp_device(*parsed, options, network);
  if (!device.ok() || plant != Plant::kLostCompletion) return device;
  return std::unique_ptr<block::BlockDevice>(std::make_unique<LossyDevice>(std::move(device).value(), world));
}

Result<std::shared_ptr<const volume::Volume>> Stage::mount() {
  volume::MountOptions options;
  options.open_device = [this](std::string_view text, const block::OpenOptions& open) {
    return open_device(text, open);
  };
  return volume::Volume::mount(url_, options);
}

std::uint64_t Stage::recovery_ns() const noexcept {
  return (3 * io_timeout_ms_ + 3 * keep_alive_ms_ + 2 * connect_timeout_ms_ + 20'000) * kMs;
}

// ---- what befalls ----

void Stage::begin_faults() {
  faulty_ = true;
  ++age_;
  const auto some = [&](double most) {
    return world.chance(0.5) ? most * static_cast<double>(world.prng.below(1000)) / 1000 : 0.0;
  };
  network.faults = {.reset = some(0.002), .flip = some(0.002), .stall = some(0.02), .refuse = some(0.3)};
  disk->faults = {.error = some(0.002), .interrupted = some(0.02), .slow = some(0.02), .strike = some(0.05)};
  disk->faults.struck = [this, age = age_] {
    if (age == age_) kill(*targets_[world.prng.below(targets_.size())]);
  };
  plan_event();
}

void Stage::heal() {
  ++age_;
  faulty_ = false;
  network.faults = {};
  disk->faults = {};
  network.cut = false;
  network.lift_silences();
  for (auto& target : targets_) {
    target->freeze(false);
    target->start();
    target->set_ana(nvme::AnaState::kOptimized);
  }
  world.note("the world healed");
  healed_at_ns_ = world.now_ns();
}

void Stage::heal_later(std::uint64_t longest_ns) {
  world.at(world.now_ns() + world.between(kSecond / 100, longest_ns), [this, age = age_] {
    if (age == age_) heal();
  });
}

// Now and then something befalls a target, until the world heals. Often soon, so that short stories have their share.
void Stage::plan_event() {
  const std::uint64_t longest_ns = world.one_of({5 * kMs, 100 * kMs, 3 * kSecond});
  world.at(world.now_ns() + world.between(kMs / 10, longest_ns), [this, age = age_] {
    if (age != age_) return;
    befall(*targets_[world.prng.below(targets_.size())]);
    plan_event();
  });
}

void Stage::befall(TargetProcess& target) {
  const std::uint64_t later_ns = world.now_ns() + draw_pause();
  const auto later = [&](auto what) {
    world.at(later_ns, [this, age = age_, what] {
      if (age == age_) what();
    });
  };
  switch (world.prng.below(6)) {
    case 0:
      kill(target);
      break;
    case 1:
      world.befell("a target froze");
      target.freeze(true);
      later([&target] { target.freeze(false); });
      break;
    case 2:
      fall_silent(target, later_ns);
      break;
    case 3:
      world.befell("all connections were reset");
      network.reset_all();
      break;
    case 4:
      if (!world.chance(0.2)) break;
      world.befell("the network was cut");
      network.cut = true;
      network.reset_all();
      later([this] { network.cut = false; });
      break;
    default:
      world.befell("the access state changed");
      target.set_ana(world.one_of({nvme::AnaState::kInaccessible, nvme::AnaState::kNonOptimized,
                                   nvme::AnaState::kPersistentLoss, nvme::AnaState::kChange}));
      later([&target] { target.set_ana(nvme::AnaState::kOptimized); });
      break;
  }
}

std::uint64_t Stage::draw_pause() noexcept {
  return world.between(10 * kMs, world.chance(0.2) ? 90 * kSecond : 12 * kSecond);
}

void Stage::kill(TargetProcess& target) {
  world.befell("a target was killed");
  target.kill();
  world.at(world.now_ns() + draw_pause(), [this, &target, age = age_] {
    if (age == age_) target.start();
  });
}

void Stage::fall_silent(TargetProcess& target, std::uint64_t later_ns) {
  const std::uint64_t side = world.prng.below(3);
  world.befell(side == 0 ? "a port went silent" : side == 1 ? "a port hears nothing" : "a port is not heard");
  network.silence(target.port(), {.to_server = side != 2, .to_client = side != 1, .sent_again = world.chance(0.5)});
  world.at(later_ns, [this, age = age_, port = target.port()] {
    if (age == age_) network.lift_silence(port);
  });
}

void Stage::lose_power() {
  world.befell("the power failed");
  for (auto& target : targets_) target->kill();
  disk->lose_power();
  network.reset_all();
  for (auto& target : targets_) {
    world.at(world.now_ns() + world.prng.below(5 * kSecond), [this, &target, age = age_] {
      if (age == age_) target->start();
    });
  }
}

void Stage::grow_drive() {
  world.befell("the namespace grew");
  for (auto& target : targets_) target->kill();
  disk->bytes.resize(disk->bytes.size() + (1u << 20));
  for (auto& target : targets_) target->start();
}

}  // namespace dlfs::sim
