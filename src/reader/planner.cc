#include "reader/planner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "reader/placement.h"

namespace dlfs::reader {
namespace {

// Chunks that are to stay are read beside the samples that are wanted at once, about half of the device's time each:
// every sample read by itself earns its bytes and those that its request cost the device, and a chunk is read from what
// was earned.
constexpr std::uint64_t kRequestCostBytes = 4u << 10;
constexpr std::uint64_t kFirstCreditBytes = 16u << 20;
constexpr std::size_t kAhead = 8;            // draws whose memory is fetched before they are planned
constexpr std::size_t kGroupSamples = 1024;  // planned together, so that neighbours on the media meet
constexpr std::size_t kGroupBatches = 8;
constexpr std::uint64_t kLeastDegraded = 8;    // batches planned sample-wise after chunk mode ran out of memory,
constexpr std::uint64_t kMostDegraded = 1024;  // twice as many each time that it does again soon
constexpr std::uint64_t kLargeRequestBytes = 1u << 20;  // a large sample is read in requests of this size

std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) { return value & ~(unit - 1); }
std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return round_down(value + unit - 1, unit); }

}  // namespace

// ---- epochs ----

Result<EpochWalk> EpochWalk::begin(const order::Parameters& parameters, std::uint64_t epochs, std::uint64_t start_batch,
                                   std::shared_ptr<const volume::Volume> volume) {
  const std::uint64_t samples = volume->size();
  auto placement = std::make_shared<const VolumePlacement>(volume);
  DLFS_TRY_ASSIGN(auto epoch, order::Epoch::create(parameters, samples, std::move(placement)));
  if (start_batch > epoch->batches()) {
    return Error{Code::kInvalidArgument, "batch " + std::to_string(start_batch) +
                                             " to start at is behind the epoch's end; it has " +
                                             std::to_string(epoch->batches()) + " batches"};
  }
  EpochWalk walk(std::move(volume), std::move(epoch), epochs);
  walk.cursor_.seek(start_batch);
  return walk;
}

EpochWalk::EpochWalk(std::shared_ptr<const volume::Volume> volume, std::shared_ptr<const order::Epoch> epoch,
                     std::uint64_t epochs)
    : volume_(std::move(volume)),
      placement_(std::make_shared<const VolumePlacement>(volume_)),
      first_(epoch->parameters()),
      epochs_(epochs),
      epoch_(epoch),
      cursor_(std::move(epoch)) {}

Result<std::shared_ptr<const order::Epoch>> EpochWalk::create(std::uint64_t relative_epoch) const {
  order::Parameters parameters = first_;
  parameters.epoch += relative_epoch;
  return order::Epoch::create(parameters, volume_->size(), placement_);
}

Result<bool> EpochWalk::draw(BatchBody& body) {
  while (!cursor_.next(body.draws)) {
    if (!exists(relative_ + 1)) return false;
    if (following_ == nullptr) {
      DLFS_TRY_ASSIGN(following_, create(relative_ + 1));
    }
    epoch_ = std::move(following_);
    following_ = nullptr;
    ++relative_;
    cursor_ = order::Cursor(epoch_);
  }
  body.epoch = epoch_->parameters().epoch;
  body.relative_epoch = relative_;
  body.number = cursor_.batch() - 1;
  body.padding = static_cast<std::uint32_t>(epoch_->padding(body.number));
  return true;
}

std::uint64_t EpochWalk::next_use(std::uint64_t relative_epoch, std::uint64_t unit) {
  const order::Epoch* next = nullptr;
  if (relative_epoch < relative_) next = relative_epoch + 1 == relative_ ? epoch_.get() : nullptr;
  if (relative_epoch == relative_ && exists(relative_ + 1)) {
    if (following_ == nullptr) {
      auto created = create(relative_ + 1);
      if (created.ok()) following_ = std::move(created).value();
    }
    next = following_.get();
  }
  if (next == nullptr) return kNeverUsed;
  const std::uint64_t position = order::next_use(*next, unit);
  return position == kNeverUsed ? kNeverUsed : (relative_epoch + 1) * epoch_->samples() + position;
}

