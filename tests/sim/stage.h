// What a scenario plays on: world, network, drive, targets, the host's way to them, and what befalls them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "block/nvme_tcp.h"
#include "sim/data_set.h"
#include "sim/sim_target.h"
#include "volume/volume.h"

namespace dlfs::sim {

// What is wrong, in words; none: nothing.
using Check = std::optional<std::string>;

class Stage {
 public:
  Stage(std::uint64_t seed, Plant planted);
  ~Stage();

  World world;
  SimNetwork network;
  const Plant plant;
  DataSet data;
  std::unique_ptr<SimDisk> disk;
  std::uint64_t version = 0;  // of the data set that the volume holds; 0: none
  std::string words() const;  // what was drawn

  // ---- the host ----
  std::string url() const { return url_; }
  Result<std::unique_ptr<block::BlockDevice>> open_device(std::string_view text, block::OpenOptions options);
  Result<std::shared_ptr<const volume::Volume>> mount();
  std::uint32_t depth() const noexcept { return depth_; }
  // Longer after the world healed nothing that went wrong before can still be felt.
  std::uint64_t recovery_ns() const noexcept;

  // ---- what befalls ----
  void begin_faults();
  void heal();
  void heal_later(std::uint64_t longest_ns);  // unless heal() or begin_faults() come before
  bool faulty() const noexcept { return faulty_; }
  std::uint64_t healed_at_ns() const noexcept { return healed_at_ns_; }
  void lose_power();  // the drive's and the targets'; they come back by and by, or with heal()
  void grow_drive();  // the targets are started again over a larger one

 private:
  void draw_host();
  void make_url(unsigned paths);
  void plan_event();
  void befall(TargetProcess& target);
  std::uint64_t draw_pause() noexcept;
  void kill(TargetProcess& target);
  void fall_silent(TargetProcess& target, std::uint64_t later_ns);

  std::vector<std::unique_ptr<TargetProcess>> targets_;
  std::string url_, drawn_;
  std::uint32_t depth_ = 32;
  std::uint64_t keep_alive_ms_ = 0, io_timeout_ms_ = 0, connect_timeout_ms_ = 0, loss_timeout_ms_ = 0;
  bool faulty_ = false;
  std::uint64_t healed_at_ns_ = 0, age_ = 0;  // age_: tells the plans of one time of faults from another's
};

bool documented(Code code) noexcept;  // an error that a fault may show as

}  // namespace dlfs::sim
