// dlfs bench device: what a device gives, whatever its kind, and what it costs.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "base/arena.h"
#include "base/error.h"
#include "base/mix.h"
#include "base/try.h"
#include "block/device.h"
#include "block/url.h"
#include "command.h"
#include "latency.h"
#include "output.h"
#include "signals.h"
#include "units.h"

namespace dlfs::tools {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// After an empty poll, before sleeping. A sleep costs a wake-up, and polling on costs the processor: where the next
// completions come within kSpinThatPays, polling is the cheaper of the two, and every kProbe-th wait finds out.
constexpr auto kSpin = 5us, kSpinThatPays = 20us, kSpinForFew = 50us;
constexpr unsigned kProbe = 16;
constexpr std::size_t kFew = 4;
constexpr auto kLongestSleep = 50ms;  // Ctrl-C is looked at as often
constexpr std::uint32_t kMaxDepth = 65'536;
constexpr std::uint64_t kMaxMemoryBytes = 8ull << 30;
constexpr auto kPatience = 60s;  // without any completion

struct DeviceBench {
  std::string url;
  bool write = false, sequential = false, force = false;
  std::uint64_t size_bytes = 4096;
  std::uint32_t depth = 128, queues = 1, burst = 16;
  double seconds = 10, warmup_s = 0.5, rate = 0, spin_us = 0;
};

struct Measured {
  double elapsed_s = 0, cpu_s = 0;
  std::uint64_t ios = 0, bytes = 0, errors = 0, late = 0;  // late: bursts that began after their time
  Latency latency;
  std::string first_error;
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Keeps `depth` requests in flight, or sends bursts at a fixed rate. Time is taken once a round, not once a request.
class Load {
 public:
  Load(block::BlockDevice& device, const DeviceBench& options, base::Arena memory)
      : device_(device),
        options_(options),
        memory_(std::move(memory)),
        places_(device.geometry().capacity_bytes / options.size_bytes) {
    depth_ = std::min<std::size_t>(options.depth, device.geometry().max_in_flight);
    started_.resize(depth_);
    for (std::size_t i = depth_; i-- > 0;) free_.push_back(i);
    requests_.reserve(depth_);
    completions_.resize(depth_);
  }
  std::size_t depth() const noexcept { return depth_; }

  Result<Measured> run(double seconds) {
    Measured measured;
    const double cpu_before = cpu_seconds();
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const auto interval = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(options_.rate > 0 ? options_.burst / options_.rate : 0));
    auto next_burst = begin, heard = begin, now = begin;
    while (now < end && interrupted() == 0) {
      std::size_t allowed = free_.size();
      if (options_.rate > 0) {
        allowed = now >= next_burst ? std::min<std::size_t>(allowed, options_.burst) : 0;
        if (now >= next_burst) next_burst += interval;
        if (now > next_burst + 10 * interval) {
          ++measured.late;
          next_burst = now;
        }
      }
      submit(allowed, now);
      const std::size_t done = poll(measured);
      now = Clock::now();
      if (done > 0) {
        if (waited_ && (!slept_ || spin() == kSpinThatPays)) spinning_pays_ = !slept_;
        if (waited_) ++waits_;
        waited_ = slept_ = false;
        heard = now;
      } else {
        waited_ = true;
      }
      if (now - heard > kPatience && !idle()) return stuck();
      if (done == 0 && (options_.rate > 0 || now - heard > spin())) {
        auto longest = std::min<Clock::duration>(kLongestSleep, end - now);
        if (options_.rate > 0) longest = std::min<Clock::duration>(longest, next_burst - now);
        if (longest > 0ns) device_.wait(longest);
        slept_ = true;
        now = Clock::now();
        if (options_.rate == 0 && idle()) heard = now;
      }
    }
    measured.elapsed_s = std::chrono::duration<double>(Clock::now() - begin).count();
    measured.cpu_s = cpu_seconds() - cpu_before;
    return measured;
  }

  Result<void> finish() {
    Measured ignored;
    auto heard = Clock::now();
    while (!idle()) {
      if (poll(ignored) > 0) heard = Clock::now();
      if (Clock::now() - heard > kPatience) return stuck();
      if (!idle()) device_.wait(kLongestSleep);
    }
    return {};
  }

