// dlfs_sim: the reader, both sides of NVMe/TCP and the volumes in a simulated world of faults, from a seed.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "sim/scenario.h"

namespace {

using dlfs::sim::Outcome;
using dlfs::sim::Plant;

constexpr const char* kUsage =
    R"(usage: dlfs_sim [--seed N | --seeds A..B | --count N] [--minutes M] [--plant FAULT] [--verbose]

Runs the real reader, the real NVMe/TCP initiator and target and the real writer on one thread, over a simulated
network, drive and clock; faults are drawn from the seed. Nothing wrong may be delivered while there are faults, and
once they stop everything must complete in bounded (virtual) time. A failure prints its seed and how to run it again.

  --seed N        one scenario, what happened printed
  --seeds A..B    scenarios A to B-1 (default 0..100)
  --count N       N scenarios that nobody has run before (their seeds begin at the clock)
  --minutes M     go on for so long instead; without --seed and --seeds from seeds that nobody has run before
  --plant FAULT   a fault in the code's surroundings that must be found: wrong-offset, half-read, lost-flush,
                  lost-completion, unverified
  --verbose       a line for each scenario, and in the end how often what happened

Exit code 0: all went well; 1: a scenario failed; 2: the command line makes no sense.
)";

struct Options {
  std::uint64_t first = 0, end = 100;
  double minutes = 0;
  Plant plant = Plant::kNone;
  bool verbose = false, single = false;
};

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::uint64_t fresh_seed() {
  return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() / std::chrono::milliseconds(1));
}

bool parse_seeds(std::string_view value, Options& options) {
  const std::size_t dots = value.find("..");
  if (dots == std::string_view::npos) return false;
  const auto first = number(value.substr(0, dots)), end = number(value.substr(dots + 2));
  if (!first || !end || *first >= *end) return false;
  options.first = *first;
  options.end = *end;
  return true;
}

bool parse_option(std::string_view word, std::string_view value, Options& options, bool& seeded) {
  if (word == "--minutes") {
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), options.minutes);
    return status == std::errc() && end == value.data() + value.size() && options.minutes > 0;
  }
  if (word == "--plant") return dlfs::sim::plant_of(std::string(value), options.plant);
  if (seeded) return false;  // one of the three
  seeded = true;
  if (word == "--seeds") return parse_seeds(value, options);
  const auto parsed = number(value);
  if (!parsed || (word != "--seed" && word != "--count")) return false;
  options.single = word == "--seed";
  options.first = options.single ? *parsed : fresh_seed();
  options.end = options.first + (options.single ? 1 : *parsed);
  return options.end > options.first;
}

bool parse(int argc, char** argv, Options& options) {
  bool seeded = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--verbose") == 0) {
      options.verbose = true;
    } else if (i + 1 >= argc || !parse_option(argv[i], argv[i + 1], options, seeded)) {
      return false;
    } else {
      ++i;
    }
  }
  if (options.minutes > 0 && !seeded) options.first = fresh_seed();
  if (options.minutes > 0) options.single = false;
  return true;
}

void report(std::uint64_t seed, const Outcome& outcome, Plant plant) {
  fmt::print("seed {}: {}\n  {}\n{}", seed, outcome.ok ? "well" : "FAILED: " + outcome.failure, outcome.scenario,
             outcome.events);
  if (outcome.ok) return;
  fmt::print("again: dlfs_sim --seed {}", seed);
  if (plant != Plant::kNone) fmt::print(" --plant {}", dlfs::sim::plant_name(plant));
  fmt::print("\n");
}

int run(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::uint64_t seed = options.first, failed = 0;
  double virtual_s = 0;
  std::map<std::string, std::uint64_t> counts;
  for (; options.minutes > 0 ? elapsed_s() < options.minutes * 60 : seed < options.end; ++seed) {
    const Outcome outcome = dlfs::sim::run_scenario(seed, options.plant);
    virtual_s += outcome.virtual_s;
    failed += outcome.ok ? 0 : 1;
    for (const auto& [kind, count] : outcome.counts) counts[kind] += count;
    if (!outcome.ok || options.single) report(seed, outcome, options.plant);
    if (options.verbose && !options.single)
      fmt::print("seed {}: {}, {:.1f} virtual s, trace {:016x}\n", seed, outcome.ok ? "well" : "FAILED",
                 outcome.virtual_s, outcome.trace);
    std::fflush(stdout);
  }
  if (options.verbose) {
    for (const auto& [kind, count] : counts) fmt::print("{:>10}  {}\n", count, kind);
  }
  fmt::print("{} scenarios from seed {}, {} failed, {:.0f} s of virtual time in {:.1f} s\n", seed - options.first,
             options.first, failed, virtual_s, elapsed_s());
  return failed == 0 ? 0 : 1;
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
  return run(options);
}
