#include <algorithm>
#include <limits>

#include "api/impl.h"
#include "base/error.h"

namespace dlfs {

namespace api {

static_assert(static_cast<int>(Mode::kChunk) == static_cast<int>(order::Mode::kChunk));
static_assert(static_cast<int>(Mode::kFull) == static_cast<int>(order::Mode::kFull));
static_assert(static_cast<int>(Tail::kShort) == static_cast<int>(order::Tail::kShort));
static_assert(static_cast<int>(Tail::kPad) == static_cast<int>(order::Tail::kPad));
static_assert(static_cast<int>(OnError::kSkip) == static_cast<int>(reader::OnError::kSkip));

order::Parameters parameters_of(const SequenceOptions& options) {
  order::Parameters p;
  p.mode = static_cast<order::Mode>(options.mode);
  p.tail = static_cast<order::Tail>(options.tail);
  p.seed = options.seed;
  p.epoch = options.epoch;
  p.batch = options.batch;
  p.rank = options.rank;
  p.ranks = options.ranks;
  p.lanes = options.lanes;
  p.window = options.window;
  return p;
}

namespace {

class DirectoryPlacement final : public order::Placement {
 public:
  explicit DirectoryPlacement(std::shared_ptr<const volume::Volume> volume) : volume_(std::move(volume)) {}
  std::uint64_t sample_count() const noexcept override { return volume_->directory().sample_count(); }
  std::uint64_t unit_count() const noexcept override { return volume_->directory().unit_count(); }
  std::uint64_t first_slot(std::uint64_t unit) const noexcept override { return volume_->directory().first_slot(unit); }

