#include "target/registry.h"

#include <algorithm>

#include "base/error.h"

namespace dlfs::target {
namespace {

constexpr std::uint16_t kLastCntlid = 0xFFEF;  // Base 2.0, 6.3: higher numbers are reserved

// Offsets that Connect Invalid Parameters names. Base 2.0, 6.3.
constexpr std::uint16_t kQidAt = 42, kCntlidAt = 16, kHostIdAt = 0, kHostNqnAt = 512;

nvme::ConnectAnswer invalid(std::uint16_t offset, bool in_data) {
  return {.status = nvme::StatusCode::kConnectInvalidParameters, .invalid = {offset, in_data}};
}

}  // namespace

Registry::Registry(const ServerOptions& options, std::vector<Space> spaces, std::uint16_t first_cntlid)
    : options_(options), spaces_(std::move(spaces)), ana_(options.ana), next_cntlid_(first_cntlid) {}

std::shared_ptr<Controller> Registry::make(const nvme::ConnectData& data, bool discovery, nvme::ConnectAnswer& why) {
  const auto& hosts = options_.hosts;
  if (!hosts.empty() && std::find(hosts.begin(), hosts.end(), data.hostnqn) == hosts.end()) {
    counters_.refused.fetch_add(1, std::memory_order_relaxed);
    log(fmt::format("refused host {}: it is not among those that may connect (--host)", base::escape(data.hostnqn)));
    why = {.status = {nvme::StatusCode::kConnectInvalidHost, true}};
    return nullptr;
  }
  if (data.cntlid != nvme::kAnyController) {
    why = invalid(kCntlidAt, true);
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  if (controllers_.size() >= options_.max_connections) {
    why = {.status = nvme::StatusCode::kConnectControllerBusy};
    return nullptr;
  }
  while (next_cntlid_ == 0 || next_cntlid_ > kLastCntlid || controllers_.contains(next_cntlid_)) {
    next_cntlid_ = next_cntlid_ >= kLastCntlid ? std::uint16_t{1} : static_cast<std::uint16_t>(next_cntlid_ + 1);
  }
  auto controller = std::make_shared<Controller>();
  controller->cntlid = next_cntlid_++;
  controller->discovery = discovery;
  controller->hostnqn = data.hostnqn;
  controller->hostid = data.hostid;
  controllers_[controller->cntlid] = controller;
  why = {.cntlid = controller->cntlid};
  return controller;
}

std::shared_ptr<Controller> Registry::join(const nvme::Connect& command, const nvme::ConnectData& data,
                                           nvme::ConnectAnswer& why) {
  const std::lock_guard lock(mutex_);
  const auto found = controllers_.find(data.cntlid);
  if (found == controllers_.end() || found->second->gone) {
    why = invalid(kCntlidAt, true);
    return nullptr;
  }
  Controller& controller = *found->second;
  if (controller.hostnqn != data.hostnqn || controller.hostid != data.hostid) {
    why = invalid(controller.hostnqn != data.hostnqn ? kHostNqnAt : kHostIdAt, true);
    return nullptr;
  }
  if (controller.discovery || !controller.enabled) {
    why = {.status = {nvme::StatusCode::kCommandSequenceError, true}};
    return nullptr;
  }
  if (command.qid > options_.max_queues || !controller.queues.insert(command.qid).second) {
    why = invalid(kQidAt, false);
    return nullptr;
  }
  why = {.cntlid = controller.cntlid};
  return found->second;
}

void Registry::leave(Controller& controller, std::uint16_t qid) {
  const std::lock_guard lock(mutex_);
  if (qid != 0) {
    controller.queues.erase(qid);
    return;
  }
  controller.gone = true;
  controller.enabled = false;
  ++controller.generation;
  controllers_.erase(controller.cntlid);
}

void Registry::namespace_changed(std::uint32_t nsid) {
  const std::lock_guard lock(mutex_);
  for (auto& [cntlid, controller] : controllers_) {
    controller->changed_spaces.insert(nsid);
    controller->events |= Controller::kEventNamespace;
  }
}

std::vector<std::uint32_t> Registry::take_changed(Controller& controller) {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint32_t> changed(controller.changed_spaces.begin(), controller.changed_spaces.end());
  controller.changed_spaces.clear();
  return changed;
}

void Registry::set_ana(nvme::AnaState state) {
  ana_ = state;
  ++ana_changes_;
  const std::lock_guard lock(mutex_);
  for (auto& [cntlid, controller] : controllers_) controller->events |= Controller::kEventAna;
}

std::size_t Registry::controllers() const {
  const std::lock_guard lock(mutex_);
  return controllers_.size();
}

void Registry::log(const std::string& line) const {
  if (!options_.log) return;
  const std::lock_guard lock(log_mutex_);
  options_.log(line);
}

}  // namespace dlfs::target
