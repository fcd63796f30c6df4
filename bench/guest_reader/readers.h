// The readers that are compared, and how each is measured: time, and the processor time of the whole machine, because
// the kernel's initiator works in threads of the kernel.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "dlfs/dlfs.hpp"

namespace dlfs::guest {

struct Options {
  std::string what, where;  // the reader, and its folder, file or URL
  std::string packed;       // make: the file with all samples
  std::uint64_t count = 0, bytes = 0, seed = 1, threads = 1;
  std::uint64_t align = 0;  // packed: reads past the page cache, in whole blocks of so many bytes; 0: through it
  double seconds = 0;       // a reader of Ext4 stops then; a reader of a volume begins no further epoch
  std::uint64_t cache = 0;  // MiB for a volume; 0: what DLFS takes by itself
  bool verify = true;
};

struct Outcome {
  std::uint64_t samples = 0, distinct = 0, epochs = 0, device_bytes = 0, device_requests = 0;
  double elapsed_s = 0, busy_s = 0, open_s = 0;
};

// user + nice + system + irq + softirq of all processors since boot, in seconds; negative when /proc/stat is not there.
double busy_seconds();

// Runs from its construction to stop().
class Meter {
 public:
  Meter() : busy_(busy_seconds()), start_(std::chrono::steady_clock::now()) {}
  double elapsed_s() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void stop(Outcome& outcome) const {
    outcome.elapsed_s = elapsed_s();
    outcome.busy_s = busy_seconds() - busy_;
  }

 private:
  double busy_;
  std::chrono::steady_clock::time_point start_;
};

// FOLDER/NN/NNNNNNNN for a sample: 100 folders, so that none is large.
std::string sample_path(const std::string& folder, std::uint64_t sample);

// Each fails at the first byte that is not as it was made. **Errors**: kIo and kCorrupt name file and sample.
Result<Outcome> make_samples(const Options& options);  // one file a sample, and the packed file
Result<Outcome> read_files(const Options& options);    // open, read, close, in random order
Result<Outcome> read_packed(const Options& options);   // pread at random offsets of one file
// Whole epochs of a DLFS volume. Each is a sequence of its own, with its own connection and an empty cache.
Result<Outcome> read_volume(const Options& options, Mode mode);

}  // namespace dlfs::guest
