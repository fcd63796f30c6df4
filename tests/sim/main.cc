// dlfs_sim: the reader, both sides of NVMe/TCP and the volumes in a simulated world of faults, from a seed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "sim/scenario.h"

namespace {

using dlfs::sim::Outcome;
using dlfs::sim::Plant;

constexpr const char* kUsage = R"(usage: dlfs_sim [--seed N | --seeds A..B] [--minutes M] [--plant FAULT] [--verbose]

Runs the real reader, the real NVMe/TCP initiator and target and the real writer on one thread, over a simulated
network, drive and clock; faults are drawn from the seed. Nothing wrong may be delivered while there are faults, and
once they stop everything must complete in bounded (virtual) time. A failure prints its seed and how to run it again.

  --seed N        one scenario, its events printed
  --seeds A..B    scenarios A to B-1 (default 0..100)
  --minutes M     go on from A for so long instead
  --plant FAULT   a fault in the code's surroundings that must be found: wrong-offset, lost-completion, unverified
  --verbose       a line for each scenario

Exit code 0: all went well; 1: a scenario failed; 2: the command line makes no sense.
)";

struct Options {
  std::uint64_t first = 0, end = 100;
  double minutes = 0;
  Plant plant = Plant::kNone;
  bool verbose = false, single = false;
};

bool number(const char* text, std::uint64_t& value, const char** end) {
  char* stop = nullptr;
  value = std::strtoull(text, &stop, 10);
  *end = stop;
  return stop != text;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    const char* end = nullptr;
    if (word == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (value == nullptr) return false;
    ++i;
    if (word == "--seed") {
      if (!number(value, options.first, &end) || *end != 0) return false;
      options.end = options.first + 1;
      options.single = true;
    } else if (word == "--seeds") {
      if (!number(value, options.first, &end) || std::strncmp(end, "..", 2) != 0 ||
          !number(end + 2, options.end, &end) || *end != 0)
        return false;
    } else if (word == "--minutes") {
      options.minutes = std::atof(value);
      if (options.minutes <= 0) return false;
    } else if (word == "--plant") {
      const std::string plant = value;
      options.plant = plant == "wrong-offset"      ? Plant::kWrongOffset
                      : plant == "lost-completion" ? Plant::kLostCompletion
                      : plant == "unverified"      ? Plant::kUnverified
                                                   : Plant::kNone;
      if (options.plant == Plant::kNone) return false;
    } else {
      return false;
    }
  }
  return options.first < options.end;
}

void report(std::uint64_t seed, const Outcome& outcome, const Options& options) {
  fmt::print("seed {}: {}\n  {}\n{}", seed, outcome.ok ? "well" : "FAILED: " + outcome.failure, outcome.scenario,
             outcome.events);
  if (!outcome.ok)
    fmt::print("again: dlfs_sim --seed {}{}\n", seed, options.plant == Plant::kNone ? "" : " --plant ...");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc > 1 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0))
    return std::fputs(kUsage, stdout) < 0;
  if (!parse(argc, argv, options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::uint64_t seed = options.first, failed = 0;
  double virtual_s = 0;
  for (; options.minutes > 0 ? elapsed_s() < options.minutes * 60 : seed < options.end; ++seed) {
    const Outcome outcome = dlfs::sim::run_scenario(seed, options.plant);
    virtual_s += outcome.virtual_s;
    failed += outcome.ok ? 0 : 1;
    if (!outcome.ok || options.single) report(seed, outcome, options);
    if (options.verbose && !options.single)
      fmt::print("seed {}: {}, {:.1f} virtual s, trace {:016x}\n", seed, outcome.ok ? "well" : "FAILED",
                 outcome.virtual_s, outcome.trace);
  }
  fmt::print("{} scenarios, {} failed, {:.0f} s of virtual time in {:.1f} s\n", seed - options.first, failed, virtual_s,
             elapsed_s());
  return failed == 0 ? 0 : 1;
}
