#include "sim/sim_target.h"

namespace dlfs::sim {

TargetProcess::TargetProcess(SimNetwork& network, SimDisk& disk, std::uint16_t port, const TargetLimits& limits)
    : network_(network), disk_(disk), port_(port), limits_(limits) {
  actor_.step = [this] { return server_ != nullptr && !frozen_ && server_->step(0); };
  actor_.next_ns = [this] { return server_ == nullptr || frozen_ ? ~std::uint64_t{0} : server_->next_step_ns(0); };
  network_.world.actors.push_back(&actor_);
  start();
}

TargetProcess::~TargetProcess() {
  kill();
  std::erase(network_.world.actors, &actor_);
}

void TargetProcess::start() {
  if (server_ != nullptr) return;
  target::ServerOptions options;
  options.listen = {{"10.0.0.1", port_}};
  options.nqn = kNqn;
  options.namespaces = {{.url = "mem:simulated"}};
  options.max_memory_bytes = limits_.max_memory_bytes;
  options.max_queues = limits_.max_queues;
  options.max_queue_entries = limits_.max_queue_entries;
  options.device_depth = limits_.device_depth;
  options.ana = ana_;
  process_ = std::make_shared<Process>();
  options.open_device = [this](const std::string&,
                               const block::OpenOptions& open) -> Result<std::unique_ptr<block::BlockDevice>> {
    return disk_.open(open.write, process_);
  };
  server_ = target::Server::create(std::move(options), network_).value();
  frozen_ = false;
}

void TargetProcess::kill() {
  process_->dead = true;
  server_.reset();
}

void TargetProcess::set_ana(nvme::AnaState state) {
  ana_ = state;
  if (server_ != nullptr) server_->set_ana_state(state);
}

}  // namespace dlfs::sim
