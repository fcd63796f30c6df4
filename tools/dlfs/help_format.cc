#include "help_format.h"

namespace dlfs::tools {
namespace {

constexpr std::size_t kTextColumn = 24, kColumns = 80;

// `head` at the left, `text` wrapped at the right; below when `head` is too long.
std::string entry(const std::string& head, const std::string& text) {
  std::string out = "  " + head;
  std::size_t column = out.size();
  if (column + 2 > kTextColumn) {
    out += '\n';
    column = 0;
  }
  bool first = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (!first && column + 1 + end - at > kColumns) {
      out += '\n';
      column = 0;
      first = true;
    }
    const std::size_t spaces = first ? kTextColumn - column : 1;
    out.append(spaces, ' ').append(text, at, end - at);
    column += spaces + end - at;
    first = false;
    at = end + 1;
  }
  return out + '\n';
}

}  // namespace

HelpFormat::HelpFormat() { label("SUBCOMMAND", "COMMAND"); }

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  if (is_positional) return entry(option->get_name(true), option->get_description());
  std::string head = option->get_name(false, true);
  if (const std::size_t comma = head.find(','); comma != std::string::npos) head.insert(comma + 1, " ");
  if (option->get_items_expected_max() > 0) head += ' ' + option->get_type_name();
  std::string text = option->get_description();
  if (!option->get_default_str().empty()) text += " (default: " + option->get_default_str() + ")";
  return entry(head, text);
}

std::string HelpFormat::make_subcommand(const CLI::App* command) const {
  return entry(command->get_name(), command->get_description());
}

}  // namespace dlfs::tools
