// One life of a data set, drawn from a seed: packed, mounted and read through the real initiator and the real target,
// over a network and a drive that fail.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sim/sim_disk.h"

namespace dlfs::sim {

struct Outcome {
  bool ok = true;
  std::string scenario;                         // what was drawn, in words
  std::string failure;                          // what is wrong, when it is
  std::string events;                           // the last of what happened
  std::map<std::string, std::uint64_t> counts;  // how often what happened
  std::uint64_t trace = 0;                      // of all that happened: the same for the same seed
  double virtual_s = 0;
};

// A loop that burns a processor, or somebody who waits for ever, ends the process instead (exit code 1, the seed said).
Outcome run_scenario(std::uint64_t seed, Plant plant = Plant::kNone);

}  // namespace dlfs::sim
