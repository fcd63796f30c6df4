#include "reader/fetcher.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace dlfs::reader {

Fetcher::Fetcher(std::unique_ptr<block::BlockDevice> device, std::uint32_t depth, std::chrono::nanoseconds timeout,
                 Counters& counters)
    : device_(std::move(device)),
      depth_(depth),
      timeout_(block::patient(*device_, std::chrono::duration_cast<std::chrono::milliseconds>(timeout))),
      counters_(counters),
      completions_(128) {
  const std::uint32_t most = device_->geometry().max_in_flight;
  depth_ = std::max<std::uint32_t>(1, most == 0 ? depth : std::min(depth, most));
  tends_ = device_->geometry().patience.count() != 0;
  added_ = device_->now();
}

void Fetcher::add(Buffer* buffer, std::uint64_t device_offset, std::byte* data, std::uint32_t length,
                  std::uint32_t record) {
  std::uint32_t place = static_cast<std::uint32_t>(requests_.size());
  if (free_.empty()) {
    requests_.emplace_back();
    free_.reserve(requests_.capacity());
  } else {
    place = free_.back();
    free_.pop_back();
  }
  requests_[place] = {buffer, data, device_offset, length, record, added_, {}, next_serial_++, false};
  ++buffer->requests;
  queue_.push(place);
}

bool Fetcher::submit(Clock::time_point now) {
  added_ = now;
  if (queue_.empty() || in_flight_ >= depth_) return false;
  const std::size_t count = std::min(queue_.size(), depth_ - in_flight_);
  burst_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t place = queue_[i];
    const Request& r = requests_[place];
    burst_.push_back({block::Op::kRead, r.data, r.length, r.device_offset, place});
  }
  const std::size_t taken = device_->submit(burst_);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < taken; ++i) {
    Request& r = requests_[queue_.front()];
    r.submitted = now;
    bytes += r.length;
    counters_.queue.add(now - r.planned);
    sent_.push({queue_.front(), r.serial});
    queue_.pop();
  }
  in_flight_ += taken;
  Counters::add(counters_.device_bytes, bytes);
  Counters::add(counters_.device_requests, taken);
  return taken != 0;
}

Fetched Fetcher::fetched(const Request& request) const noexcept {
  Fetched result;
  result.buffer = request.buffer;
  result.record = request.record;
  result.device_offset = request.device_offset;
  result.length = request.length;
  return result;
}

void Fetcher::complete(const block::Completion& completion, Clock::time_point now, std::vector<Fetched>& done) {
  const auto place = static_cast<std::uint32_t>(completion.user_data);
  Request& r = requests_[place];
  Fetched result = fetched(r);
  result.failed = completion.errno_value != 0 || completion.nvme_status != 0;
  result.late = r.timed_out;
  if (result.failed) {
    result.errno_value = completion.errno_value;
    result.nvme_status = completion.nvme_status;
    const block::Request sent{block::Op::kRead, r.data, r.length, r.device_offset, place};
    result.code = block::completion_error(*device_, sent, completion).code;
  }
  counters_.device.add(now - r.submitted);
  if (r.timed_out) --abandoned_;
  --in_flight_;
  r.serial = 0;
  free_.push_back(place);
  done.push_back(result);
}

void Fetcher::poll(Clock::time_point now, std::vector<Fetched>& done) {
  done.clear();
  if (in_flight_ == 0 && tends_) device_->poll({});  // so that its connections live on while nothing is read
  while (in_flight_ != 0) {
    const std::size_t count = device_->poll(completions_);
    for (std::size_t i = 0; i < count; ++i) complete(completions_[i], now, done);
    if (count < completions_.size()) break;
  }
  drop_finished();
  if (!sent_.empty() && now >= deadline()) expire(now, done);
  if (abandoned_ >= depth_ && !queue_.empty()) fail_queue(done);
}

// After this the front of `sent_`, if any, is a request that the device still has and that has not timed out.
void Fetcher::drop_finished() noexcept {
  while (!sent_.empty()) {
    const Sent& first = sent_.front();
    const Request& r = requests_[first.request];
    if (r.serial == first.serial && !r.timed_out) return;
    sent_.pop();
  }
}

Clock::time_point Fetcher::deadline() const noexcept {
  return sent_.empty() ? Clock::time_point::max() : requests_[sent_.front().request].submitted + timeout_;
}

void Fetcher::postpone(std::chrono::nanoseconds absence) noexcept {
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    Request& r = requests_[sent_[i].request];
    if (r.serial == sent_[i].serial) r.submitted += absence;
  }
}

void Fetcher::expire(Clock::time_point now, std::vector<Fetched>& done) {
  for (drop_finished(); !sent_.empty() && now >= deadline(); drop_finished()) {
    Request& r = requests_[sent_.front().request];
    r.timed_out = true;
    ++abandoned_;
    Fetched result = fetched(r);
    result.failed = true;
    result.code = Code::kTimedOut;
    result.errno_value = ETIMEDOUT;
    done.push_back(result);
  }
}

// The whole depth is stuck in a device that does not answer: what has not been sent has no chance either.
void Fetcher::fail_queue(std::vector<Fetched>& done) {
  while (!queue_.empty()) {
    const std::uint32_t place = queue_.pop();
    Fetched result = fetched(requests_[place]);
    result.failed = true;
    result.code = Code::kDeviceLost;
    result.errno_value = ETIMEDOUT;
    requests_[place].serial = 0;
    free_.push_back(place);
    done.push_back(result);
  }
}

bool Fetcher::drain(std::chrono::nanoseconds longest) {
  while (!queue_.empty()) {
    const std::uint32_t place = queue_.pop();
    --requests_[place].buffer->requests;
    free_.push_back(place);
  }
  const Clock::time_point begin = device_->now();
  while (in_flight_ != 0) {
    const std::size_t count = device_->poll(completions_);
    for (std::size_t i = 0; i < count; ++i) {
      const Request& r = requests_[static_cast<std::uint32_t>(completions_[i].user_data)];
      --(r.timed_out ? r.buffer->abandoned : r.buffer->requests);
    }
    in_flight_ -= count;
    if (count != 0) continue;
    const auto left = longest - (device_->now() - begin);
    if (left.count() <= 0) return false;
    device_->wait(std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(100)));
  }
  return true;
}

}  // namespace dlfs::reader
