#include "sim/scenario.h"

#include "sim/packing.h"
#include "sim/reading.h"

namespace dlfs::sim {

Outcome run_scenario(std::uint64_t seed, Plant plant) {
  Stage stage(seed, plant);
  const bool in_packs = plant == Plant::kLostFlush;
  if (in_packs) stage.disk->plant = plant;
  Check wrong = play_packing(stage);
  stage.disk->plant = plant;
  if (!wrong) wrong = play_reading(stage);
  Outcome outcome;
  outcome.ok = !wrong;
  outcome.failure = wrong.value_or("");
  outcome.scenario = stage.words();
  for (const std::string& line : stage.world.log()) outcome.events += "  " + line + "\n";
  outcome.counts = stage.world.counts();
  outcome.trace = stage.world.trace();
  outcome.virtual_s = static_cast<double>(stage.world.now_ns()) / kSecond - 1;
  return outcome;
}

}  // namespace dlfs::sim