double EpochWalk::draws_left() const noexcept {
  if (epochs_ == 0) return std::numeric_limits<double>::infinity();
  const order::Parameters& p = epoch_->parameters();
  const double batches = static_cast<double>(epochs_ - relative_) * static_cast<double>(epoch_->batches()) -
                         static_cast<double>(cursor_.batch());
  return batches * p.batch / p.ranks;
}

// ---- planner ----

Planner::Planner(std::shared_ptr<const volume::Volume> volume, const Policy& policy, EpochWalk walk, Channel& channel,
                 Cache& cache, Fetcher& fetcher)
    : volume_(std::move(volume)),
      directory_(volume_->directory()),
      policy_(policy),
      walk_(std::move(walk)),
      channel_(channel),
      cache_(cache),
      fetcher_(fetcher),
      credit_bytes_(kFirstCreditBytes),
      slot_order_(walk_.epoch().parameters().mode == order::Mode::kChunk) {
  const block::Geometry& geometry = fetcher.device().geometry();
  rules_.block_bytes = std::max(geometry.block_bytes, geometry.memory_alignment_bytes);
  rules_.chunk_bytes = volume_->superblock().chunk_bytes;
}

// Ids and places of all samples at once, so that the misses of one look-up hide behind those of the next.
void Planner::look_up(BatchBody& body) const {
  const std::size_t size = body.draws.size();
  body.ids.resize(size);
  body.places.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    const auto index = static_cast<std::uint32_t>(body.draws[i].index);
    body.ids[i] = slot_order_ ? directory_.id_of(Slot{index}).value : index;
  }
  directory_.locations(body.ids, body.places);
}

// The next batch at the end of the line, or null when there is none: done_ or error_ says why.
BatchBody* Planner::draw(Fifo<BatchBody*>& line) {
  BatchBody* body = channel_.new_body();
  auto drawn = walk_.draw(*body);
  if (!drawn.ok() || !*drawn) {
    channel_.recycle(body);
    done_ = true;
    if (!drawn.ok()) error_ = drawn.error();
    return nullptr;
  }
  if (walk_.relative() != relative_epoch_) end_epoch();
  const std::size_t size = body->draws.size();
  body->serial = next_serial_++;
  if (lists_pieces()) {
    body->ids.resize(size);
  } else {
    look_up(*body);
  }
  body->records.resize(size);
  body->sources.resize(size);
  line.push(body);
  return body;
}

// What the epoch that is over has not drawn (its tail, or what came before the batch it was entered at) it will not
// draw any more; and what was kept for it and not used, because its pieces are cut elsewhere, is not worth keeping.
void Planner::end_epoch() {
  relative_epoch_ = walk_.relative();
  if (!policy_.by_piece || policy_.whole_units) return;
  cache_.for_each_cached([this](Buffer& buffer) {
    const bool expired = buffer.epoch + 1 < relative_epoch_;
    if (buffer.draws_left == 0 && !expired) return;
    buffer.draws_left = 0;
    cache_.settle(buffer, expired ? kNeverUsed : walk_.next_use(buffer.epoch, buffer.unit));
  });
}

Planner::Step Planner::step(Fifo<BatchBody*>& line, std::size_t room) {
  const bool singly = !group_.empty() && !group_.front()->missing.empty();
  if (!policy_.by_piece || degraded_left_ != 0 || singly) return plan_group(room, line);
  if (group_.empty()) {
    if (done_ || room == 0) return done_ && !error_.message.empty() ? Step::kFailed : Step::kDone;
    BatchBody* body = draw(line);
    if (body == nullptr) return error_.message.empty() ? Step::kDone : Step::kFailed;
    group_.push_back(body);
  }
  return plan_batch_by_piece(*group_.front());
}

Planner::Step Planner::plan_batch_by_piece(BatchBody& body) {
  while (body.resolved < body.draws.size()) {
    if (body.resolved + kAhead < body.draws.size()) prefetch(body.draws[body.resolved + kAhead]);
    if (!plan_piece(body, body.resolved)) return Step::kNoMemory;
    ++body.resolved;
  }
  body.planned = true;
  group_.erase(group_.begin());
  if (degraded_batches_ > 0) --degraded_batches_;  // it works again: forget slowly
  return Step::kPlanned;
}

// The draw's record in the list of its piece, which a batch ago was used last.
void Planner::prefetch(const order::Draw& draw) const noexcept {
  const Buffer* buffer = cache_.find_slot(draw.unit, draw.index);
  if (buffer != nullptr && !buffer->records.empty())
    __builtin_prefetch(&buffer->records[draw.index - buffer->slot_begin]);
}

