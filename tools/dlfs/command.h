// What the subcommands share: how they are declared, run and documented. The option tree is the one source of --help,
// the manual page and shell completion.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "dlfs/dlfs.hpp"

namespace dlfs::tools {

// What the command line asked for. Filled by the callbacks of the parser, run by main.
struct Request {
  bool json = false;
  std::function<Result<int>()> run;  // the exit code
};

// A subcommand with --json and an example in its help.
CLI::App* add_command(CLI::App& app, Request& request, const char* name, const char* description, const char* example);
// An option that takes a size such as 256KiB.
CLI::Option* add_size(CLI::App& command, const std::string& name, std::uint64_t& value, const std::string& description);
// A whole number from `least` to `most`; `set` gets it.
CLI::Option* add_count(CLI::App& command, const std::string& name, const std::string& description, std::uint64_t least,
                       std::uint64_t most, std::function<void(std::uint64_t)> set);
// As above, for a variable whose value now is the default, and of any size that its type holds.
template <class T>
CLI::Option* add_count(CLI::App& command, const std::string& name, T& value, const std::string& description,
                       std::uint64_t least = 0) {
  auto set = [&value](std::uint64_t given) { value = static_cast<T>(given); };
  return add_count(command, name, description, least, std::numeric_limits<T>::max(), set)
      ->default_str(std::to_string(value));
}
// Mode, seed, epoch, batch, ranks, tail, lanes and window: for order and bench.
void add_order_options(CLI::App& command, SequenceOptions& options);
// What may stand where a volume is asked for.
inline constexpr const char* kVolumeUrls =
    "a file, file:PATH, a block device, or nvme-tcp://HOST[:PORT]/NQN[?nsid=N&...] (man dlfs lists its options)";
CLI::Option* add_volume(CLI::App& command, std::string& url);

void add_pack(CLI::App& app, Request& request);
void add_stat(CLI::App& app, Request& request);
void add_ls(CLI::App& app, Request& request);
void add_cat(CLI::App& app, Request& request);
void add_export(CLI::App& app, Request& request);
void add_verify(CLI::App& app, Request& request);
void add_order(CLI::App& app, Request& request);
void add_bench(CLI::App& app, Request& request);
void add_bench_device(CLI::App& app, Request& request);
void add_serve(CLI::App& app, Request& request);
void add_discover(CLI::App& app, Request& request);
void add_identify(CLI::App& app, Request& request);
void add_completion(CLI::App& app, Request& request);
void add_help(CLI::App& app, Request& request);

// The index of the field called `name`, or of the first field when there is none. kNotFound names those that exist.
Result<std::size_t> field_index(const Schema& schema, const std::string& name);

}  // namespace dlfs::tools
