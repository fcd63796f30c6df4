// dlfs bench: how fast batches come, what that costs, and what the bare device gives.
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <thread>

#include "advise.h"
#include "base/error.h"
#include "base/try.h"
#include "block/raw_rate.h"
#include "command.h"
#include "latency.h"
#include "output.h"
#include "progress.h"
#include "signals.h"
#include "units.h"

namespace dlfs::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMaxSeconds = 1e6;  // its milliseconds fit in an int

struct BenchOptions {
  std::string url;
  SequenceOptions sequence;
  double seconds = 0;
  bool copy = false, no_raw = false, no_direct = false, advise = false;
};

struct Measured {
  double elapsed_s = 0, cpu_s = 0;
  std::uint64_t samples = 0, bytes = 0, distinct = 0;
  Latency latency;
  SequenceStatistics statistics;
  std::string notes;
  block::RawRate raw;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Takes what a batch gives: counts it, and copies it together when asked, as a loader that stacks samples would.
class Consumer {
 public:
  Consumer(const Volume& volume, bool copy)
      : fields_(volume.schema().fields.size()), copy_(copy), seen_(volume.size()) {}

  void take(const Batch& batch, Measured& measured) {
    for (const std::uint32_t id : batch.ids()) {
      if (seen_[id]) continue;
      seen_[id] = true;
      ++measured.distinct;
    }
    measured.samples += batch.size();
    for (std::size_t field = 0; field < fields_; ++field)
      measured.bytes += copy_ ? gather(batch, field) : batch.gather(field, {});
  }

 private:
  std::uint64_t gather(const Batch& batch, std::size_t field) {
    const std::uint64_t bytes = batch.gather(field, buffer_);
    if (bytes <= buffer_.size()) return bytes;
    buffer_.resize(bytes);
    return batch.gather(field, buffer_);
  }
  std::size_t fields_;
  bool copy_;
  std::vector<bool> seen_;
  std::vector<std::byte> buffer_;
};

Result<void> draw(const Volume& volume, const BenchOptions& options, Measured& measured, Progress& progress) {
  Consumer consumer(volume, options.copy);
  SequenceOptions sequence_options = options.sequence;
  if (options.seconds > 0) sequence_options.epochs = 0;
  const double cpu_before = cpu_seconds();
  const auto start = Clock::now();
  DLFS_TRY_ASSIGN(Sequence sequence, volume.sequence(sequence_options));
  while (options.seconds <= 0 || seconds_since(start) < options.seconds) {
    const auto asked = Clock::now();
    DLFS_TRY_ASSIGN(const std::optional<Batch> batch, sequence.next());
    if (!batch) break;
    measured.latency.add(static_cast<std::uint64_t>((Clock::now() - asked).count()));
    consumer.take(*batch, measured);
    progress.update(measured.bytes, 0, measured.samples, 0);
    if (interrupted() != 0) return interrupted_error("interrupted: nothing was measured");
  }
  measured.elapsed_s = seconds_since(start);
  measured.cpu_s = cpu_seconds() - cpu_before;
  measured.statistics = sequence.statistics();
  measured.notes = sequence.notes();
  return {};
}

// The bare device, for random reads of as many bytes, in requests as long as the reader's were on average.
Result<void> measure_raw(const Volume& volume, const BenchOptions& options, Measured& measured) {
  const SequenceStatistics& from = measured.statistics;
  block::RawRateOptions raw;
  const std::uint64_t mean = from.device_requests == 0 ? 4096 : from.device_bytes / from.device_requests;
  raw.request_bytes =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>((mean + 4095) / 4096 * 4096, 4096, 16u << 20));
  raw.depth = std::max(options.sequence.depth, 1u);
  raw.total_bytes = std::max<std::uint64_t>(from.device_bytes, raw.request_bytes);
  raw.duration = std::chrono::milliseconds(options.seconds > 0 ? static_cast<int>(options.seconds * 1000) : 5000);
  raw.direct = !options.no_direct;
  raw.span_bytes = volume.info().device_bytes;
  if (raw.span_bytes < raw.request_bytes) raw.request_bytes = 4096;
  DLFS_TRY_ASSIGN(measured.raw, block::measure_random_reads(options.url, raw));
  return {};
}

