#include "reader/engine.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "layout/large_record.h"

namespace dlfs::reader {
namespace {

constexpr auto kSpin =
    std::chrono::microseconds(5);                    // polling goes on so long after something happened, then it sleeps
constexpr auto kPatience = std::chrono::seconds(2);  // with a device at the end
constexpr auto kAbsence = std::chrono::milliseconds(10);

std::atomic<Engine*> kept{nullptr};  // those whose device never let go of their memory; held here, not lost

}  // namespace

Engine::Engine(std::shared_ptr<const volume::Volume> volume, const Options& options, const Policy& policy,
               EpochWalk walk, std::shared_ptr<Channel> channel, std::unique_ptr<block::BlockDevice> device)
    : volume_(std::move(volume)),
      options_(options),
      channel_(std::move(channel)),
      cache_(channel_->pool(), volume_->superblock().chunk_bytes, policy.bump_block_bytes, policy.stale_draws),
      fetcher_(std::move(device), options.depth, volume_->options().timeout, channel_->counters()),
      planner_(volume_, policy, std::move(walk), *channel_, cache_, fetcher_),
      batches_ahead_(policy.batches_ahead),
      scratch_(volume_->record_layout().field_count()) {
  std::vector<std::uint64_t> lengths;
  for (const std::uint64_t fixed : volume_->record_layout().fixed_lengths()) {
    variable_fields_ += fixed == layout::kVariable ? 1 : 0;
    fixed_payload_ += fixed == layout::kVariable ? 0 : fixed;
    lengths.push_back(fixed == layout::kVariable ? 0 : fixed);
  }
  record_overhead_ = volume_->record_layout().record_bytes(lengths) - fixed_payload_;
}

Result<Engine::Handle> Engine::start(std::shared_ptr<const volume::Volume> volume, const Options& options,
                                     const Policy& policy, EpochWalk walk, std::shared_ptr<Channel> channel,
                                     std::unique_ptr<block::BlockDevice> device) {
  Handle engine(new Engine(std::move(volume), options, policy, std::move(walk), std::move(channel), std::move(device)));
  engine->last_progress_ = engine->attended_ = engine->fetcher_.device().now();
  if (!options.threaded) return engine;
  try {
    engine->thread_ = std::thread([raw = engine.get()] { raw->run(); });
  } catch (const std::system_error& failure) {
    return base::make_error(Code::kOutOfMemory,
                            "cannot start the reader's thread: {}; raise the limit of processes and threads",
                            failure.what());
  }
  return engine;
}

void Engine::Retire::operator()(Engine* engine) const noexcept {
  if (!engine->thread_.joinable()) {  // it has none, or it never started
    if (engine->fetcher_.drain(engine->fetcher_.timeout())) return delete engine;
    engine->next_kept_ = kept.exchange(engine);
    return;
  }
  engine->stop_.store(true, std::memory_order_seq_cst);
  engine->channel_->wake_poller();
  {
    std::unique_lock lock(engine->end_mutex_);
    if (!engine->end_.wait_for(lock, kPatience, [&] { return engine->finished_; })) {
      engine->orphaned_ = true;
      engine->thread_.detach();
      return;
    }
  }
  engine->thread_.join();
  delete engine;
}

Engine::~Engine() {
  take_returned();
  while (!line_.empty()) planner_.release(*line_.pop());
  cache_.evict_all();
  channel_->pool().trim();
}

double Engine::cpu_seconds() const noexcept {
  if (!options_.threaded) return 0;
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(const_cast<std::thread&>(thread_).native_handle(), &clock) != 0) return 0;
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// ---- the loop ----

void Engine::run() {
  pthread_setname_np(pthread_self(), "dlfs-poller");
  loop();
  fetcher_.drain(
      std::chrono::nanoseconds::max());  // here, because a device's requests come back to the thread that sent them
  bool orphaned = false;
  {
    const std::lock_guard lock(end_mutex_);
    finished_ = true;
    orphaned = orphaned_;
    end_.notify_one();
  }
  if (orphaned) delete this;
}

void Engine::loop() {
  while (!stop_.load(std::memory_order_acquire)) {
    const std::uint64_t events = channel_->events();
    const std::uint64_t releases = channel_->releases();
    now_ = fetcher_.device().now();
    if (turn(releases)) {
      last_progress_ = now_;
    } else {
      rest(events);
    }
  }
}

void Engine::step(Clock::time_point until) {
  now_ = fetcher_.device().now();
  if (now_ - attended_ > kAbsence) fetcher_.postpone(now_ - attended_);
  if (turn(channel_->releases())) {
    last_progress_ = now_;
  } else if (fetcher_.in_flight() != 0) {
    const auto longest = std::min(fetcher_.deadline(), until) - now_;
    fetcher_.device().wait(std::max<std::chrono::nanoseconds>(longest, std::chrono::nanoseconds(1)));
  }
  attended_ = fetcher_.device().now();
}

// One round. True when anything moved.
bool Engine::turn(std::uint64_t releases) {
  bool moved = take_returned();
  moved |= poll_device();
  moved |= publish();
  moved |= plan();
  moved |= fetcher_.submit(now_);
  moved |= publish();  // batches that were in memory already
  if (!moved && stalled_) consider_rescue(releases);
  return moved;
}

bool Engine::take_returned() {
  BatchBody* body = channel_->take_returned();
  const bool any = body != nullptr;
  while (body != nullptr) {
    BatchBody* const next = body->next_returned;
    planner_.release(*body);
    channel_->recycle(body);
    --out_;
    body = next;
  }
  return any;
}

bool Engine::poll_device() {
  fetcher_.poll(now_, done_);
  if (!done_.empty()) fetcher_.submit(now_);  // what waits in the queue: the device has work while this is verified
  for (const Fetched& fetched : done_) on_fetched(fetched);
  return !done_.empty();
}

// Plans until there is enough for the device to do; the rest can wait until it was sent.
bool Engine::plan() {
  bool moved = false;
  stalled_ = false;
  while (!planned_all_ && !ended_ && fetcher_.queued() < fetcher_.depth()) {
    const std::size_t ahead = line_.size() + channel_->ready();
    const bool unfinished = !line_.empty() && !line_.back()->planned;
    if (ahead >= batches_ahead_ && !unfinished) break;
    const std::size_t room = ahead >= batches_ahead_ ? 0 : batches_ahead_ - ahead;
    const Planner::Step step = planner_.step(line_, room);
    if (step == Planner::Step::kPlanned) {
      moved = true;
      continue;
    }
    stalled_ = step == Planner::Step::kNoMemory;
    if (!stalled_) planned_all_ = true;
    if (step == Planner::Step::kFailed) planner_error_ = planner_.error();
    break;
  }
  channel_->declare_stalled(stalled_);
  if (moved) channel_->declare_fed();
  return moved;
}

// The consumer waits, nothing is on its way, and the next batch has no memory.
void Engine::consider_rescue(std::uint64_t releases) {
  if (!fetcher_.idle() || channel_->ready() != 0 || line_.front()->planned || !channel_->consumer_waits()) return;
  if (planner_.rescue() == Planner::Step::kPlanned) {
    channel_->declare_fed();
    fetcher_.submit(now_);
    publish();
    last_progress_ = now_;
    return;
  }
  if (out_ != 0) return channel_->declare_starved(releases, planner_.wanted_bytes());
  const std::uint64_t enough = 2 * planner_.wanted_bytes() + planner_.wanted_bytes() / 2 + (64u << 10);
  publish_end(base::make_error(
      Code::kOutOfMemory,
      "batch {} of epoch {} needs {} at once, and cache_bytes is {}; set cache_bytes to {} or more, or use a "
      "smaller batch",
      line_.front()->number, line_.front()->epoch, in_words(planner_.wanted_bytes()), in_words(options_.cache_bytes),
      enough));
}

void Engine::rest(std::uint64_t events) {
  if (fetcher_.in_flight() != 0 && now_ - last_progress_ < kSpin) return;
  const bool waits_for_device = !fetcher_.idle();
  std::chrono::nanoseconds longest = std::chrono::nanoseconds::max();
  if (waits_for_device)
    longest = std::max<std::chrono::nanoseconds>(fetcher_.deadline() - now_, std::chrono::nanoseconds(1));
  // With plenty of finished batches, let the consumer take half of them before planning goes on: few, long bursts.
  const std::size_t ready = channel_->ready();
  const std::size_t wake_below = ready <= 2 ? ready : ready / 2;
  channel_->sleep(fetcher_.wants_polls() ? fetcher_.device().wait_descriptor() : -1, longest, events, wake_below);
}

// ---- arrivals ----

void Engine::on_fetched(const Fetched& fetched) {
  Buffer& buffer = *fetched.buffer;
  if (fetched.late) {
    --buffer.abandoned;
    return planner_.settle(buffer);
  }
  --buffer.requests;
  if (fetched.failed) on_failed(buffer, fetched);
  if (buffer.requests == 0) arrive(buffer);
}

// A read of several records that failed is repeated record by record, so that only those that cannot be read are
// missed.
void Engine::on_failed(Buffer& buffer, const Fetched& fetched) {
  if (fetched.code == Code::kTimedOut) ++buffer.abandoned;
  const bool dead = fetched.code == Code::kTimedOut || fetched.code == Code::kDeviceLost;
  if (buffer.records.empty()) planner_.list_records(buffer);
  if (fetched.record == Fetcher::kWhole && buffer.records.size() > 1 && !dead) return planner_.read_singly(buffer);
  for (std::uint32_t i = 0; i < buffer.records.size(); ++i) {
    if (fetched.record != Fetcher::kWhole && fetched.record != i) continue;
    if (buffer.records.size() == 1 && !buffer.bad.empty()) continue;  // another part of the same sample failed before
    buffer.bad.push_back({buffer.records[i].address, fetched.code, fetched.errno_value, fetched.nvme_status,
                          fetched.device_offset, fetched.length});
  }
  if (dead) cache_.forget(buffer);  // a later batch tries again
}

void Engine::arrive(Buffer& buffer) {
  if (!buffer.bad.empty()) buffer.sort_bad();
  if (options_.verify) verify(buffer);
  if (buffer.bad.size() != buffer.bad_sorted) buffer.sort_bad();
  buffer.ready = true;
  for (BatchBody* body : buffer.waiters) {
    --body->waiting;
    if (!buffer.bad.empty()) body->flawed = true;
  }
  buffer.waiters.clear();
  planner_.settle(buffer);
}

void Engine::verify(Buffer& buffer) {
  const Clock::time_point begin = Clock::now();
  const bool listed = !buffer.records.empty();
  if (!listed) planner_.list_records(buffer);
  for (const RecordRef& record : buffer.records) verify_record(buffer, record);
  if (!listed) cache_.drop_records(buffer);
  channel_->counters().verify.add(Clock::now() - begin);
}

void Engine::verify_record(Buffer& buffer, const RecordRef& record) {
  if (!buffer.bad.empty() && buffer.bad_at(record.address) != nullptr) return;
  const layout::RecordLayout& layout = volume_->record_layout();
  const std::span<const std::byte> bytes(buffer.at(record.address), record.length);
  const bool good = layout.large(record.length) ? layout::decode_large(layout, bytes, SampleId{record.id}, scratch_)
                                                : layout.decode(bytes, SampleId{record.id}, scratch_);
  if (good) return;
  buffer.bad.push_back({record.address, Code::kCorrupt, 0, 0, volume_->device_offset(record.address),
                        static_cast<std::uint32_t>(std::min<std::uint64_t>(record.length, ~std::uint32_t{0}))});
}

// ---- delivery ----

bool Engine::publish() {
  bool moved = false;
  while (!ended_ && !line_.empty() && line_.front()->complete() && !channel_->full()) {
    BatchBody* body = line_.front();
    if (!finish(*body)) return true;
    line_.pop();
    channel_->publish(body);
    ++out_;
    moved = true;
  }
  if (!ended_ && planned_all_ && line_.empty() && !channel_->full()) {
    publish_end(std::move(planner_error_));
    moved = true;
  }
  return moved;
}

// False when the batch holds a bad sample that ends the sequence.
bool Engine::finish(BatchBody& body) {
  if (body.flawed && !leave_out_bad(body)) return false;
  count_payload(body);
  return true;
}

bool Engine::leave_out_bad(BatchBody& body) {
  const std::size_t size = body.size(), proper = size - body.padding;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const Buffer& buffer = *body.sources[i];
    const std::uint64_t address = buffer.begin + static_cast<std::uint64_t>(body.records[i].data - buffer.memory);
    if (const BadRecord* bad = buffer.bad.empty() ? nullptr : buffer.bad_at(address)) {
      if (options_.on_error == OnError::kRaise) {
        publish_end(sentence(*bad, body.ids[i]));
        return false;
      }
      ++body.skipped;
      if (i >= proper) --body.padding;
      continue;
    }
    body.ids[kept] = body.ids[i];
    body.records[kept++] = body.records[i];
  }
  body.ids.resize(kept);
  body.records.resize(kept);
  return true;
}

