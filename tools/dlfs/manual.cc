#include "manual.h"

#include <fmt/format.h>

#include "dlfs/dlfs.hpp"

namespace dlfs::tools {
namespace {

// What the option tree does not say.
constexpr const char* kIntroduction =
    "dlfs packs data sets of many small files into volumes and reads them as shuffled mini-batches. A volume is one "
    "file, or one block "
    "device. Nothing is installed in the kernel, and no daemon runs.";
constexpr const char* kExitCodes[][2] = {
    {"0", "Done. Also when the reader of standard output went away."},
    {"1", "The operation failed, or verify found something."},
    {"2", "The command line, or a value on it, makes no sense."},
    {"129, 130, 143",
     "Stopped by SIGHUP, SIGINT (Ctrl-C) or SIGTERM, after cleaning up. A second signal stops at once."},
};
constexpr const char* kFiles =
    "A pack into a file writes VOLUME.partial beside it and renames that over VOLUME as its last step, so an earlier "
    "volume stays until then. A "
    "VOLUME.partial that a killed pack left behind is reclaimed by the next pack.";
constexpr const char* kEnvironment = "TMPDIR: where the list of source files is kept while packing to a block device.";

std::string roff(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_start = c == '\n';
  }
  return out;
}

std::string names_of(const CLI::Option& option) { return option.get_name(false, true); }

std::string synopsis(const CLI::App& command) {
  std::string text = fmt::format(".B dlfs {}\n[\\fIOPTIONS\\fR]", command.get_name());
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true);
    text += option->get_required() ? fmt::format(" \\fI{}\\fR", name) : fmt::format(" [\\fI{}\\fR]", name);
  }
  return text + "\n.br\n";
}

std::string option_entry(const CLI::Option& option) {
  std::string head;
  if (option.get_positional()) {
    head = fmt::format("\\fI{}\\fR", roff(option.get_name(true)));
  } else {
    std::string names = names_of(option);
    for (std::size_t at = names.find(','); at != std::string::npos; at = names.find(',', at + 2))
      names.insert(at + 1, " ");
    head = fmt::format("\\fB{}\\fR", roff(names));
    if (option.get_items_expected_max() > 0 && !option.get_type_name().empty())
      head += fmt::format(" \\fI{}\\fR", roff(option.get_type_name()));
  }
  std::string text = roff(option.get_description());
  if (!option.get_default_str().empty()) text += fmt::format(" (default: {})", roff(option.get_default_str()));
  return fmt::format(".TP\n{}\n{}.\n", head, text);
}

std::string example_of(const CLI::App& command) {
  const std::string footer = command.get_footer();
  const std::size_t line = footer.find('\n');
  return line == std::string::npos ? std::string() : footer.substr(footer.find_first_not_of(" \n", line));
}

std::string command_section(const CLI::App& command) {
  std::string text = fmt::format(".SS dlfs {}\n{}.\n", command.get_name(), roff(command.get_description()));
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty() || option->get_name() == "--help") continue;
    text += option_entry(*option);
  }
  if (const std::string example = example_of(command); !example.empty()) {
    text += fmt::format(".PP\nExample:\n.PP\n.RS 4\n.EX\n{}\n.EE\n.RE\n", roff(example));
  }
  return text;
}

}  // namespace

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  std::vector<const CLI::App*> out;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) out.push_back(command);
  }
  return out;
}

std::string manual_page(const CLI::App& app) {
  std::string out = fmt::format(".TH DLFS 1 \"\" \"dlfs {}\" \"User Commands\"\n.SH NAME\ndlfs \\- {}\n.SH SYNOPSIS\n",
                                version(), roff(app.get_description()));
  const auto commands = commands_of(app);
  for (const CLI::App* command : commands) out += synopsis(*command);
  out += fmt::format(".SH DESCRIPTION\n{}\n.SH OPTIONS\n", roff(kIntroduction));
  for (const CLI::Option* option : app.get_options()) out += option_entry(*option);
  out += ".SH COMMANDS\n";
  for (const CLI::App* command : commands) out += command_section(*command);
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) out += fmt::format(".TP\n{}\n{}\n", code, roff(meaning));
  out += fmt::format(".SH FILES\n{}\n.SH ENVIRONMENT\n{}\n", roff(kFiles), roff(kEnvironment));
  out += fmt::format(
      ".SH ERRORS\nErrors are sentences on standard error. With \\fB\\-\\-json\\fR they are one object there, "
      "{{\"error\": {{\"code\", \"kind\", \"message\", \"errno\"}}}}, and standard output holds results alone. Sizes "
      "in JSON are in bytes.\n");
  return out;
}

}  // namespace dlfs::tools
