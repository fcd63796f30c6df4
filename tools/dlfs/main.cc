// The dlfs command: parses the command line, runs one subcommand, turns its result into an exit code.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "command.h"
#include "help_format.h"
#include "output.h"
#include "signals.h"
#include "suggest.h"

namespace dlfs::tools {
namespace {

void add_commands(CLI::App& app, Request& request) {
  add_pack(app, request);
  add_stat(app, request);
  add_ls(app, request);
  add_cat(app, request);
  add_export(app, request);
  add_verify(app, request);
  add_order(app, request);
  add_bench(app, request);
  add_bench_device(app, request);
  add_serve(app, request);
  add_discover(app, request);
  add_identify(app, request);
  add_completion(app, request);
  add_help(app, request);
}

void print_error(const Error& error, bool json) {
  if (json) {
    fmt::print(stderr, "{}\n", dump(error_json(error)));
  } else {
    fmt::print(stderr, "dlfs: {}\n", error.message);
  }
}

int usage_error(const std::string& message, bool json) {
  print_error({Code::kInvalidArgument, message}, json);
  return kExitUsage;
}

// The sentence for an unknown command; empty when the first word is a command or an option.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return {};
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(command->get_name());
  if (std::find(known.begin(), known.end(), argv[1]) != known.end()) return {};
  const std::string close = suggest(argv[1], known);
  return fmt::format("there is no command '{}'{}: dlfs --help lists them", base::escape(argv[1]),
                     close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
}

std::string parse_message(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  const auto used = app.get_subcommands();
  return fmt::format("{} (dlfs {}--help shows how it is used)", text,
                     used.empty() ? "" : used.front()->get_name() + " ");
}

// What was given and is taken by nothing.
std::string unexpected_message(CLI::App& app) {
  std::string words;
  const auto list = [&words](const std::vector<std::string>& extra) {
    for (const std::string& word : extra) words += (words.empty() ? "'" : ", '") + base::escape(word) + "'";
  };
  list(app.remaining(false));
  if (!words.empty())
    return fmt::format("{} cannot stand before the command (dlfs --help shows how it is used)", words);
  list(app.remaining(true));
  const auto used = app.get_subcommands();
  const std::string command = used.empty() ? "dlfs" : "dlfs " + used.front()->get_name();
  return fmt::format("{} takes no {} ({} --help shows how it is used)", command, words, command);
}

// The text of --help or --version, written as any other output is.
int print_success(const CLI::App& app, const CLI::Success& success, bool json) {
  std::ostringstream text;
  const int code = app.exit(success, text, text);
  Output out;
  out.write(text.str());
  if (const auto written = out.finish(); !written.ok()) {
    print_error(written.error(), json);
    return kExitFailed;
  }
  return code;
}

int run(const Request& request) {
  const Result<int> result = request.run();
  if (result.ok()) return *result;
  print_error(result.error(), request.json);
  if (interrupted() != 0) return exit_by_signal(interrupted());
  return result.error().code == Code::kInvalidArgument ? kExitUsage : kExitFailed;
}

int main_guarded(int argc, char** argv) {
  // `dlfs bench device` is a command of its own; a volume of that name is written ./device.
  std::vector<char*> words(argv, argv + argc);
  static char bench_device[] = "bench-device";
  if (argc > 2 && std::string_view(argv[1]) == "bench" && std::string_view(argv[2]) == "device") {
    words.erase(words.begin() + 1);
    words[1] = bench_device;
  }
  words.push_back(nullptr);
  argc = static_cast<int>(words.size()) - 1;
  argv = words.data();
  std::signal(SIGPIPE, SIG_IGN);  // seen as EPIPE where it happens
  std::signal(SIGXFSZ, SIG_IGN);  // seen as EFBIG
  Request request;
  CLI::App app("A deep-learning file system: pack data sets into volumes, read them in shuffled batches", "dlfs");
  app.set_version_flag("--version", std::string("dlfs ") + version(), "Print the version and exit");
  app.require_subcommand(1);
  app.footer("dlfs COMMAND --help shows the options of a command, and an example.\nman dlfs has it all on one page.");
  app.formatter(std::make_shared<HelpFormat>());
  add_commands(app, request);
  const bool json = std::any_of(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
  if (argc == 1) {
    fmt::print(stderr, "{}", app.help());
    return kExitUsage;
  }
  if (const std::string message = unknown_command(app, argc, argv); !message.empty()) return usage_error(message, json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return print_success(app, success, json);
  } catch (const CLI::ExtrasError&) {
    return usage_error(unexpected_message(app), json);
  } catch (const CLI::ParseError& error) {
    return usage_error(parse_message(app, error), json);
  }
  return run(request);
}

}  // namespace
}  // namespace dlfs::tools

int main(int argc, char** argv) {
  try {
    return dlfs::tools::main_guarded(argc, argv);
  } catch (const std::exception& failure) {  // out of memory, in practice
    std::fprintf(stderr, "dlfs: stopped: %s\n", failure.what());
    return dlfs::tools::kExitFailed;
  }
}
