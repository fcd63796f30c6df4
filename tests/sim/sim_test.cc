// The simulator itself: it repeats, it lets everything happen that it should, and it finds what is planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sim/scenario.h"

namespace dlfs::sim {
namespace {

TEST(Simulator, one_seed_is_one_story) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Outcome first = run_scenario(seed), second = run_scenario(seed);
    EXPECT_TRUE(first.ok) << first.failure;
    EXPECT_EQ(first.trace, second.trace) << "seed " << seed;
    EXPECT_EQ(first.events, second.events);
    EXPECT_NE(first.trace, run_scenario(seed + 1000).trace);
  }
}

// What is never drawn proves nothing.
TEST(Simulator, everything_happens) {
  std::map<std::string, std::uint64_t> counts;
  const char* const kinds[] = {"a bit flipped",
                               "a connection was reset",
                               "a port hears nothing",
                               "a port is not heard",
                               "a port went silent",
                               "a target froze",
                               "a target was killed",
                               "all connections were reset",
                               "batch",
                               "bytes into nothing",
                               "connection attempt into nothing",
                               "connection refused",
                               "failed pack",
                               "held batches left no memory",
                               "incomplete volume",
                               "interrupted request",
                               "look-up",
                               "next timed out",
                               "pack",
                               "reader failed",
                               "skipped samples",
                               "slow request",
                               "stall",
                               "the access state changed",
                               "the drive failed a request",
                               "the namespace grew",
                               "the network was cut",
                               "the power failed",
                               "write that outlives its process"};
  const auto all = [&] { return std::ranges::all_of(kinds, [&](const char* kind) { return counts[kind] > 0; }); };
  for (std::uint64_t seed = 0; seed < 400 && !all(); ++seed) {
    for (const auto& [kind, count] : run_scenario(seed).counts) counts[kind] += count;
  }
  for (const char* kind : kinds) EXPECT_GT(counts[kind], 0u) << kind;
}

// Whether one of some seeds fails with these words.
bool found(Plant plant, const char* words) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Outcome outcome = run_scenario(seed, plant);
    if (!outcome.ok && outcome.failure.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(Simulator, finds_a_drive_that_reads_the_wrong_place) { EXPECT_TRUE(found(Plant::kWrongOffset, "is corrupt")); }
TEST(Simulator, finds_a_drive_that_reads_half) { EXPECT_TRUE(found(Plant::kHalfRead, "is corrupt")); }
TEST(Simulator, finds_a_drive_that_does_not_flush) {
  EXPECT_TRUE(found(Plant::kLostFlush, "holds neither the old nor the new data"));
}
TEST(Simulator, finds_completions_that_are_lost) { EXPECT_TRUE(found(Plant::kLostCompletion, "did not answer")); }
TEST(Simulator, finds_a_reader_that_does_not_verify) {
  EXPECT_TRUE(found(Plant::kUnverified, "was delivered with wrong bytes"));
}

}  // namespace
}  // namespace dlfs::sim
