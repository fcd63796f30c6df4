#include "output.h"

#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace dlfs::tools {
namespace {
constexpr std::size_t kBufferBytes = 64u << 10;
}

Output::Output() : terminal_(isatty(STDOUT_FILENO) == 1) { buffer_.reserve(kBufferBytes); }

void Output::write(std::string_view text) {
  if (!good()) return;
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
}

void Output::flush() {
  std::string_view left = buffer_;
  while (!left.empty() && good()) {
    const ssize_t n = ::write(STDOUT_FILENO, left.data(), left.size());
    if (n >= 0) {
      left.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      errno_value_ = errno;
    }
  }
  buffer_.clear();
}

Result<void> Output::finish() {
  flush();
  if (errno_value_ == 0 || errno_value_ == EPIPE) return {};
  return base::errno_error(errno_value_, "cannot write to standard output");
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Result<void> print(const Json& json) {
  Output out;
  out.line(dump(json));
  return out.finish();
}

std::string hex(std::string_view bytes) {
  std::string digits;
  for (const char c : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return digits;
}

void put_name(Json& json, std::string_view name) {
  std::string escaped = base::escape(name);
  const bool changed = escaped != name;
  json["name"] = std::move(escaped);
  if (changed) json["name_hex"] = hex(name);
}

Json error_json(const Error& error) {
  Json inner;
  inner["code"] = static_cast<int>(error.code);
  inner["kind"] = code_name(error.code);
  inner["message"] = error.message;
  inner["errno"] = error.errno_value;
  return Json{{"error", std::move(inner)}};
}

}  // namespace dlfs::tools
