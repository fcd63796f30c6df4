// dlfs order: which samples a rank gets, batch by batch.
#include <fmt/format.h>

#include <memory>

#include "base/try.h"
#include "command.h"
#include "output.h"

namespace dlfs::tools {
namespace {

struct OrderOptions {
  std::string url;
  SequenceOptions sequence;
  std::uint64_t limit = 0;
};

std::string line_of(std::span<const std::uint32_t> ids, bool json) {
  fmt::memory_buffer line;
  if (json) line.push_back('[');
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) line.push_back(json ? ',' : ' ');
    fmt::format_to(std::back_inserter(line), FMT_STRING("{}"), ids[i]);
  }
  if (json) line.push_back(']');
  line.push_back('\n');
  return fmt::to_string(line);
}

Result<int> run(const OrderOptions& options, bool json) {
  DLFS_TRY_ASSIGN(const Volume volume, Volume::mount(options.url));
  Output out;
  std::uint64_t printed = 0;
  auto visit = [&](std::uint64_t, std::span<const std::uint32_t> ids) {
    out.write(line_of(ids, json));
    return out.good() && ++printed != options.limit;
  };
  DLFS_TRY(volume.order(options.sequence, visit));
  DLFS_TRY(out.finish());
  return kExitOk;
}

}  // namespace

void add_order(CLI::App& app, Request& request) {
  auto options = std::make_shared<OrderOptions>();
  CLI::App* command = add_command(
      app, request, "order", "Print the ids that a rank gets, a line a batch (with --json: an array a line)",
      "dlfs order train.dlfs --seed 1 --epoch 0 --mode full --rank 0 --ranks 4 --batch 256");
  add_volume(*command, options->url);
  add_order_options(*command, options->sequence);
  add_count(*command, "--start", options->sequence.start_batch, "First batch to print");
  add_count(*command, "--limit", options->limit, "Most batches to print; 0 for all");
  command->callback([options, &request] { request.run = [options, &request] { return run(*options, request.json); }; });
}

}  // namespace dlfs::tools
