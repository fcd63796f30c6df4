#include "command.h"

#include <map>

#include "base/error.h"
#include "units.h"

namespace dlfs::tools {

CLI::App* add_command(CLI::App& app, Request& request, const char* name, const char* description, const char* example) {
  CLI::App* command = app.add_subcommand(name, description)->group("Commands");
  command->footer(std::string("Example:\n  ") + example);
  command->add_flag("--json", request.json,
                    "Print machine-readable JSON; errors as {\"error\": {...}} on standard error");
  return command;
}

CLI::Option* add_size(CLI::App& command, const std::string& name, std::uint64_t& value,
                      const std::string& description) {
  auto parse = [&value, name](const std::string& text) {
    const auto bytes = parse_size(text);
    if (!bytes)
      throw CLI::ValidationError(name,
                                 fmt::format("'{}' is not a size such as 65536, 256KiB or 1GiB", base::escape(text)));
    value = *bytes;
  };
  std::string fallback = size_text(static_cast<double>(value));
  if (fallback.find(".0 ") != std::string::npos) fallback.erase(fallback.find(".0 "), 3);  // "256.0 KiB" -> "256KiB"
  return command.add_option_function<std::string>(name, parse, description)->type_name("SIZE")->default_str(fallback);
}

CLI::Option* add_count(CLI::App& command, const std::string& name, const std::string& description, std::uint64_t least,
                       std::uint64_t most, std::function<void(std::uint64_t)> set) {
  auto parse = [name, least, most, set = std::move(set)](const std::string& text) {
    const auto value = parse_count(text);
    if (!value || *value < least || *value > most) {
      throw CLI::ValidationError(
          name, fmt::format("'{}' is not a whole number from {} to {}", base::escape(text), least, most));
    }
    set(*value);
  };
  return command.add_option_function<std::string>(name, parse, description)->type_name("N");
}

CLI::Option* add_volume(CLI::App& command, std::string& url) {
  return command.add_option("VOLUME", url, std::string("The volume: ") + kVolumeUrls)->required()->type_name("");
}

void add_order_options(CLI::App& command, SequenceOptions& options) {
  static const std::map<std::string, Mode> modes = {
      {"sequential", Mode::kSequential}, {"full", Mode::kFull}, {"chunk", Mode::kChunk}};
  static const std::map<std::string, Tail> tails = {
      {"drop", Tail::kDrop}, {"short", Tail::kShort}, {"pad", Tail::kPad}};
  auto choice = [&](const std::string& name, auto& value, const auto& names, const std::string& fallback,
                    const std::string& text) {
    auto parse = [&value, &names, name](const std::string& given) {
      const auto found = names.find(given);
      std::string known;
      for (const auto& [key, unused] : names) known += (known.empty() ? "" : ", ") + key;
      if (found == names.end())
        throw CLI::ValidationError(name, fmt::format("'{}' is none of {}", base::escape(given), known));
      value = found->second;
    };
    std::string type;
    for (const auto& [key, unused] : names) type += (type.empty() ? "" : "|") + key;
    command.add_option_function<std::string>(name, parse, text)->type_name(type)->default_str(fallback);
  };
  choice("--mode", options.mode, modes, "chunk", "Order of the samples");
  add_count(command, "--seed", options.seed, "Seed of the order");
  add_count(command, "--epoch", options.epoch, "Epoch, from 0");
  add_count(command, "--batch", options.batch, "Samples of a global batch, over all ranks");
  add_count(command, "--rank", options.rank, "This rank, from 0");
  add_count(command, "--ranks", options.ranks, "Number of ranks; divides the batch and, in chunk mode, the lanes");
  choice("--tail", options.tail, tails, "short", "What becomes of the samples behind the last whole batch");
  add_count(command, "--lanes", options.lanes, "Lanes of chunk mode");
  add_count(command, "--window", options.window, "Chunks that a lane shuffles together");
}

Result<std::size_t> field_index(const Schema& schema, const std::string& name) {
  if (name.empty()) return std::size_t{0};
  std::string known;
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    if (schema.fields[i].name == name) return i;
    known += (known.empty() ? "" : ", ") + base::escape(schema.fields[i].name);
  }
  return base::make_error(Code::kNotFound, "there is no field '{}': the volume has {}", base::escape(name), known);
}

}  // namespace dlfs::tools
