// Samples a second from a volume of small samples, by mode and memory, and the device's own rate for the same bytes
// beside it.
//   reader_bench [--samples N] [--bytes B] [--batch B] [--directory DIR] [--seconds S] [--mode MODE --cache-mib N]
//                [--think-us T]: the consumer sleeps so long after each batch, as one that computes
// The file is read with O_DIRECT where the file system allows that (the notes say so when not); CPU seconds are the
// whole process's.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/mix.h"
#include "block/device.h"
#include "reader/policy.h"
#include "reader/reader.h"
#include "volume/volume.h"
#include "volume/writer.h"

namespace {

using namespace dlfs;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::uint64_t samples = 60'000, bytes = 921, seconds = 1;
  std::uint32_t batch = 256;
  std::string directory = std::filesystem::temp_directory_path();
  std::string mode;  // empty: the table of all
  std::uint64_t cache_mib = 256, think_us = 0;
};

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}
void must(Result<void> result) {
  if (result.ok()) return;
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void pack(const std::string& path, const Settings& settings) {
  const layout::Schema schema = must(layout::parse_schema("image: bytes"));
  auto writer = must(volume::Writer::create(path, schema, {}));
  std::vector<std::byte> bytes(settings.bytes * 2);
  base::Prng prng(1);
  for (auto& b : bytes) b = static_cast<std::byte>(prng.next());
  for (std::uint64_t i = 0; i < settings.samples; ++i) {  // lengths from half to one and a half of the mean
    const layout::FieldValue field(bytes.data(), settings.bytes / 2 + prng.below(settings.bytes + 1));
    must(writer->append(fmt::format("{:08}.bin", i), {&field, 1}));
  }
  must(writer->commit());
}

// Reads `length` bytes from `begin` on, over and over, in requests of `size` at a depth of 32.
double raw_bytes_per_s(const volume::Volume& volume, std::uint64_t size, double seconds) {
  auto device = must(volume.open_device(32));
  const layout::Extent data = volume.superblock().data;
  const base::Arena memory = must(base::Arena::create(32 * size));
  std::uint64_t next = 0, bytes = 0;
  std::vector<block::Completion> completions(32);
  const auto request = [&](std::uint64_t slot) {
    const std::uint64_t at = data.offset_bytes + next % (data.length_bytes / size) * size;
    next += 7919;  // scattered
    return block::Request{block::Op::kRead, memory.bytes().data() + slot * size, static_cast<std::uint32_t>(size), at,
                          slot};
  };
  std::vector<block::Request> burst;
  for (std::uint64_t slot = 0; slot < 32; ++slot) burst.push_back(request(slot));
  const auto begin = Clock::now();
  while (true) {
    device->submit(burst);
    burst.clear();
    const std::size_t count = device->poll(completions);
    for (std::size_t i = 0; i < count; ++i) bytes += completions[i].length_bytes;
    const double elapsed = since(begin);
    for (std::size_t i = 0; elapsed < seconds && i < count; ++i) burst.push_back(request(completions[i].user_data));
    if (elapsed >= seconds && device->in_flight() == 0) return static_cast<double>(bytes) / elapsed;
  }
}

void measure(const std::shared_ptr<const volume::Volume>& volume, const Settings& settings, const char* name,
             order::Mode mode, std::uint64_t cache_bytes, std::uint64_t epochs) {
  reader::Options options;
  options.order.mode = mode;
  options.order.batch = settings.batch;
  options.cache_bytes = cache_bytes;
  options.epochs = epochs;
  const double cpu = cpu_seconds();
  const auto begin = Clock::now();
  auto reader = must(reader::Reader::open(volume, options));
  std::uint64_t touched = 0;
  while (since(begin) < static_cast<double>(settings.seconds)) {
    auto batch = must(reader->next(std::chrono::minutes(1)));
    if (batch == nullptr) break;
    for (std::size_t i = 0; i < batch->size(); ++i) touched += batch->field(i, 0).size();
    if (settings.think_us != 0) usleep(static_cast<useconds_t>(settings.think_us));
  }
  const double elapsed = since(begin), used = cpu_seconds() - cpu;
  const reader::Statistics s = reader->statistics();
  const double samples = static_cast<double>(s.samples);
  fmt::print("{:<11} {:>9} {:>10.0f} {:>8.0f} {:>6.2f} {:>8.2f} {:>9.2f} {:>8.0f} {:>8.0f} {:>9} {:>9.0f}\n", name,
             reader::in_words(cache_bytes), samples / elapsed, static_cast<double>(touched) / elapsed / 1e6,
             s.amplification(), used / samples * 1e6, s.poller_cpu_s / samples * 1e6, s.wait.p50_us, s.wait.p99_us,
             s.device_requests, static_cast<double>(s.memory_peak_bytes) / 1048576);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--samples") settings.samples = std::stoull(value);
    if (flag == "--bytes") settings.bytes = std::stoull(value);
    if (flag == "--batch") settings.batch = static_cast<std::uint32_t>(std::stoul(value));
    if (flag == "--seconds") settings.seconds = std::stoull(value);
    if (flag == "--think-us") settings.think_us = std::stoull(value);
    if (flag == "--mode") settings.mode = value;
    if (flag == "--cache-mib") settings.cache_mib = std::stoull(value);
    if (flag == "--directory") settings.directory = value;
  }
  std::string directory = settings.directory + "/dlfs-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return std::perror(directory.c_str()), 1;
  pack(directory + "/v.dlfs", settings);
  const auto volume = must(volume::Volume::mount(directory + "/v.dlfs"));
  const std::uint64_t data = volume->superblock().data.length_bytes;
  fmt::print("{} samples of {} bytes on average, {} in {} units; device engine {}; {}\n", settings.samples,
             settings.bytes, reader::in_words(data), volume->directory().unit_count(), volume->report().engine,
             volume->report().notes);
  for (const std::uint64_t size : {4096ull, 262144ull}) {
    const double rate = raw_bytes_per_s(*volume, size, static_cast<double>(settings.seconds));
    fmt::print("raw device, requests of {:>7}: {:>8.0f} MB/s, {:>9.0f} requests/s\n", reader::in_words(size),
               rate / 1e6, rate / static_cast<double>(size));
  }
  fmt::print("{:<11} {:>9} {:>10} {:>8} {:>6} {:>8} {:>9} {:>8} {:>8} {:>9} {:>9}\n", "mode", "cache", "samples/s",
             "MB/s", "ampl.", "cpu us", "poller us", "p50 us", "p99 us", "requests", "peak MiB");
  const std::uint64_t all = data * 5 / 4 + (8u << 20), some = data / 2,
                      little = std::max<std::uint64_t>(data / 16, 4u << 20);
  if (!settings.mode.empty()) {
    const order::Mode mode = settings.mode == "chunk"  ? order::Mode::kChunk
                             : settings.mode == "full" ? order::Mode::kFull
                                                       : order::Mode::kSequential;
    measure(volume, settings, settings.mode.c_str(), mode, settings.cache_mib << 20, 0);
    std::filesystem::remove_all(directory);
    return 0;
  }
  measure(volume, settings, "sequential", order::Mode::kSequential, little, 0);
  measure(volume, settings, "full", order::Mode::kFull, little, 0);
  measure(volume, settings, "full", order::Mode::kFull, some, 0);
  measure(volume, settings, "full", order::Mode::kFull, all, 0);
  measure(volume, settings, "chunk", order::Mode::kChunk, little, 0);
  measure(volume, settings, "chunk", order::Mode::kChunk, some, 0);
  measure(volume, settings, "chunk", order::Mode::kChunk, all, 1);
  measure(volume, settings, "chunk", order::Mode::kChunk, all, 0);
  std::filesystem::remove_all(directory);
  return 0;
}