 private:
  bool idle() const noexcept { return free_.size() == depth_; }
  Clock::duration spin() const noexcept {
    if (options_.spin_us > 0)
      return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::micro>(options_.spin_us));
    if (depth_ - free_.size() <= kFew) return kSpinForFew;
    return spinning_pays_ || waits_ % kProbe == 0 ? kSpinThatPays : kSpin;
  }
  Error stuck() {
    new base::Arena(std::move(memory_));  // NOLINT: the device may still write to it
    return base::make_error(Code::kTimedOut, "{} answered nothing for {} s with {} requests in flight",
                            base::escape(device_.url()), std::chrono::seconds(kPatience).count(),
                            depth_ - free_.size());
  }

  void submit(std::size_t count, Clock::time_point now) {
    requests_.clear();
    const auto length = static_cast<std::uint32_t>(options_.size_bytes);
    for (; count > 0; --count) {
      const std::size_t slot = free_.back();
      free_.pop_back();
      const std::uint64_t place = options_.sequential ? next_place_++ % places_ : prng_.below(places_);
      started_[slot] = now;
      requests_.push_back({.op = options_.write ? block::Op::kWrite : block::Op::kRead,
                           .data = memory_.bytes().data() + slot * options_.size_bytes,
                           .length_bytes = length,
                           .offset_bytes = place * options_.size_bytes,
                           .user_data = slot});
    }
    if (requests_.empty()) return;
    const std::size_t taken = device_.submit(requests_);
    for (std::size_t i = requests_.size(); i-- > taken;) free_.push_back(requests_[i].user_data);
  }

  std::size_t poll(Measured& measured) {
    const std::size_t count = device_.poll(completions_);
    if (count == 0) return 0;
    const auto now = Clock::now();
    for (std::size_t i = 0; i < count; ++i) {
      const block::Completion& completion = completions_[i];
      const std::size_t slot = completion.user_data;
      free_.push_back(slot);
      measured.latency.add(static_cast<std::uint64_t>((now - started_[slot]).count()));
      if (completion.errno_value == 0) {
        ++measured.ios;
        measured.bytes += completion.length_bytes;
        continue;
      }
      ++measured.errors;
      if (!measured.first_error.empty()) continue;
      const block::Request request{.op = options_.write ? block::Op::kWrite : block::Op::kRead,
                                   .length_bytes = static_cast<std::uint32_t>(options_.size_bytes)};
      measured.first_error = block::completion_error(device_, request, completion).message;
    }
    return count;
  }

  block::BlockDevice& device_;
  const DeviceBench& options_;
  base::Arena memory_;
  std::uint64_t places_, next_place_ = 0;
  unsigned waits_ = 0;
  bool waited_ = false, slept_ = false, spinning_pays_ = false;
  std::size_t depth_ = 0;
  base::Prng prng_{20260101};
  std::vector<Clock::time_point> started_;
  std::vector<std::size_t> free_;
  std::vector<block::Request> requests_;
  std::vector<block::Completion> completions_;
};

// A write benchmark destroys what is there: it wants to be told so where anything is.
Result<void> guard_contents(block::BlockDevice& device, const DeviceBench& options) {
  if (!options.write || options.force) return {};
  const std::size_t length = std::min<std::uint64_t>(
      128u << 10, device.geometry().capacity_bytes / device.geometry().block_bytes * device.geometry().block_bytes);
  DLFS_TRY_ASSIGN(base::Arena memory, base::Arena::create(128u << 10, false));
  DLFS_TRY(block::read_all(device, 0, memory.bytes().first(length)));
  const auto bytes = memory.bytes().first(length);
  if (std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; })) return {};
  return base::make_error(Code::kExists, "{} holds data, which a write benchmark destroys; --force does it anyway",
                          base::escape(device.url()));
}

Result<void> check(const DeviceBench& options, const block::Geometry& geometry) {
  if (options.size_bytes == 0 || options.size_bytes % geometry.block_bytes != 0 ||
      options.size_bytes > geometry.capacity_bytes || options.size_bytes > (1ull << 30)) {
    return base::make_error(
        Code::kInvalidArgument,
        "--size must be a multiple of the device's blocks of {} bytes, at most its {} bytes and 1GiB",
        geometry.block_bytes, geometry.capacity_bytes);
  }
  if (options.size_bytes * options.depth > kMaxMemoryBytes) {
    return base::make_error(Code::kInvalidArgument, "--size times --depth needs {} of memory; at most {} are used",
                            size_text(static_cast<double>(options.size_bytes * options.depth)),
                            size_text(kMaxMemoryBytes));
  }
  return {};
}

