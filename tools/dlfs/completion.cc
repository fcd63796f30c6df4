#include <fmt/format.h>

#include <algorithm>

#include "manual.h"

namespace dlfs::tools {
namespace {

// "-h", "--help", "--json"...
std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> out;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) continue;
    for (const std::string& name : option->get_snames()) out.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
  }
  return out;
}

bool has_choices(const CLI::Option& option) { return option.get_type_name().find('|') != std::string::npos; }

std::string words(std::string text) {
  std::replace(text.begin(), text.end(), '|', ' ');
  return text;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " ") + part;
  return out;
}

std::string bash_completion(const CLI::App& app) {
  std::string names, cases;
  for (const CLI::App* command : commands_of(app)) {
    names += (names.empty() ? "" : " ") + command->get_name();
    std::string values;
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional() || option->get_items_expected_max() == 0) continue;
      const std::string reply = has_choices(*option) ? fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))",
                                                                   words(option->get_type_name()))
                                                     : "COMPREPLY=()";
      values += fmt::format("        --{}) {}; return ;;\n",
                            option->get_lnames().empty() ? option->get_snames().front() : option->get_lnames().front(),
                            reply);
    }
    const std::string positional = command->get_name() == "completion" ? "bash zsh fish" : "";
    cases += fmt::format("    {})\n      case \"$previous\" in\n{}      esac\n      options=\"{}\"; words=\"{}\" ;;\n",
                         command->get_name(), values.empty() ? "        --) ;;\n" : values, joined(flags_of(*command)),
                         positional);
  }
  return fmt::format(R"(# bash completion for dlfs
_dlfs() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" options="" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    local IFS=$'\n'
    compopt -o filenames 2>/dev/null || true
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -F _dlfs dlfs
)",
                     names, cases);
}

// Text inside '...' of zsh and fish, and inside [...] of zsh.
std::string quoted(std::string_view text, std::string_view also) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (also.find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string zsh_completion(const CLI::App& app) {
  std::string list, cases;
  for (const CLI::App* command : commands_of(app)) {
    list += fmt::format("    '{}:{}'\n", command->get_name(), quoted(command->get_description(), ":\\"));
    cases += fmt::format("    {})\n      _arguments", command->get_name());
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) continue;
      std::vector<std::string> names;
      for (const std::string& name : option->get_snames()) names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      const bool takes_value = option->get_items_expected_max() > 0;
      const std::string value = !takes_value           ? ""
                                : has_choices(*option) ? fmt::format(":value:({})", words(option->get_type_name()))
                                                       : ":value: ";
      for (const std::string& name : names)
        cases += fmt::format(" \\\n        '{}[{}]{}'", name, quoted(option->get_description(), "[]:\\"), value);
    }
    cases += command->get_name() == "completion" ? " \\\n        '*:shell:(bash zsh fish)' ;;\n"
                                                 : " \\\n        '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef dlfs
_dlfs() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
if [ "$funcstack[1]" = _dlfs ]; then _dlfs "$@"; else compdef _dlfs dlfs; fi
)",
                     list, cases);
}

std::string fish_completion(const CLI::App& app) {
  std::string out = "# fish completion for dlfs\n";
  for (const CLI::App* command : commands_of(app)) {
    out += fmt::format("complete -c dlfs -n __fish_use_subcommand -f -a {} -d '{}'\n", command->get_name(),
                       quoted(command->get_description(), "\\"));
    const std::string condition =
        fmt::format("complete -c dlfs -n '__fish_seen_subcommand_from {}'", command->get_name());
    if (command->get_name() == "completion") out += condition + " -f -a 'bash zsh fish'\n";
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) continue;
      std::string line = condition;
      for (const std::string& name : option->get_snames()) line += " -s " + name;
      for (const std::string& name : option->get_lnames()) line += " -l " + name;
      if (option->get_items_expected_max() > 0)
        line += has_choices(*option) ? fmt::format(" -x -a '{}'", words(option->get_type_name())) : " -x";
      out += line + fmt::format(" -d '{}'\n", quoted(option->get_description(), "\\"));
    }
  }
  return out;
}

}  // namespace

std::string completion(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash_completion(app);
  if (shell == "zsh") return zsh_completion(app);
  if (shell == "fish") return fish_completion(app);
  return {};
}

}  // namespace dlfs::tools
