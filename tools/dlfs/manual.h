// The manual page and the completion scripts, from the same option tree that parses the command line and prints --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace dlfs::tools {

std::vector<const CLI::App*> commands_of(const CLI::App& app);          // without hidden ones
std::string manual_page(const CLI::App& app);                           // roff, section 1
std::string completion(const CLI::App& app, const std::string& shell);  // bash, zsh or fish; empty for another shell

}  // namespace dlfs::tools