Json json_of(const DeviceBench& options, const block::BlockDevice& device, const Measured& m, std::size_t depth) {
  const double ios = static_cast<double>(m.ios), bytes = static_cast<double>(m.bytes);
  return {{"url", device.url()},
          {"op", options.write ? "write" : "read"},
          {"access", options.sequential ? "sequential" : "random"},
          {"size_bytes", options.size_bytes},
          {"depth", depth},
          {"queues", options.queues},
          {"rate", options.rate},
          {"burst", options.burst},
          {"seconds", m.elapsed_s},
          {"ios", m.ios},
          {"errors", m.errors},
          {"first_error", m.first_error},
          {"late_bursts", m.late},
          {"iops", m.elapsed_s > 0 ? ios / m.elapsed_s : 0},
          {"bytes_per_s", m.elapsed_s > 0 ? bytes / m.elapsed_s : 0},
          {"p50_us", m.latency.percentile_ms(0.50) * 1e3},
          {"p95_us", m.latency.percentile_ms(0.95) * 1e3},
          {"p99_us", m.latency.percentile_ms(0.99) * 1e3},
          {"p999_us", m.latency.percentile_ms(0.999) * 1e3},
          {"max_us", m.latency.max_ms() * 1e3},
          {"cpu_s", m.cpu_s},
          {"cpu_cores", m.elapsed_s > 0 ? m.cpu_s / m.elapsed_s : 0},
          {"cpu_s_per_gb", bytes > 0 ? m.cpu_s / (bytes / 1e9) : 0},
          {"cpu_s_per_million_ios", ios > 0 ? m.cpu_s / (ios / 1e6) : 0},
          {"engine", device.engine()},
          {"notes", device.notes()}};
}

void write_text(Output& out, const Json& json) {
  const auto number = [&](const char* key) { return json[key].get<double>(); };
  out.line(fmt::format("{} {} of {} at depth {}, {} for {}, {}", json["access"].get<std::string>(),
                       json["op"].get<std::string>() + "s", size_text(number("size_bytes")),
                       json["depth"].get<std::size_t>(), base::escape(json["url"].get<std::string>()),
                       duration_text(number("seconds")), json["engine"].get<std::string>()));
  out.line(fmt::format("rate       {} I/Os a second, {:.1f} MB/s",
                       count_text(static_cast<std::uint64_t>(number("iops"))), number("bytes_per_s") / 1e6));
  out.line(fmt::format("latency    p50 {:.1f} us, p95 {:.1f}, p99 {:.1f}, p99.9 {:.1f}, at most {:.1f}",
                       number("p50_us"), number("p95_us"), number("p99_us"), number("p999_us"), number("max_us")));
  out.line(fmt::format("processor  {:.3f} s for a GB, {:.3f} s for a million I/Os, {:.2f} cores",
                       number("cpu_s_per_gb"), number("cpu_s_per_million_ios"), number("cpu_cores")));
  if (number("errors") > 0)
    out.line(fmt::format("errors     {}; the first: {}", count_text(json["errors"].get<std::uint64_t>()),
                         json["first_error"].get<std::string>()));
  if (const auto notes = json["notes"].get<std::string>(); !notes.empty()) out.line("notes      " + notes);
}

// Queues of an NVMe/TCP device are part of its URL.
Result<std::string> url_with_queues(const DeviceBench& options) {
  if (options.queues <= 1) return options.url;
  DLFS_TRY_ASSIGN(const block::Url url, block::parse_url(options.url));
  if (url.scheme != block::Scheme::kNvmeTcp) {
    return base::make_error(Code::kInvalidArgument, "--queues is for nvme-tcp: devices; {} has no queues to choose",
                            base::escape(options.url));
  }
  return fmt::format("{}{}queues={}", options.url, options.url.find('?') == std::string::npos ? '?' : '&',
                     options.queues);
}

