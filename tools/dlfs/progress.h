// How far a long command is: one line that is redrawn on a terminal, a plain line every few seconds elsewhere. On
// standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace dlfs::tools {

class Progress {
 public:
  // `verb`: "packing". `quiet` shows nothing but notes.
  Progress(std::string verb, bool quiet);
  ~Progress();  // removes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap to call for every sample. `total` of 0: not known, no percentage. `samples_total` likewise.
  void update(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t samples, std::uint64_t samples_total);
  void note(std::string_view line);  // a line of its own, above the progress
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t samples, std::uint64_t samples_total,
            double elapsed_s);

  std::string verb_;
  bool quiet_, terminal_, drawn_ = false;
  Clock::time_point start_, next_;
};

}  // namespace dlfs::tools