void Engine::count_payload(BatchBody& body) {
  const layout::RecordLayout& layout = volume_->record_layout();
  bool measured = variable_fields_ <= 1;
  for (std::size_t i = 0; measured && i < body.size(); ++i) {
    const std::uint64_t length = body.records[i].length;
    if (layout.large(length)) measured = false;
    body.payload_bytes += length - std::min(length, record_overhead_);
  }
  if (measured) return;
  locate_fields(layout, body);
  body.payload_bytes = 0;
  for (const layout::FieldValue& field : body.fields) body.payload_bytes += field.size();
}

Error Engine::sentence(const BadRecord& bad, std::uint32_t id) const {
  const block::BlockDevice& device = fetcher_.device();
  switch (bad.code) {
    case Code::kCorrupt:
      return base::make_error(Code::kCorrupt,
                              "{} is corrupt: its checksum does not match; restore the volume, or skip bad samples "
                              "(dlfs export --skip-errors; in programs: on_error)",
                              volume_->describe(SampleId{id}));
    case Code::kTimedOut:
    case Code::kDeviceLost: {  // without its name, which would have to be read from the same device
      Error error = base::make_error(
          bad.code, "sample {} on {} at byte {} could not be read: the device did not answer within {} ms", id,
          device.url(), volume_->device_offset(bad.address), volume_->options().timeout.count());
      error.errno_value = bad.errno_value;
      return error;
    }
    default: {
      const block::Request request{block::Op::kRead, nullptr, bad.length, bad.device_offset, 0};
      Error error = block::completion_error(device, request, {0, bad.errno_value, bad.nvme_status, 0});
      error.message = volume_->describe(SampleId{id}) + " could not be read: " + error.message;
      return error;
    }
  }
}

void Engine::publish_end(std::optional<Error> error) {
  BatchBody* body = channel_->new_body();
  body->end = true;
  body->error = std::move(error);
  ended_ = true;
  channel_->publish(body);
}

}  // namespace dlfs::reader