Result<int> run(const DeviceBench& options, bool json) {
  DLFS_TRY_ASSIGN(const std::string url, url_with_queues(options));
  DLFS_TRY_ASSIGN(const auto device, block::open_device(url, {.write = options.write, .queue_depth = options.depth}));
  catch_interrupts();  // until here a signal ends it at once: there is nothing to clean up
  DLFS_TRY(check(options, device->geometry()));
  DLFS_TRY(guard_contents(*device, options));
  DLFS_TRY_ASSIGN(base::Arena memory, base::Arena::create(options.size_bytes * options.depth));
  base::Prng prng(1);
  for (std::size_t i = 0; i + 8 <= memory.bytes().size(); i += 4096)
    memory.bytes()[i] = static_cast<std::byte>(prng.next());  // warm
  Load load(*device, options, std::move(memory));
  if (options.warmup_s > 0) {
    auto warm = load.run(options.warmup_s);
    if (!warm.ok()) return std::move(warm).error();
  }
  DLFS_TRY_ASSIGN(const Measured measured, load.run(options.seconds));
  DLFS_TRY(load.finish());
  const Json report = json_of(options, *device, measured, load.depth());
  Output out;
  if (json) {
    out.line(dump(report));
  } else {
    write_text(out, report);
  }
  DLFS_TRY(out.finish());
  if (interrupted() != 0) return exit_by_signal(interrupted());
  return measured.errors > 0 ? kExitFailed : kExitOk;
}

void add_number(CLI::App& command, const char* name, double& value, double least, const char* description,
                const std::string& type) {
  auto parse = [&value, name, least](const std::string& text) {
    const auto given = text == "0" ? std::optional(0.0) : parse_seconds(text, 1e9);
    if (!given || *given < least)
      throw CLI::ValidationError(name, fmt::format("'{}' is not a number from {} on", base::escape(text), least));
    value = *given;
  };
  command.add_option_function<std::string>(name, parse, description)
      ->type_name(type)
      ->default_str(fmt::format("{}", value));
}

}  // namespace

void add_bench_device(CLI::App& app, Request& request) {
  auto options = std::make_shared<DeviceBench>();
  CLI::App* command =
      add_command(app, request, "bench-device", "Measure a bare device of any kind; also written `dlfs bench device`",
                  "dlfs bench device nvme-tcp://10.1.0.7/nqn.2026-01.io.example:stor1 --size 4KiB --depth 128");
  command->add_option("URL", options->url, "The device: a file, a block device, nvme-tcp://..., mem:..., null:...")
      ->required()
      ->type_name("");
  auto op = [options](const std::string& text) {
    if (text != "read" && text != "write")
      throw CLI::ValidationError("--op", fmt::format("'{}' is none of read, write", base::escape(text)));
    options->write = text == "write";
  };
  command->add_option_function<std::string>("--op", op, "What to do; write destroys what is there")
      ->type_name("read|write")
      ->default_str("read");
  add_size(*command, "--size", options->size_bytes, "Bytes of one I/O");
  add_count(*command, "--depth", "I/Os in flight", 1, kMaxDepth, [options](std::uint64_t n) {
    options->depth = static_cast<std::uint32_t>(n);
  })->default_str("128");
  add_count(*command, "--queues", "I/O queues of an nvme-tcp: device", 1, 64, [options](std::uint64_t n) {
    options->queues = static_cast<std::uint32_t>(n);
  })->default_str("1");
  add_number(*command, "--seconds", options->seconds, 0.01, "How long to measure", "S");
  add_number(*command, "--warmup", options->warmup_s, 0, "How long to run before measuring", "S");
  command->add_flag("--sequential", options->sequential, "One I/O after the other, instead of random places");
  add_number(*command, "--rate", options->rate, 0, "I/Os a second, in bursts, instead of as many as there can be", "N");
  add_count(*command, "--burst", "I/Os of a burst, with --rate", 1, kMaxDepth, [options](std::uint64_t n) {
    options->burst = static_cast<std::uint32_t>(n);
  })->default_str("16");
  add_number(*command, "--spin", options->spin_us, 0,
             "Microseconds to poll before sleeping; 0: 5, 20 where that pays, 50 while few I/Os are in flight", "US");
  command->add_flag("--force", options->force, "Write even where data are");
  command->callback([options, &request] { request.run = [options, &request] { return run(*options, request.json); }; });
}

}  // namespace dlfs::tools
