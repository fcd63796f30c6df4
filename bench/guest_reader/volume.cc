// A DLFS volume, read as a training job reads it.
#include <fmt/format.h>

#include "readers.h"
#include "sample.h"

namespace dlfs::guest {
namespace {

Result<void> read_epoch(const Volume& volume, const SequenceOptions& options, Seen& seen, Outcome& outcome) {
  auto sequence = volume.sequence(options);
  if (!sequence.ok()) return sequence.error();
  for (;;) {
    const auto batch = sequence->next();
    if (!batch.ok()) return batch.error();
    if (!batch.value()) break;
    const Batch& samples = *batch.value();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (!seen.take(samples.field(i, 0)))
        return Error{Code::kCorrupt,
                     fmt::format("sample {} of {} has other bytes", samples.ids()[i], volume.info().url)};
    }
    outcome.samples += samples.size();
  }
  const SequenceStatistics statistics = sequence->statistics();
  outcome.device_bytes += statistics.device_bytes;
  outcome.device_requests += statistics.device_requests;
  ++outcome.epochs;
  return {};
}

}  // namespace

Result<Outcome> read_volume(const Options& options, Mode mode) {
  Outcome outcome;
  const Meter opening;
  const auto volume = Volume::mount(options.where);
  if (!volume.ok()) return volume.error();
  outcome.open_s = opening.elapsed_s();
  Seen seen(options.count, options.bytes);
  const Meter meter;
  do {
    const SequenceOptions epoch{.mode = mode,
                                .seed = options.seed,
                                .epoch = outcome.epochs,
                                .cache_bytes = options.cache << 20,
                                .verify = options.verify};
    if (const auto read = read_epoch(*volume, epoch, seen, outcome); !read.ok()) return read.error();
  } while (meter.elapsed_s() < options.seconds);
  meter.stop(outcome);
  outcome.distinct = seen.distinct();
  if (!seen.each_came(static_cast<std::uint32_t>(outcome.epochs)))
    return Error{Code::kCorrupt, fmt::format("the epochs of {} did not hold each sample once", options.where)};
  return outcome;
}

}  // namespace dlfs::guest
