// dlfs completion and dlfs help: what is generated from the option tree.
#include <memory>

#include "base/error.h"
#include "base/try.h"
#include "command.h"
#include "manual.h"
#include "output.h"

namespace dlfs::tools {
namespace {

Result<int> show(const std::string& text) {
  Output out;
  out.write(text);
  DLFS_TRY(out.finish());
  return kExitOk;
}

}  // namespace

void add_completion(CLI::App& app, Request& request) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = add_command(app, request, "completion", "Print the completion script of a shell",
                                  "source <(dlfs completion bash)");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([shell, &app, &request] {
    request.run = [shell, &app, &request]() -> Result<int> {
      const std::string script = completion(app, *shell);
      if (!request.json) return show(script);
      DLFS_TRY(print({{"shell", *shell}, {"script", script}}));
      return kExitOk;
    };
  });
}

// Hidden: the build asks for the manual page with it.
void add_help(CLI::App& app, Request& request) {
  auto name = std::make_shared<std::string>();
  auto manual = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("help", "Show the help of a command")->group("");
  command->add_option("COMMAND", *name, "The command");
  command->add_flag("--man", *manual, "Print the manual page, in roff");
  command->callback([name, manual, &app, &request] {
    request.run = [name, manual, &app]() -> Result<int> {
      if (*manual) return show(manual_page(app));
      if (name->empty()) return show(app.help());
      for (CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (known->get_name() == *name) return show(known->help());
      }
      return base::make_error(Code::kInvalidArgument, "there is no command '{}': dlfs --help lists them",
                              base::escape(*name));
    };
  });
}

}  // namespace dlfs::tools