double ratio(double a, double b) { return b == 0 ? 0 : a / b; }
double per_s(std::uint64_t count, double seconds) { return ratio(static_cast<double>(count), seconds); }

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "unknown";
}

Json environment(const VolumeInfo& info) {
  utsname system{};
  uname(&system);
  return {{"dlfs", version()},          {"kernel", system.release},
          {"cpu", cpu_model()},         {"cores", std::thread::hardware_concurrency()},
          {"volume", info.url},         {"engine", info.engine},
          {"page_kind", info.page_kind}};
}

Json json_of(const Percentiles& p) {
  return {{"p50_us", p.p50_us}, {"p95_us", p.p95_us}, {"p99_us", p.p99_us}, {"total_s", p.total_s}};
}

Json json_of(const Measured& m, const BenchOptions& options, const VolumeInfo& info) {
  static constexpr const char* kModes[] = {"sequential", "full", "chunk"};
  const SequenceStatistics& s = m.statistics;
  Json json = {{"mode", kModes[static_cast<int>(options.sequence.mode)]},
               {"batch", options.sequence.batch},
               {"cache_bytes", s.memory_limit_bytes},
               {"rank", options.sequence.rank},
               {"ranks", options.sequence.ranks},
               {"copy", options.copy},
               {"direct", !options.no_direct},
               {"elapsed_s", m.elapsed_s},
               {"samples", m.samples},
               {"distinct_samples", m.distinct},
               {"batches", s.batches},
               {"samples_per_s", per_s(m.samples, m.elapsed_s)},
               {"bytes_per_s", per_s(m.bytes, m.elapsed_s)},
               {"batch_p50_ms", m.latency.percentile_ms(0.5)},
               {"batch_p99_ms", m.latency.percentile_ms(0.99)},
               {"cpu_s", m.cpu_s},
               {"cpu_s_per_million_samples", ratio(m.cpu_s * 1e6, static_cast<double>(m.samples))},
               {"poller_cpu_s", s.poller_cpu_s}};
  if (!options.no_raw) {
    json["raw_bytes_per_s"] = m.raw.bytes_per_s;
    json["raw_requests_per_s"] = m.raw.requests_per_s;
    json["raw_request_bytes"] = m.raw.requests == 0 ? 0 : m.raw.bytes / m.raw.requests;
    json["raw_bytes"] = m.raw.bytes;
    json["raw_cpu_s"] = m.raw.cpu_seconds;
  }
  json["payload_bytes"] = s.payload_bytes;
  json["device_bytes"] = s.device_bytes;
  json["device_requests"] = s.device_requests;
  json["amplification"] = s.amplification;
  json["cache_hits"] = s.cache_hits;
  json["skipped"] = s.skipped;
  json["memory_bytes"] = s.memory_bytes;
  json["memory_peak_bytes"] = s.memory_peak_bytes;
  json["wait"] = json_of(s.wait);
  json["device"] = json_of(s.device);
  json["queue"] = json_of(s.queue);
  json["verify"] = json_of(s.verify);
  json["copy_time"] = json_of(s.copy);
  json["notes"] = m.notes;
  json["environment"] = environment(info);
  return json;
}

void write_split(Output& out, const SequenceStatistics& s) {
  out.line(fmt::format("{:<14} {:>10} {:>10} {:>10} {:>10}", "", "p50 us", "p95 us", "p99 us", "total s"));
  auto line = [&](const char* what, const Percentiles& p) {
    out.line(
        fmt::format("{:<14} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.3f}", what, p.p50_us, p.p95_us, p.p99_us, p.total_s));
  };
  line("wait a batch", s.wait);
  line("  device", s.device);
  line("  queue", s.queue);
  line("  verification", s.verify);
  line("  copy", s.copy);
}

