// The subsystem as one connection sees it: the namespaces, or discovery, by what its host asked for in Connect.
#pragma once

#include <memory>

#include "target/registry.h"

namespace dlfs::target {

// **Thread**: that of its connection. **Lifetime**: the registry's is longer.
class ConnectionSubsystem final : public nvme::Subsystem {
 public:
  // `local`: the address that the host connected to, for the discovery log.
  ConnectionSubsystem(Registry& registry, const net::Address& local) : registry_(registry), local_(local) {}

  const std::shared_ptr<Controller>& controller() const noexcept { return controller_; }  // null before Connect
  std::uint32_t generation() const noexcept { return generation_; }  // of the controller, when this queue connected

  nvme::ConnectAnswer connect(const nvme::Connect& command, const nvme::ConnectData& data) override;
  nvme::ControllerIdentity controller_identity() override;
  std::optional<nvme::NamespaceShape> namespace_shape(std::uint32_t nsid) override;
  nvme::NamespaceIdentity namespace_identity(std::uint32_t nsid) override;
  nvme::NamespaceIds namespace_ids(std::uint32_t nsid) override;
  std::vector<std::uint32_t> active_namespaces() override;
  std::optional<std::vector<std::byte>> log_page(const nvme::GetLogPage& command) override;
  nvme::QueueCounts grant_queues(const nvme::QueueCounts& wanted) override;

 private:
  bool discovery() const noexcept { return controller_ != nullptr && controller_->discovery; }
  std::vector<std::byte> discovery_log() const;
  std::vector<std::byte> ana_log() const;
  std::vector<std::byte> smart_log() const;

  Registry& registry_;
  net::Address local_;
  std::shared_ptr<Controller> controller_;
  std::uint32_t generation_ = 0;
};

}  // namespace dlfs::target
