#include "sim/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "order/order.h"
#include "reader/placement.h"
#include "reader/reader.h"
#include "volume/verify.h"

namespace dlfs::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kEpoch_ns = 300 * kSecond;  // an epoch in a world that is well, its consumers' pauses left out
constexpr auto kLongWait = 600s;
constexpr std::uint64_t kEnoughBytes = 32u << 20;  // for any batch

// The shares of one rank, from the order alone.
Result<std::vector<std::vector<std::uint32_t>>> expected_batches(const std::shared_ptr<const volume::Volume>& volume,
                                                                 const order::Parameters& parameters) {
  auto epoch = order::Epoch::create(parameters, volume->size(), std::make_shared<reader::VolumePlacement>(volume));
  if (!epoch.ok()) return std::move(epoch).error();
  order::Cursor cursor(*epoch);
  std::vector<std::vector<std::uint32_t>> batches;
  std::vector<order::Draw> draws;
  while (cursor.next(draws)) {
    auto& ids = batches.emplace_back();
    for (const order::Draw& draw : draws) {
      const auto index = static_cast<std::uint32_t>(draw.index);
      ids.push_back(parameters.mode == order::Mode::kChunk ? volume->directory().id_of(Slot{index}).value : index);
    }
  }
  return batches;
}

// One rank: its reader, what it must deliver, and the batches that its job still holds.
struct Rank {
  reader::Options options;
  std::vector<std::vector<std::uint32_t>> expected;
  std::size_t next = 0;

  bool ended = false;
  std::uint64_t opened_at_ns = 0;
  std::unique_ptr<reader::Reader> reader;
  std::deque<std::unique_ptr<reader::Batch>> held;
};

class Reading {
 public:
  explicit Reading(Stage& stage) : stage_(stage), world_(stage.world) {}

