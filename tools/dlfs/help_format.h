// How --help looks: options in one column, wrapped descriptions with defaults in the other, 80 columns wide.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dlfs::tools {

class HelpFormat : public CLI::Formatter {
 public:
  HelpFormat();
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace dlfs::tools
