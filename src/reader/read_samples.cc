// Random access by a list of ids, on the caller's thread.

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/try.h"
#include "layout/large_record.h"
#include "reader/channel.h"
#include "reader/coalesce.h"
#include "reader/delivered.h"

namespace dlfs::reader {
namespace {

constexpr std::uint64_t kLongestRequestBytes = 1u << 20;

// One call. **Lifetime**: of the call; the memory is the batch's, which outlives the device's use of it.
class Gatherer {
 public:
  Gatherer(const volume::Volume& volume, OwnedBatch& batch)
      : volume_(volume), batch_(batch), scratch_(volume.record_layout().field_count()) {}

  Result<void> plan(std::span<const std::uint32_t> ids);
  Result<void> place(std::uint64_t block_bytes);
  Result<void> read(block::BlockDevice& device);
  Result<void> finish(OnError on_error);

 private:
  // A read that failed leaves its extents' samples to be read one by one.
  struct Failure {
    std::uint64_t begin = 0, end = 0;  // of the request, in the data area
    Error error;
  };
  std::byte* at(std::size_t extent, std::uint64_t address) const {
    return batch_.memory().bytes().data() + places_[extent] + (address - extents_[extent].begin);
  }
  void add_requests(std::size_t extent, std::uint64_t begin, std::uint64_t end);
  Result<void> run(block::BlockDevice& device);
  void collect(block::BlockDevice& device);
  void split_failures();
  bool good(const Want& want, const std::byte* data);
  const Failure* failure_of(const Want& want) const;

  const volume::Volume& volume_;
  OwnedBatch& batch_;
  std::vector<Want> wants_;
  std::vector<Extent> extents_;
  std::vector<std::uint64_t> places_;  // of the extents in the memory
  std::vector<block::Request> requests_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;  // of the requests, in the data area
  std::vector<Failure> failures_;
  std::vector<block::Completion> completions_;
  std::vector<layout::FieldValue> scratch_;
  std::uint64_t block_bytes_ = 4096;
  std::size_t finished_ = 0;
};

Result<void> Gatherer::plan(std::span<const std::uint32_t> ids) {
  wants_.reserve(ids.size());
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= volume_.size()) {
      return base::make_error(Code::kNotFound, "there is no sample {} in {}; it has {} samples, from 0", ids[i],
                              volume_.url(), volume_.size());
    }
    const layout::Location at = volume_.directory().location(SampleId{ids[i]});
    wants_.push_back({at.address_bytes, at.length_bytes, ids[i], 0, i});
  }
  batch_.body().ids.assign(ids.begin(), ids.end());
  batch_.body().records.resize(ids.size());
  return {};
}

Result<void> Gatherer::place(std::uint64_t block_bytes) {
  block_bytes_ = block_bytes;
  CoalesceRules rules;
  rules.block_bytes = block_bytes;
  rules.chunk_bytes = volume_.superblock().chunk_bytes;
  coalesce(wants_, rules, extents_);
  std::uint64_t total = 0;
  for (const Extent& extent : extents_) {
    places_.push_back(total);
    total += extent.end - extent.begin;
  }
  if (total == 0) return {};
  DLFS_TRY_ASSIGN(batch_.memory(), base::Arena::create(total));
  for (std::size_t e = 0; e < extents_.size(); ++e) {
    add_requests(e, extents_[e].begin, extents_[e].end);
    for (std::uint32_t w = 0; w < extents_[e].count; ++w) {
      const Want& want = wants_[extents_[e].first + w];
      batch_.body().records[want.sample] = {at(e, want.address), want.length};
    }
  }
  return {};
}

void Gatherer::add_requests(std::size_t extent, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t from = begin; from < end; from += kLongestRequestBytes) {
    const std::uint64_t to = std::min(end, from + kLongestRequestBytes);
    requests_.push_back({block::Op::kRead, at(extent, from), static_cast<std::uint32_t>(to - from),
                         volume_.device_offset(from), requests_.size()});
    ranges_.emplace_back(from, to);
  }
}

Result<void> Gatherer::read(block::BlockDevice& device) {
  DLFS_TRY(run(device));
  if (failures_.empty()) return {};
  split_failures();
  return run(device);
}

// Sends all requests and waits for them. **Errors**: kTimedOut, when nothing at all comes for as long as a request may
// take.
Result<void> Gatherer::run(block::BlockDevice& device) {
  std::size_t sent = 0;
  finished_ = 0;
  completions_.resize(128);
  const auto timeout = block::patient(device, volume_.options().timeout);
  Clock::time_point heard = device.now();
  while (finished_ < requests_.size()) {
    if (sent < requests_.size()) sent += device.submit(std::span(requests_).subspan(sent));
    const std::size_t before = finished_;
    collect(device);
    const Clock::time_point now = device.now();
    if (finished_ != before) {
      heard = now;
      continue;
    }
    const auto left = timeout - std::chrono::duration_cast<std::chrono::milliseconds>(now - heard);
    if (left.count() <= 0) {
      return base::make_error(
          Code::kTimedOut,
          "{} did not answer within {} ms while {} samples were read, the first of them sample {} at byte {}",
          device.url(), timeout.count(), wants_.size(), wants_.front().id,
          volume_.device_offset(wants_.front().address));
    }
    device.wait(std::min<std::chrono::nanoseconds>(left, std::chrono::seconds(1)));
  }
  return {};
}