bool Planner::plan_piece(BatchBody& body, std::size_t i) {
  const order::Draw& draw = body.draws[i];
  Buffer* buffer = cache_.find_slot(draw.unit, draw.index);
  if (buffer == nullptr) {
    buffer = policy_.whole_units
                 ? fetch_slots(draw.unit, directory_.first_slot(draw.unit), directory_.first_slot(draw.unit + 1))
                 : fetch_slots(draw.unit, draw.piece_begin, draw.piece_end);
    if (buffer == nullptr) return false;
    buffer->unit = draw.unit;
    buffer->epoch = body.relative_epoch;
    if (!policy_.whole_units) buffer->draws_left = draw.piece_end - draw.piece_begin;
  } else if (buffer->epoch != body.relative_epoch) {
    buffer->epoch = body.relative_epoch;
    buffer->draws_left = policy_.whole_units ? 0 : draw.piece_end - draw.piece_begin;
    buffer->from_earlier_epoch = true;
  }
  if (buffer->from_earlier_epoch) Counters::add(channel_.counters().cache_hits, 1);
  cache_.note_draw(*buffer);
  if (policy_.whole_units) {
    use(body, i, *buffer, body.places[i].address_bytes, body.places[i].length_bytes);
    return true;
  }
  if (buffer->records.empty()) list_records(*buffer);
  const RecordRef& record = buffer->records[draw.index - buffer->slot_begin];
  body.ids[i] = record.id;
  use(body, i, *buffer, record.address, record.length);
  return true;
}

void Planner::list_records(Buffer& buffer) {
  ids_.clear();
  for (std::uint64_t slot = buffer.slot_begin; slot < buffer.slot_end; ++slot) {
    ids_.push_back(directory_.id_of(Slot{static_cast<std::uint32_t>(slot)}).value);
  }
  places_.resize(ids_.size());
  directory_.locations(ids_, places_);
  cache_.lend_records(buffer);
  buffer.records.resize(ids_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i)
    buffer.records[i] = {places_[i].address_bytes, places_[i].length_bytes, ids_[i]};
}

void Planner::use(BatchBody& body, std::size_t i, Buffer& buffer, std::uint64_t address, std::uint64_t length) {
  body.records[i] = {buffer.at(address), length};
  body.sources[i] = &buffer;
  if (buffer.last_user == body.serial) return;
  buffer.last_user = body.serial;
  ++buffer.refs;
  body.buffers.push_back(&buffer);
  if (!buffer.ready) {
    buffer.waiters.push_back(&body);
    ++body.waiting;
  } else if (!buffer.bad.empty()) {
    body.flawed = true;
  }
}

// Reads the records of slots [begin, end), which lie in one unit. Null: no memory.
Buffer* Planner::fetch_slots(std::uint64_t unit, std::uint64_t begin, std::uint64_t end) {
  const auto location = [&](std::uint64_t slot) {
    return directory_.location(directory_.id_of(Slot{static_cast<std::uint32_t>(slot)}));
  };
  const layout::Location first = location(begin), last = location(end - 1);
  const std::uint64_t from = round_down(first.address_bytes, rules_.block_bytes);
  const std::uint64_t covered = last.address_bytes + last.length_bytes;
  const std::uint64_t to = round_up(covered, rules_.block_bytes);
  wanted_bytes_ = to - from;
  const std::uint64_t key = slot_order_ ? unit : cache_.chunk_of(first.address_bytes);
  Buffer* buffer = cache_.add_cached(key, from, to, first.address_bytes, covered);
  if (buffer == nullptr) return nullptr;
  buffer->slot_begin = begin;
  buffer->slot_end = end;
  enqueue(*buffer);
  return buffer;
}

// The unit that holds the record at `address`: the last that does not start behind it.
std::uint64_t Planner::unit_at(std::uint64_t address) const noexcept {
  std::uint64_t low = 0, high = directory_.unit_count();
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto slot = static_cast<std::uint32_t>(directory_.first_slot(middle));
    (directory_.location(directory_.id_of(Slot{slot})).address_bytes <= address ? low : high) = middle;
  }
  return low;
}