void write_text(Output& out, const Measured& m, const BenchOptions& options, const VolumeInfo& info) {
  const Json where = environment(info);
  const SequenceStatistics& s = m.statistics;
  out.line(fmt::format("{} {}, kernel {}, {} ({} cores), {}, {}", "dlfs", version(), where["kernel"].get<std::string>(),
                       where["cpu"].get<std::string>(), where["cores"].get<unsigned>(), info.engine,
                       options.no_direct ? "through the page cache" : "past the page cache where possible"));
  out.line(fmt::format("samples        {} ({} distinct) in {} batches, {}", count_text(m.samples),
                       count_text(m.distinct), count_text(s.batches), duration_text(m.elapsed_s)));
  out.line(fmt::format("rate           {:.0f} samples/s, {}/s", per_s(m.samples, m.elapsed_s),
                       size_text(per_s(m.bytes, m.elapsed_s))));
  if (!options.no_raw) {
    const std::uint64_t request_bytes = m.raw.requests == 0 ? 0 : m.raw.bytes / m.raw.requests;
    out.line(fmt::format("raw device     {}/s, random reads of {}, {} in all", size_text(m.raw.bytes_per_s),
                         size_text(static_cast<double>(request_bytes)), size_text(static_cast<double>(m.raw.bytes))));
  }
  out.line(fmt::format("batch          p50 {:.4f} ms, p99 {:.4f} ms", m.latency.percentile_ms(0.5),
                       m.latency.percentile_ms(0.99)));
  out.line(fmt::format("processor      {:.3f} s for a million samples ({:.2f} s in all, {:.2f} s in the poller)",
                       ratio(m.cpu_s * 1e6, static_cast<double>(m.samples)), m.cpu_s, s.poller_cpu_s));
  out.line(fmt::format("device         {} in {} requests, amplification {:.3f}",
                       size_text(static_cast<double>(s.device_bytes)), count_text(s.device_requests), s.amplification));
  out.line(fmt::format("memory         {}, at most {}; {} cache hits", size_text(static_cast<double>(s.memory_bytes)),
                       size_text(static_cast<double>(s.memory_peak_bytes)), count_text(s.cache_hits)));
  write_split(out, s);
  if (!m.notes.empty()) out.line("notes          " + m.notes);
}

Json json_of(const Advice& advice) {
  Json depths = Json::array();
  for (const DepthRate& each : advice.depths)
    depths.push_back({{"depth", each.depth}, {"bytes_per_s", each.bytes_per_s}});
  return {{"depth", advice.depth},
          {"cache_bytes", advice.cache_bytes},
          {"window", advice.window},
          {"reasons",
           {{"depth", advice.depth_reason}, {"cache_bytes", advice.cache_reason}, {"window", advice.window_reason}}},
          {"request_bytes", advice.request_bytes},
          {"depths", depths},
          {"default_samples_per_s", advice.default_samples_per_s},
          {"advised_samples_per_s", advice.advised_samples_per_s}};
}

void write_advice(Output& out, const Advice& advice, const BenchOptions& options) {
  out.line(fmt::format("--depth {:<10} {}", advice.depth, advice.depth_reason));
  out.line(fmt::format("--cache {:<10} {}", fmt::format("{}MiB", advice.cache_bytes >> 20), advice.cache_reason));
  out.line(fmt::format("--window {:<9} {}", advice.window, advice.window_reason));
  out.line(fmt::format("measured           {:.0f} samples/s with these, {:.0f} with what was given or the defaults",
                       advice.advised_samples_per_s, advice.default_samples_per_s));
  static constexpr const char* kModes[] = {"sequential", "full", "chunk"};
  out.line(
      fmt::format("in Python          volume.batches({}, shuffle=\"{}\", depth={}, cache_bytes={} << 20, window={})",
                  options.sequence.batch, kModes[static_cast<int>(options.sequence.mode)], advice.depth,
                  advice.cache_bytes >> 20, advice.window));
}