 private:
  std::shared_ptr<const volume::Volume> volume_;
};

reader::Options reader_options(const SequenceOptions& options) {
  reader::Options native;
  native.order = parameters_of(options);
  native.start_batch = options.start_batch;
  native.cache_bytes = options.cache_bytes;
  native.depth = options.depth;
  native.prefetch_batches = options.prefetch_batches;
  native.on_error = static_cast<reader::OnError>(options.on_error);
  native.verify = options.verify;
  native.epochs = options.epochs;
  return native;
}

// How many epochs a resumed walk has left, counting the one that it resumes in: it ends where the interrupted one would
// have, and an epoch that is under way is finished in any case. None: the position is at the end. Zero in `options`:
// endless.
std::optional<std::uint64_t> epochs_left(const SequenceOptions& options, const order::Position& position) {
  if (options.epochs == 0) return 0;
  const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - options.epoch;
  const std::uint64_t end = options.epoch + std::min(options.epochs, room);
  if (position.parameters.epoch < end) return end - position.parameters.epoch;
  if (position.next_batch > 0) return 1;
  return std::nullopt;
}

Percentiles convert(const reader::Percentiles& p) { return {p.p50_us, p.p95_us, p.p99_us, p.total_s}; }

}  // namespace

std::shared_ptr<const order::Placement> placement_of(std::shared_ptr<const volume::Volume> volume) {
  return std::make_shared<const DirectoryPlacement>(std::move(volume));
}

}  // namespace api

Sequence::Sequence(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;

Result<Sequence> Volume::sequence(const SequenceOptions& options) const {
  DLFS_TRY_ASSIGN(auto reader, reader::Reader::open(impl_->volume, api::reader_options(options)));
  return Sequence(std::make_unique<Sequence::Impl>(Sequence::Impl{std::move(reader)}));
}

Result<Sequence> Volume::resume(std::span<const std::byte> state, SequenceOptions options) const {
  DLFS_TRY_ASSIGN(const order::Position position, order::decode_position(state));
  const volume::Volume& volume = *impl_->volume;
  if (position.volume != volume.fingerprint()) {
    return base::make_error(
        Code::kInvalidArgument,
        "this state was taken on another volume, or before {} was packed anew: its order cannot be continued here",
        volume.url());
  }
  const std::optional<std::uint64_t> left = api::epochs_left(options, position);
  const order::Parameters& from = position.parameters;
  options.mode = static_cast<Mode>(from.mode);
  options.tail = static_cast<Tail>(from.tail);
  options.seed = from.seed;
  options.epoch = from.epoch;
  options.batch = from.batch;
  options.lanes = from.lanes;
  options.window = from.window;
  options.start_batch = position.next_batch;
  options.epochs = left.value_or(1);
  if (!left) {  // open it at the very end of its epoch: the reader then has nothing to deliver
    DLFS_TRY_ASSIGN(const auto epoch,
                    order::Epoch::create(api::parameters_of(options), volume.size(), api::placement_of(impl_->volume)));
    options.start_batch = epoch->batches();
  }
  return sequence(options);
}

Result<void> Volume::order(const SequenceOptions& options,
                           const std::function<bool(std::uint64_t, std::span<const std::uint32_t>)>& visit) const {
  const directory::Directory& directory = impl_->volume->directory();
  DLFS_TRY_ASSIGN(auto epoch,
                  order::Epoch::create(api::parameters_of(options), size(), api::placement_of(impl_->volume)));
  if (options.start_batch > epoch->batches()) {
    return base::make_error(Code::kInvalidArgument, "start_batch {} is behind the epoch's end: it has {} batches",
                            options.start_batch, epoch->batches());
  }
  const bool by_slot = options.mode == Mode::kChunk;
  order::Cursor cursor(std::move(epoch));
  cursor.seek(options.start_batch);
  std::vector<order::Draw> draws;
  std::vector<std::uint32_t> ids;
  for (std::uint64_t batch = options.start_batch; cursor.next(draws); ++batch) {
    ids.clear();
    for (const order::Draw& draw : draws) {
      const auto index = static_cast<std::uint32_t>(draw.index);
      ids.push_back(by_slot ? directory.id_of(Slot{index}).value : index);
    }
    if (!visit(batch, ids)) break;
  }
  return {};
}

Result<std::optional<Batch>> Sequence::next(std::chrono::milliseconds timeout) {
  DLFS_TRY_ASSIGN(auto batch, impl_->reader->next(timeout));
  if (!batch) return std::optional<Batch>();
  return std::optional<Batch>(Batch(std::make_unique<Batch::Impl>(Batch::Impl{std::move(batch)})));
}

std::uint64_t Sequence::batches_per_epoch() const noexcept { return impl_->reader->batches_per_epoch(); }

std::vector<std::byte> Sequence::state() const {
  const auto bytes = order::encode(impl_->reader->position());
  return {bytes.begin(), bytes.end()};
}

std::uint64_t Sequence::epoch() const noexcept { return impl_->reader->position().parameters.epoch; }

std::uint64_t Sequence::next_batch() const noexcept { return impl_->reader->position().next_batch; }

std::uint32_t Sequence::batch() const noexcept { return impl_->reader->position().parameters.batch; }

SequenceStatistics Sequence::statistics() const {
  const reader::Statistics from = impl_->reader->statistics();
  SequenceStatistics to;
  to.samples = from.samples;
  to.batches = from.batches;
  to.payload_bytes = from.payload_bytes;
  to.device_bytes = from.device_bytes;
  to.device_requests = from.device_requests;
  to.cache_hits = from.cache_hits;
  to.skipped = from.skipped;
  to.memory_bytes = from.memory_bytes;
  to.memory_limit_bytes = from.memory_limit_bytes;
  to.memory_peak_bytes = from.memory_peak_bytes;
  to.amplification = from.amplification();
  to.poller_cpu_s = from.poller_cpu_s;
  to.wait = api::convert(from.wait);
  to.device = api::convert(from.device);
  to.queue = api::convert(from.queue);
  to.verify = api::convert(from.verify);
  to.copy = api::convert(from.copy);
  return to;
}

std::string Sequence::notes() const { return impl_->reader->notes(); }

}  // namespace dlfs
