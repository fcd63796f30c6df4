// Standard output and error as a good Unix command treats them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "dlfs/result.h"

namespace dlfs::tools {

using Json = nlohmann::ordered_json;

// Exit codes, as the manual page has them.
inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;
inline constexpr int exit_by_signal(int signal) { return 128 + signal; }

// Buffered standard output. A reader that goes away (`| head`) ends the command quietly; any other failure is an error.
class Output {
 public:
  Output();
  ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text);
  void line(std::string_view text) { write(text), write("\n"); }
  void flush();
  bool good() const noexcept { return errno_value_ == 0; }  // false: stop producing
  bool terminal() const noexcept { return terminal_; }
  Result<void> finish();  // flushes; the error of any write but EPIPE

 private:
  std::string buffer_;
  int errno_value_ = 0;
  bool terminal_;
};

// JSON on one line. Strings that are not UTF-8 come out with U+FFFD.
std::string dump(const Json& json);
Result<void> print(const Json& json);
// Sets "name", escaped where it has control characters or is not UTF-8, and, when that changes it, "name_hex" with its
// bytes.
void put_name(Json& json, std::string_view name);
std::string hex(std::string_view bytes);
// {"error": {"code": 5, "kind": "foreign", "message": "...", "errno": 0}}
Json error_json(const Error& error);

}  // namespace dlfs::tools