Result<int> run_advise(const Volume& volume, const BenchOptions& options, bool json) {
  constexpr double kSliceSeconds = 1.5;
  Progress progress("measuring", json);
  const auto keep_on = [&](const char* what) {
    if (!json) progress.note(fmt::format("measuring {}", what));
    return interrupted() == 0;
  };
  DLFS_TRY_ASSIGN(const Advice advice, advise(volume, options.sequence, !options.no_direct,
                                              options.seconds > 0 ? options.seconds : kSliceSeconds, keep_on));
  progress.clear();
  Output out;
  if (json) {
    out.line(dump(json_of(advice)));
  } else {
    write_advice(out, advice, options);
  }
  DLFS_TRY(out.finish());
  return kExitOk;
}

Result<int> run(const BenchOptions& options, bool json) {
  MountOptions mount;
  mount.direct = !options.no_direct;
  DLFS_TRY_ASSIGN(const Volume volume, Volume::mount(options.url, mount));
  catch_interrupts();  // until here a signal ends it at once: there is nothing to clean up
  if (options.advise) return run_advise(volume, options, json);
  Measured measured;
  {
    Progress progress("reading", json);
    DLFS_TRY(draw(volume, options, measured, progress));
  }
  if (!options.no_raw) DLFS_TRY(measure_raw(volume, options, measured));
  if (interrupted() != 0) return interrupted_error("interrupted: nothing was measured");
  Output out;
  if (json) {
    out.line(dump(json_of(measured, options, volume.info())));
  } else {
    write_text(out, measured, options, volume.info());
  }
  DLFS_TRY(out.finish());
  return kExitOk;
}

}  // namespace

void add_bench(CLI::App& app, Request& request) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      add_command(app, request, "bench",
                  "Measure how fast batches are read, beside the bare device (`dlfs bench device` measures that alone)",
                  "dlfs bench train.dlfs --mode chunk --batch 256 --cache 64MiB --epochs 2");
  add_volume(*command, options->url);
  add_order_options(*command, options->sequence);
  add_size(*command, "--cache", options->sequence.cache_bytes, "Memory for samples")
      ->default_str("256MiB, or more if batches need it");
  add_count(*command, "--epochs", options->sequence.epochs, "Epochs to read", 1);
  auto seconds = [&value = options->seconds](const std::string& text) {
    const auto given = parse_seconds(text, kMaxSeconds);
    if (!given) {
      throw CLI::ValidationError(
          "--seconds", fmt::format("'{}' is not a number above 0 and at most {:.0f}", base::escape(text), kMaxSeconds));
    }
    value = *given;
  };
  command
      ->add_option_function<std::string>("--seconds", seconds,
                                         "Read for so long, over as many epochs as that takes, instead of --epochs")
      ->type_name("S");
  add_count(*command, "--depth", options->sequence.depth, "Requests in flight", 1);
  command->add_flag("--copy", options->copy, "Copy every batch together, as a loader that stacks samples does");
  command->add_flag("--no-raw", options->no_raw, "Do not measure the bare device");
  command->add_flag("--no-direct", options->no_direct, "Read through the page cache");
  command->add_flag_function(
      "--no-verify", [options](std::int64_t) { options->sequence.verify = false; },
      "Leave checksums unchecked, to see what they cost");
  command->add_flag(
      "--advise", options->advise,
      "Measure the device and the reader for half a minute (eleven times --seconds, and an epoch), and print good "
      "values of --depth, --cache and --window for this volume, with the reasons");
  command->callback([options, &request] { request.run = [options, &request] { return run(*options, request.json); }; });
}

}  // namespace dlfs::tools