  Check play() {
    auto mounted = stage_.mount();
    if (!mounted.ok()) return "a mount without faults failed: " + mounted.error().message;
    volume_ = *mounted;
    const std::uint64_t epochs = world_.between(1, 2);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      if (const Check wrong = read_epoch(epoch)) return wrong;
    }
    if (const Check wrong = verify()) return wrong;
    return world_.chance(0.1) ? outgrow() : Check();
  }

 private:
  // ---- an epoch ----

  Check read_epoch(std::uint64_t epoch) {
    if (const Check wrong = draw_ranks(epoch)) return wrong;
    began_ns_ = world_.now_ns();
    paused_ns_ = 0;
    stage_.begin_faults();
    stage_.heal_later(world_.one_of({kSecond, 30 * kSecond, 120 * kSecond}));
    while (!ranks_.empty()) {
      const std::size_t i = world_.prng.below(ranks_.size());
      if (const Check wrong = step(ranks_[i])) return wrong;
      if (ranks_[i].ended) ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(i));
      if (const Check wrong = overdue()) return wrong;
      if (world_.chance(0.05)) {
        if (const Check wrong = look_up()) return wrong;
      }
    }
    stage_.heal();
    return {};
  }

  Check draw_ranks(std::uint64_t epoch) {
    reader::Options options;
    options.threaded = false;
    options.order.epoch = epoch;
    options.order.mode = static_cast<order::Mode>(world_.prng.below(3));
    options.order.tail = static_cast<order::Tail>(world_.prng.below(3));
    options.order.seed = world_.prng.next();
    options.order.ranks = static_cast<std::uint32_t>(world_.one_of({1, 1, 2, 3}));
    options.order.batch = options.order.ranks * static_cast<std::uint32_t>(world_.between(1, 24));
    options.order.lanes = options.order.ranks * static_cast<std::uint32_t>(world_.between(1, 8));
    options.order.window = static_cast<std::uint32_t>(world_.between(1, 3));
    options.cache_bytes = world_.chance(0.4) ? world_.between(256, 1500) << 10 : world_.between(4, 16) << 20;
    options.depth = stage_.depth();
    options.on_error = world_.chance(0.3) ? reader::OnError::kSkip : reader::OnError::kRaise;
    options.prefetch_batches = world_.chance(0.3) ? static_cast<std::uint32_t>(world_.between(1, 4)) : 0;
    options.verify = stage_.plant != Plant::kUnverified;
    ranks_.clear();
    for (std::uint32_t rank = 0; rank < options.order.ranks; ++rank) {
      options.order.rank = rank;
      auto expected = expected_batches(volume_, options.order);
      if (!expected.ok()) {  // too few samples for so many ranks, or for one whole batch
        if (expected.error().code != Code::kInvalidArgument) return "no order: " + expected.error().message;
        ranks_.clear();
        return {};
      }
      Rank& made = ranks_.emplace_back();
      made.options = options;
      made.expected = std::move(*expected);
    }
    return check_shares(options.order);
  }

  // All ranks together draw every sample once (but what the tail leaves out or repeats).
  Check check_shares(const order::Parameters& parameters) const {
    std::vector<int> drawn(stage_.data.size());
    for (const Rank& rank : ranks_) {
      for (const auto& batch : rank.expected) {
        for (const std::uint32_t id : batch) ++drawn.at(id);
      }
    }
    for (const int count : drawn) {
      const bool fits = parameters.tail == order::Tail::kDrop  ? count <= 1
                        : parameters.tail == order::Tail::kPad ? count >= 1
                                                               : count == 1;
      if (!fits) return std::string("the ranks' shares do not add up to the data set");
    }
    return {};
  }

  Check step(Rank& rank) {
    if (rank.reader == nullptr) return open(rank);
    const bool hasty = world_.chance(0.1);
    const auto patience = hasty ? std::chrono::milliseconds(world_.between(0, 300)) : kLongWait;
    const std::uint64_t before_ns = world_.now_ns();
    auto batch = rank.reader->next(patience);
    const std::uint64_t took_ns = world_.now_ns() - before_ns;
    if (took_ns > static_cast<std::uint64_t>(patience.count()) * kMs + kMs)
      return fmt::format("next({} ms) took {} ms", patience.count(), took_ns / kMs);
    if (!batch.ok()) return on_error(rank, batch.error());
    if (*batch == nullptr) return end(rank);
    if (const Check wrong = inspect(rank, **batch)) return wrong;
    rank.held.push_back(std::move(*batch));
    const std::size_t keep = world_.prng.below(4);
    while (rank.held.size() > keep) {
      if (const Check wrong = give_back(rank)) return wrong;
    }
    think();
    return {};
  }

  Check open(Rank& rank) {
    rank.options.start_batch = rank.next;
    auto opened = reader::Reader::open(volume_, rank.options);
    if (opened.ok()) {
      rank.opened_at_ns = world_.now_ns();
      rank.reader = std::move(*opened);
      if (rank.reader->batches_per_epoch() != rank.expected.size())
        return fmt::format("{} batches an epoch, not {}", rank.reader->batches_per_epoch(), rank.expected.size());
      return {};
    }
    if (opened.error().code == Code::kOutOfMemory) return give_memory(rank, opened.error());
    return excuse(opened.error());
  }

  // For a batch that is larger than all of it.
  Check give_memory(Rank& rank, const Error& error) {
    world_.mark("more memory", rank.next);
    rank.options.cache_bytes *= 2;
    return rank.options.cache_bytes > kEnoughBytes ? Check("no memory suffices: " + error.message) : Check();
  }

  // A job that gets an error opens its reader again where it stood.
  Check on_error(Rank& rank, const Error& error) {
    if (error.message.find("call again to go on waiting") != std::string::npos) {
      world_.mark("next timed out", rank.next);
      return {};
    }
    if (error.code == Code::kOutOfMemory && !rank.held.empty()) {
      world_.mark("held batches left no memory", rank.next);
      return give_back(rank);
    }
    rank.reader.reset();
    if (error.code == Code::kOutOfMemory) return give_memory(rank, error);
    // The drive's errors of then may have waited for the job in a batch that was read ahead.
    return excuse(error, error.code == Code::kIo && !well_for_long(rank.opened_at_ns));
  }

  Check excuse(const Error& error, bool of_the_past = false) {
    world_.mark("reader failed", static_cast<std::uint64_t>(error.code));
    world_.note("the reader failed: " + std::string(code_name(error.code)));
    if (!documented(error.code)) return "an error that faults do not excuse: " + error.message;
    if (!of_the_past && well_for_long(world_.now_ns())) return "an error in a world that is well: " + error.message;
    world_.idle(kSecond / 4);  // as a user would wait before trying again
    paused_ns_ += kSecond / 4;
    return {};
  }

  bool well_for_long(std::uint64_t at_ns) const {
    return !stage_.faulty() && at_ns > stage_.healed_at_ns() + stage_.recovery_ns();
  }

  Check overdue() const {
    if (stage_.faulty()) return {};
    const std::uint64_t since_ns = world_.now_ns() - std::max(began_ns_, stage_.healed_at_ns());
    if (since_ns <= kEpoch_ns + stage_.recovery_ns() + paused_ns_) return {};
    return fmt::format("{} s after the world healed the epoch is not over", since_ns / kSecond);
  }

  // ---- what was delivered ----

  Check inspect(Rank& rank, const reader::Batch& batch) {
    if (rank.next >= rank.expected.size()) return std::string("more batches than an epoch has");
    const auto& expected = rank.expected[rank.next];
    if (batch.number() != rank.next || batch.epoch() != rank.options.order.epoch)
      return fmt::format("batch {} of epoch {} came instead of {}", batch.number(), batch.epoch(), rank.next);
    if (const Check wrong = check_ids(rank, batch, expected)) return wrong;
    if (const Check wrong = check_bytes(batch)) return wrong;
    const std::uint64_t peak = rank.reader->statistics().memory_peak_bytes;
    if (peak > rank.options.cache_bytes)
      return fmt::format("the reader took {} bytes of memory, and was given {}", peak, rank.options.cache_bytes);
    world_.mark("batch", batch.number());
    if (batch.size() < expected.size()) world_.mark("skipped samples", batch.number());
    world_.note(fmt::format("rank {}: batch {} of {} samples", rank.options.order.rank, rank.next, batch.size()));
    ++rank.next;
    return {};
  }

  static Check check_ids(const Rank& rank, const reader::Batch& batch, const std::vector<std::uint32_t>& expected) {
    const auto ids = batch.ids();
    if (rank.options.on_error == reader::OnError::kRaise) {
      if (std::ranges::equal(ids, expected)) return {};
      return fmt::format("batch {} does not hold the samples of the order", rank.next);
    }
    std::size_t at = 0;
    for (const std::uint32_t id : ids) {
      while (at < expected.size() && expected[at] != id) ++at;
      if (at++ >= expected.size()) return fmt::format("batch {} holds sample {}, against the order", rank.next, id);
    }
    return {};
  }

  Check check_bytes(const reader::Batch& batch) const {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (!stage_.data.is_content(batch.field(i, 0), batch.ids()[i], stage_.version))
        return fmt::format("sample {} was delivered with wrong bytes", batch.ids()[i]);
    }
    return {};
  }

  // The bytes of a batch stay what they are until it is given back.
  Check give_back(Rank& rank) {
    const Check wrong = check_bytes(*rank.held.front());
    rank.held.pop_front();
    return wrong ? Check("in a batch that was held: " + *wrong) : Check();
  }

  Check end(Rank& rank) {
    if (rank.next != rank.expected.size())
      return fmt::format("the epoch ended after batch {} of {}", rank.next, rank.expected.size());
    while (!rank.held.empty()) {
      if (const Check wrong = give_back(rank)) return wrong;
    }
    rank.ended = true;
    return {};
  }

  // The job computes.
  void think() {
    if (!world_.chance(0.4)) return;
    const std::uint64_t ns = world_.prng.below(world_.one_of({20 * kMs, 200 * kMs, kSecond, 15 * kSecond}));
    world_.idle(ns);
    paused_ns_ += ns;
  }

  // ---- random access ----

  Check look_up() {
    const auto id = static_cast<std::uint32_t>(world_.prng.below(stage_.data.size()));
    world_.mark("look-up", id);
    if (world_.chance(0.5)) {
      const auto found = volume_->find(DataSet::name(id));
      if (!found.ok()) return excuse(found.error());
      return found->value == id ? Check() : Check("a name led to another sample");
    }
    const auto record = volume_->read(SampleId{id});
    if (!record.ok()) return excuse(record.error());
    if (stage_.data.is_content(record->fields[0], id, stage_.version)) return {};
    return fmt::format("sample {} was read with wrong bytes", id);
  }

  Check verify() {
    std::string first;
    const auto report = volume::verify(
        *volume_, [&](const volume::Finding& finding) { first = first.empty() ? finding.message : first; },
        [](std::uint64_t, std::uint64_t) { return true; });
    if (!report.ok()) return excuse(report.error());
    return report->findings == 0 ? Check() : Check("verify found damage in a volume that is well: " + first);
  }

  // The namespace changes under the mount: an error that says so, and no byte from it.
  Check outgrow() {
    stage_.grow_drive();
    const std::uint64_t until_ns = world_.now_ns() + kEpoch_ns;
    while (world_.now_ns() < until_ns) {
      const auto record = volume_->read(SampleId{0});
      if (record.ok() && !stage_.data.is_content(record->fields[0], 0, stage_.version))
        return std::string("sample 0 was read with wrong bytes from a namespace that grew");
      if (!record.ok() && record.error().code == Code::kDeviceLost) {
        const bool says_so = record.error().message.find("changed its capacity") != std::string::npos;
        return says_so ? remount() : Check("an error that does not say what happened: " + record.error().message);
      }
      if (!record.ok() && !documented(record.error().code))
        return "an error that does not fit: " + record.error().message;
      world_.idle(kSecond);
    }
    return std::string("a namespace that grew went unnoticed");
  }

  Check remount() {
    auto mounted = stage_.mount();
    if (!mounted.ok()) return "a mount of a namespace that grew failed: " + mounted.error().message;
    const auto record = (*mounted)->read(SampleId{0});
    if (!record.ok()) return "a read from a namespace that grew failed: " + record.error().message;
    return stage_.data.is_content(record->fields[0], 0, stage_.version) ? Check() : Check("it holds wrong bytes");
  }

  Stage& stage_;
  World& world_;
  std::shared_ptr<const volume::Volume> volume_;
  std::vector<Rank> ranks_;
  std::uint64_t began_ns_ = 0, paused_ns_ = 0;
};

}  // namespace

Check play_reading(Stage& stage) { return Reading(stage).play(); }

}  // namespace dlfs::sim