Buffer* Planner::fetch_chunk_of(const layout::Location& at) {
  const std::uint64_t unit = unit_at(at.address_bytes);
  return fetch_slots(unit, directory_.first_slot(unit), directory_.first_slot(unit + 1));
}

// Whether reading the record's whole chunk, and keeping it, costs the device no more than reading its samples one by
// one, as often as this rank will still draw them.
bool Planner::worth_a_chunk(const layout::Location& at) const noexcept {
  const std::uint64_t bytes = at.large ? at.length_bytes : rules_.chunk_bytes;
  if (!at.large && credit_bytes_ < bytes) return false;
  if (cache_.cached_bytes() + bytes > policy_.resident_limit_bytes) return false;
  const double singly = walk_.draws_left() * static_cast<double>(policy_.footprint_bytes);
  return singly >= static_cast<double>(volume_->superblock().data.length_bytes);
}

void Planner::enqueue(Buffer& buffer) {
  const std::uint64_t step = buffer.length() > rules_.chunk_bytes ? kLargeRequestBytes : buffer.length();
  for (std::uint64_t at = buffer.begin; at < buffer.end; at += step) {
    const std::uint64_t length = std::min(step, buffer.end - at);
    fetcher_.add(&buffer, volume_->device_offset(at), buffer.at(at), static_cast<std::uint32_t>(length),
                 Fetcher::kWhole);
  }
}

void Planner::read_singly(Buffer& buffer) {
  for (std::uint32_t i = 0; i < buffer.records.size(); ++i) {
    const RecordRef& record = buffer.records[i];
    const std::uint64_t from = round_down(record.address, rules_.block_bytes);
    const std::uint64_t to = round_up(record.address + record.length, rules_.block_bytes);
    fetcher_.add(&buffer, volume_->device_offset(from), buffer.at(from), static_cast<std::uint32_t>(to - from), i);
  }
}

// ---- sample-wise ----

// From memory when it is there; else the whole chunk is read when that pays, or the sample is noted as missing.
void Planner::resolve_draw(BatchBody& body, std::size_t i, bool may_fetch) {
  const layout::Location& at = body.places[i];
  const order::Draw& draw = body.draws[i];
  Buffer* buffer =
      slot_order_ ? cache_.find_slot(draw.unit, draw.index) : cache_.find(at.address_bytes, at.length_bytes);
  if (buffer != nullptr) {
    Counters::add(channel_.counters().cache_hits, 1);
    if (slot_order_) cache_.note_draw(*buffer);
  } else if (may_fetch && worth_a_chunk(at)) {
    buffer = fetch_chunk_of(at);
    if (buffer != nullptr && !at.large) credit_bytes_ -= std::min(credit_bytes_, buffer->length());
  }
  if (buffer != nullptr) return use(body, i, *buffer, at.address_bytes, at.length_bytes);
  credit_bytes_ = std::min(credit_bytes_ + policy_.footprint_bytes + kRequestCostBytes, kFirstCreditBytes);
  body.missing.push_back({at.address_bytes, at.length_bytes, body.ids[i], 0, static_cast<std::uint32_t>(i)});
}

void Planner::fill_group(std::size_t room, Fifo<BatchBody*>& line) {
  std::size_t samples = 0;
  for (const BatchBody* body : group_) samples += body->draws.size();
  while (!done_ && room > 0 && group_.size() < kGroupBatches && (group_.empty() || samples < kGroupSamples)) {
    BatchBody* body = draw(line);
    if (body == nullptr) break;
    group_.push_back(body);
    samples += body->draws.size();
    --room;
  }
  for (BatchBody* body : group_) resolve(*body, !policy_.by_piece);
}

void Planner::resolve(BatchBody& body, bool may_fetch) {
  if (body.places.empty()) look_up(body);
  for (; body.resolved < body.draws.size(); ++body.resolved) resolve_draw(body, body.resolved, may_fetch);
}

