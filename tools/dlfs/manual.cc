#include "manual.h"

#include <fmt/format.h>

#include "dlfs/dlfs.hpp"

namespace dlfs::tools {
namespace {

// What the option tree does not say.
constexpr const char* kIntroduction =
    "dlfs packs data sets of many small files into volumes and reads them as shuffled mini-batches. A volume is one "
    "file, one block device, or one NVMe namespace across a network. Nothing is installed in the kernel, and no daemon "
    "runs.";
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

constexpr const char* kUrls[][2] = {
    {"PATH, file:PATH", "A file or a block device. A path whose first part holds a colon is written ./PATH."},
    {"nvme-tcp://HOST[:PORT][,HOST[:PORT]...]/NQN[?OPTION=VALUE&...]",
     "A namespace of an NVMe/TCP target (port 4420); several hosts are paths to one subsystem. Quote it in a shell."},
    {"mem:NAME?size=SIZE, null:SIZE",
     "Memory of this process; a device that reads zeros and forgets writes: for tests and measurements."},
};
constexpr const char* kUrlOptions[][2] = {
    {"nsid=N", "The namespace (default: 1)"},
    {"hostnqn=NQN, hostid=UUID",
     "Who this host says that it is (default: /etc/nvme/hostnqn and hostid, else made from /etc/machine-id)"},
    {"header_digest=on|off, data_digest=on|off", "CRC32C on the wire (default: off)"},
    {"queues=N", "I/O queues, TCP connections, a path: 1 to 64 (default: 1)"},
    {"queue_depth=N",
     "Commands in flight a queue (default: the reader's depth, 128 unless set, divided over the queues)"},
    {"connect_timeout=TIME", "For one attempt to bring a path up (default: 5s)"},
    {"keep_alive=TIME", "A peer that is silent for so long is lost; 0: never (default: 10s)"},
    {"io_timeout=TIME", "One command on one path (default: 30s)"},
    {"ctrl_loss_timeout=TIME", "Without any usable path, requests fail after this (default: 60s)"},
    {"reconnect_delay=TIME", "After the first failure; doubles up to 5 s, with jitter (default: 100ms)"},
};

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
  out += ".SH VOLUMES AND DEVICES\nWhat VOLUME, URL and SPACE may be:\n";
  for (const auto& [url, meaning] : kUrls) out += fmt::format(".TP\n{}\n{}\n", roff(url), roff(meaning));
  out += ".PP\nOptions of nvme-tcp: URLs. Times are written 500ms, 10s or 2min:\n";
  for (const auto& [name, meaning] : kUrlOptions) out += fmt::format(".TP\n{}\n{}.\n", roff(name), roff(meaning));
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
