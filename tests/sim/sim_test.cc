// The simulator itself: it repeats, and it finds what is planted.
#include <gtest/gtest.h>

#include "sim/scenario.h"

namespace dlfs::sim {
namespace {

TEST(Simulator, OneSeedIsOneStory) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Outcome first = run_scenario(seed), second = run_scenario(seed);
    EXPECT_TRUE(first.ok) << first.failure;
    EXPECT_EQ(first.trace, second.trace) << "seed " << seed;
    EXPECT_NE(first.trace, run_scenario(seed + 1000).trace);
  }
}

std::string first_failure(Plant plant) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Outcome outcome = run_scenario(seed, plant);
    if (!outcome.ok) return outcome.failure;
  }
  return "nothing was found";
}

TEST(Simulator, FindsADriveThatReadsTheWrongPlace) {
  EXPECT_NE(first_failure(Plant::kWrongOffset).find("an error that faults do not excuse"), std::string::npos);
}

TEST(Simulator, FindsAReaderThatDoesNotVerify) {
  EXPECT_NE(first_failure(Plant::kUnverified).find("was delivered with wrong bytes"), std::string::npos);
}

}  // namespace
}  // namespace dlfs::sim
