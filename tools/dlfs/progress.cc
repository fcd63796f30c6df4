#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "units.h"

namespace dlfs::tools {
namespace {

using namespace std::chrono_literals;

bool can_redraw() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

std::size_t columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::string verb, bool quiet)
    : verb_(std::move(verb)), quiet_(quiet), terminal_(can_redraw()), start_(Clock::now()) {
  next_ = start_ + (terminal_ ? 200ms : 3000ms);
}

Progress::~Progress() { clear(); }

void Progress::update(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t samples,
                      std::uint64_t samples_total) {
  if (quiet_) return;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? 100ms : 3000ms);
  draw(bytes, bytes_total, samples, samples_total, std::chrono::duration<double>(now - start_).count());
}

void Progress::draw(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t samples, std::uint64_t samples_total,
                    double elapsed_s) {
  // Both weigh: a byte and a sample are taken to cost alike at 64 KiB a sample.
  constexpr double kSampleBytes = 64 << 10;
  const double done = static_cast<double>(bytes) + kSampleBytes * static_cast<double>(samples);
  const double all = static_cast<double>(bytes_total) + kSampleBytes * static_cast<double>(samples_total);
  std::string text = verb_ + ":";
  if (all > 0) text += fmt::format(" {:.0f} %,", 100 * done / all);
  if (samples_total > 0) {
    text += fmt::format(" {} of {} samples,", count_text(samples), count_text(samples_total));
  } else if (samples > 0) {
    text += fmt::format(" {} samples,", count_text(samples));
  }
  if (bytes > 0) text += fmt::format(" {}/s,", size_text(static_cast<double>(bytes) / elapsed_s));
  if (all > 0 && done > 0) text += fmt::format(" {} left,", duration_text(elapsed_s * (all - done) / done));
  text.pop_back();
  if (!terminal_) {
    fmt::print(stderr, "{}\n", text);
    return;
  }
  if (const std::size_t width = columns(); text.size() >= width) text.resize(width - 1);
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

void Progress::note(std::string_view line) {
  clear();
  fmt::print(stderr, "{}\n", line);
}

}  // namespace dlfs::tools
