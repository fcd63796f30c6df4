// A target process over a simulated drive: it can be killed, started again and frozen.
#pragma once

#include <memory>

#include "sim/sim_disk.h"
#include "sim/sim_network.h"
#include "target/server.h"

namespace dlfs::sim {

inline constexpr const char* kNqn = "nqn.2026-01.io.example:sim";

struct TargetLimits {
  std::uint32_t max_queues = 64, max_queue_entries = 256, device_depth = 256;
  std::uint64_t max_memory_bytes = 4u << 20;
};

class TargetProcess {
 public:
  TargetProcess(SimNetwork& network, SimDisk& disk, std::uint16_t port, const TargetLimits& limits);
  ~TargetProcess();
  TargetProcess(const TargetProcess&) = delete;
  TargetProcess& operator=(const TargetProcess&) = delete;

  void start();  // nothing when it runs
  void kill();   // its connections end as the kernel ends them
  void freeze(bool frozen) { frozen_ = frozen; }
  void set_ana(nvme::AnaState state);
  std::uint16_t port() const noexcept { return port_; }

 private:
  SimNetwork& network_;
  SimDisk& disk_;
  std::uint16_t port_;
  TargetLimits limits_;
  nvme::AnaState ana_ = nvme::AnaState::kOptimized;
  bool frozen_ = false;
  std::shared_ptr<Process> process_;
  World::Actor actor_;
  std::unique_ptr<target::Server> server_;
};

}  // namespace dlfs::sim