Planner::Step Planner::plan_group(std::size_t room, Fifo<BatchBody*>& line) {
  fill_group(room, line);
  // Resident chunks had to go to make room: keep fewer of them from now on, instead of reading them again and again.
  if (cache_.evictions() != evictions_seen_) {
    evictions_seen_ = cache_.evictions();
    policy_.resident_limit_bytes = std::min(policy_.resident_limit_bytes, cache_.cached_bytes());
  }
  if (group_.empty()) return done_ && !error_.message.empty() ? Step::kFailed : Step::kDone;
  std::size_t count = group_.size();
  while (count > 0 && !plan_missing(count)) count /= 2;
  if (count == 0) return Step::kNoMemory;
  degraded_left_ -= std::min<std::uint64_t>(degraded_left_, count);
  group_.erase(group_.begin(), group_.begin() + static_cast<std::ptrdiff_t>(count));
  return Step::kPlanned;
}

void Planner::find_extents(const CoalesceRules& rules) {
  coalesce(wants_, rules, extents_);
  ranges_.clear();
  wanted_bytes_ = 0;
  for (const Extent& extent : extents_) {
    ranges_.push_back({extent.begin, extent.end});
    wanted_bytes_ += extent.end - extent.begin;
  }
}

// Reads what the first `count` batches of the group miss. False, with nothing changed, when the memory is not there.
bool Planner::plan_missing(std::size_t count) {
  wants_.clear();
  for (std::size_t b = 0; b < count; ++b) {
    for (Want& want : group_[b]->missing) {
      want.batch = static_cast<std::uint32_t>(b);
      wants_.push_back(want);
    }
  }
  find_extents(rules_);
  if (wanted_bytes_ > policy_.group_limit_bytes) {
    if (count > 1) return false;
    CoalesceRules thrifty = rules_;  // no gaps: every byte counts
    thrifty.gap_bytes = 0;
    find_extents(thrifty);
  }
  if (!cache_.add_private(ranges_, private_)) return false;
  for (std::size_t e = 0; e < extents_.size(); ++e) {
    Buffer& buffer = *private_[e];
    for (std::uint32_t w = 0; w < extents_[e].count; ++w) use_want(wants_[extents_[e].first + w], buffer);
    enqueue(buffer);
  }
  for (std::size_t b = 0; b < count; ++b) group_[b]->planned = true;
  return true;
}

void Planner::use_want(const Want& want, Buffer& buffer) {
  if (buffer.records.empty()) cache_.lend_records(buffer);
  if (buffer.records.empty() || buffer.records.back().address != want.address) {
    buffer.records.push_back({want.address, want.length, want.id});
  }
  use(*group_[want.batch], want.sample, buffer, want.address, want.length);
}

// ---- when memory is short ----

Planner::Step Planner::rescue() {
  DLFS_CHECK(!group_.empty());
  const std::uint64_t gap = std::exchange(rules_.gap_bytes, 0);
  cache_.set_desperate(true);
  bool planned = plan_first();
  if (!planned) {
    for (BatchBody* body : group_) unresolve(*body);
    planned = plan_first();
  }
  cache_.set_desperate(false);
  rules_.gap_bytes = gap;
  if (!planned) return Step::kNoMemory;
  degraded_batches_ = std::clamp<std::uint64_t>(2 * degraded_batches_, kLeastDegraded, kMostDegraded);
  degraded_left_ = degraded_batches_;
  return Step::kPlanned;
}

// The first batch of the group, without reading more than its samples.
bool Planner::plan_first() {
  resolve(*group_.front(), false);
  if (!plan_missing(1)) return false;
  group_.erase(group_.begin());
  return true;
}

// Back to being drawn only. What is on its way for it arrives for nobody, or for another batch.
void Planner::unresolve(BatchBody& body) {
  for (Buffer* buffer : body.buffers) {
    std::erase(buffer->waiters, &body);
    if (buffer->last_user == body.serial) buffer->last_user = 0;
  }
  release(body);
  body.buffers.clear();
  body.missing.clear();
  body.resolved = 0;
  body.waiting = 0;
  body.flawed = false;
}

void Planner::release(BatchBody& body) {
  for (Buffer* buffer : body.buffers) {
    if (--buffer->refs == 0) settle(*buffer);
  }
}

void Planner::settle(Buffer& buffer) {
  if (buffer.refs != 0) return;
  const bool tracked = policy_.by_piece && !policy_.whole_units && buffer.cached && buffer.draws_left == 0;
  cache_.settle(buffer, tracked ? walk_.next_use(buffer.epoch, buffer.unit) : Cache::kUnknown);
}

}  // namespace dlfs::reader