void Gatherer::collect(block::BlockDevice& device) {
  const std::size_t count = device.poll(completions_);
  for (std::size_t i = 0; i < count; ++i) {
    const block::Completion& completion = completions_[i];
    ++finished_;
    if (completion.errno_value == 0 && completion.nvme_status == 0) continue;
    const std::size_t request = completion.user_data;
    failures_.push_back({ranges_[request].first, ranges_[request].second,
                         block::completion_error(device, requests_[request], completion)});
  }
}

// The samples that failed reads touch become requests of their own. A large sample is alone in its extent and stays
// failed.
void Gatherer::split_failures() {
  requests_.clear();
  ranges_.clear();
  std::vector<Failure> kept;
  for (std::size_t e = 0; e < extents_.size(); ++e) {
    const Extent& extent = extents_[e];
    const auto failed =
        std::ranges::find_if(failures_, [&](const Failure& f) { return f.begin < extent.end && f.end > extent.begin; });
    if (failed == failures_.end()) continue;
    if (extent.count == 1) {
      kept.push_back(*failed);
      continue;
    }
    for (std::uint32_t w = 0; w < extent.count; ++w) {
      const Want& want = wants_[extent.first + w];
      add_requests(e, want.address / block_bytes_ * block_bytes_,
                   (want.address + want.length + block_bytes_ - 1) / block_bytes_ * block_bytes_);
    }
  }
  failures_ = std::move(kept);
}

const Gatherer::Failure* Gatherer::failure_of(const Want& want) const {
  const auto found = std::ranges::find_if(
      failures_, [&](const Failure& f) { return f.begin < want.address + want.length && f.end > want.address; });
  return found == failures_.end() ? nullptr : &*found;
}

bool Gatherer::good(const Want& want, const std::byte* data) {
  const layout::RecordLayout& layout = volume_.record_layout();
  const std::span<const std::byte> record(data, want.length);
  return layout.large(want.length) ? layout::decode_large(layout, record, SampleId{want.id}, scratch_)
                                   : layout.decode(record, SampleId{want.id}, scratch_);
}

Result<void> Gatherer::finish(OnError on_error) {
  BatchBody& body = batch_.body();
  std::vector<bool> bad(body.size());
  std::optional<std::pair<std::uint32_t, Error>> first;  // of the bad ones, in the order asked
  for (const Want& want : wants_) {
    const Failure* failure = failures_.empty() ? nullptr : failure_of(want);
    if (failure == nullptr && good(want, body.records[want.sample].data)) continue;
    bad[want.sample] = true;
    if (on_error == OnError::kSkip || (first && first->first < want.sample)) continue;
    Error error = failure != nullptr ? failure->error : Error{Code::kCorrupt, "", 0, 0};
    error.message = volume_.describe(SampleId{want.id}) +
                    (failure != nullptr ? " could not be read: " + failure->error.message
                                        : " is corrupt: its checksum does not match; restore the volume, or skip bad "
                                          "samples (dlfs export --skip-errors; in programs: on_error)");
    first.emplace(want.sample, std::move(error));
  }
  if (first) return std::move(first->second);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (bad[i]) continue;
    body.ids[kept] = body.ids[i];
    body.records[kept++] = body.records[i];
  }
  body.ids.resize(kept);
  body.records.resize(kept);
  return {};
}

}  // namespace

// The batch shares the volume. NOLINTNEXTLINE(performance-unnecessary-value-param)
Result<std::unique_ptr<Batch>> read_samples(std::shared_ptr<const volume::Volume> volume,
                                            std::span<const std::uint32_t> ids, OnError on_error) {
  auto batch = std::make_unique<OwnedBatch>(volume);
  Gatherer gatherer(*volume, *batch);
  DLFS_TRY(gatherer.plan(ids));
  const auto use = [&gatherer](block::BlockDevice& device) -> Result<void> {
    const block::Geometry& geometry = device.geometry();
    DLFS_TRY(gatherer.place(std::max(geometry.block_bytes, geometry.memory_alignment_bytes)));
    return gatherer.read(device);
  };
  DLFS_TRY(volume->with_device(use));
  DLFS_TRY(gatherer.finish(on_error));
  return std::unique_ptr<Batch>(std::move(batch));
}

}  // namespace dlfs::reader
