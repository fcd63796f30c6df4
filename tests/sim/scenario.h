// One life of a data set, drawn from a seed: packed, mounted and read through the real initiator and the real target,
// over a network and a drive that fail.
#pragma once

#include <cstdint>
#include <string>

#include "sim/sim_disk.h"

namespace dlfs::sim {

struct Outcome {
  bool ok = true;
  std::string scenario;  // what was drawn, in words
  std::string failure;   // what is wrong, when it is
  std::string events;    // the last of what happened
  std::uint64_t trace = 0;
  double virtual_s = 0;
};

Outcome run_scenario(std::uint64_t seed, Plant plant = Plant::kNone);

}  // namespace dlfs::sim
