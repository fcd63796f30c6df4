// Devices that misbehave on purpose: one that asks before every request, one that loses power.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mix.h"
#include "block/device.h"
#include "volume/device_io.h"

namespace dlfs::volume::test {

// Passes requests on to another device unless `judge` gives an errno for them.
class JudgedDevice final : public block::BlockDevice {
 public:
  using Judge = std::function<int(const block::Request&)>;
  JudgedDevice(std::unique_ptr<block::BlockDevice> inner, Judge judge)
      : inner_(std::move(inner)), judge_(std::move(judge)) {}
  const block::Geometry& geometry() const noexcept override { return inner_->geometry(); }
  const std::string& url() const noexcept override { return inner_->url(); }
  const std::string& notes() const noexcept override { return inner_->notes(); }
  const char* engine() const noexcept override { return inner_->engine(); }
  std::size_t submit(std::span<const block::Request> requests) noexcept override {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const int reason = judge_(requests[i]);
      if (reason != 0)
        refused_.push_back(
            {.user_data = requests[i].user_data, .errno_value = reason, .nvme_status = 0, .length_bytes = 0});
      else if (inner_->submit(requests.subspan(i, 1)) == 0)
        return i;
    }
    return requests.size();
  }
  std::size_t poll(std::span<block::Completion> completions) noexcept override {
    std::size_t count = 0;
    for (; count < completions.size() && !refused_.empty(); refused_.pop_front())
      completions[count++] = refused_.front();
    return count + inner_->poll(completions.subspan(count));
  }
  int wait_descriptor() const noexcept override { return inner_->wait_descriptor(); }
  std::size_t in_flight() const noexcept override { return inner_->in_flight() + refused_.size(); }
  void register_memory(std::span<std::byte>) noexcept override {}

 private:
  std::unique_ptr<block::BlockDevice> inner_;
  Judge judge_;
  std::deque<block::Completion> refused_;
};

inline OpenDevice judged(JudgedDevice::Judge judge) {
  return [judge = std::move(judge)](std::string_view url,
                                    const block::OpenOptions& options) -> Result<std::unique_ptr<block::BlockDevice>> {
    auto inner = block::open_device(url, options);
    if (!inner.ok() || !options.write) return inner;
    return std::unique_ptr<block::BlockDevice>(std::make_unique<JudgedDevice>(std::move(inner).value(), judge));
  };
}

// A medium with a volatile write cache. Power fails at request number `fails_at`: from then on nothing works.
struct Medium {
  struct Write {
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };
  std::vector<std::byte> durable;
  std::vector<Write> cached;
  std::uint64_t requests = 0, fails_at = ~std::uint64_t{0};

  void flush() {
    for (const Write& write : cached)
      std::ranges::copy(write.bytes, durable.begin() + static_cast<std::ptrdiff_t>(write.offset));
    cached.clear();
  }
  // What is on the medium when power comes back: of the cached writes any 512-byte sectors may have made it, in any
  // order.
  std::vector<std::byte> after_power_loss(base::Prng& prng) const {
    std::vector<std::byte> image = durable;
    const std::uint64_t mode = prng.below(4);  // nothing, everything, whole writes, sectors
    for (const Write& write : cached) {
      const bool whole = prng.below(2) == 0;
      for (std::size_t at = 0; at < write.bytes.size(); at += 512) {
        const bool kept = mode == 1 || (mode == 2 && whole) || (mode == 3 && prng.below(2) == 0);
        if (kept)
          std::copy_n(write.bytes.begin() + static_cast<std::ptrdiff_t>(at), 512,
                      image.begin() + static_cast<std::ptrdiff_t>(write.offset + at));
      }
    }
    return image;
  }
};

class LossyDevice final : public block::BlockDevice {
 public:
  LossyDevice(std::shared_ptr<Medium> medium, std::string url)
      : medium_(std::move(medium)), url_(std::move(url)), event_(eventfd(1, EFD_CLOEXEC)) {
    geometry_ = {.capacity_bytes = medium_->durable.size(),
                 .block_bytes = 512,
                 .memory_alignment_bytes = 1,
                 .preferred_transfer_bytes = 65536,
                 .max_transfer_bytes = 1 << 20,
                 .max_in_flight = 8,
                 .read_only = false,
                 .growable = false};
  }
  ~LossyDevice() override { close(event_); }
  const block::Geometry& geometry() const noexcept override { return geometry_; }
  const std::string& url() const noexcept override { return url_; }
  const std::string& notes() const noexcept override { return notes_; }
  const char* engine() const noexcept override { return "lossy"; }
  std::size_t submit(std::span<const block::Request> requests) noexcept override {
    std::size_t taken = 0;
    for (; taken < requests.size() && done_.size() < geometry_.max_in_flight; ++taken)
      done_.push_back(run(requests[taken]));
    return taken;
  }
  std::size_t poll(std::span<block::Completion> completions) noexcept override {
    std::size_t count = 0;
    for (; count < completions.size() && !done_.empty(); done_.pop_front()) completions[count++] = done_.front();
    return count;
  }
  int wait_descriptor() const noexcept override { return event_; }
  std::size_t in_flight() const noexcept override { return done_.size(); }
  void register_memory(std::span<std::byte>) noexcept override {}

 private:
  block::Completion run(const block::Request& request) {
    block::Completion completion{
        .user_data = request.user_data, .errno_value = 0, .nvme_status = 0, .length_bytes = request.length_bytes};
    if (medium_->requests++ >= medium_->fails_at) {
      completion.errno_value = ENODEV;
    } else if (request.op == block::Op::kFlush) {
      medium_->flush();
    } else if (request.offset_bytes + request.length_bytes > geometry_.capacity_bytes) {
      completion.errno_value = ENOSPC;
    } else if (request.op == block::Op::kWrite) {
      medium_->cached.push_back({request.offset_bytes, {request.data, request.data + request.length_bytes}});
    } else {
      read(request);
    }
    return completion;
  }
  void read(const block::Request& request) {
    std::copy_n(medium_->durable.begin() + static_cast<std::ptrdiff_t>(request.offset_bytes), request.length_bytes,
                request.data);
    for (const Medium::Write& write : medium_->cached) {
      const std::uint64_t from = std::max(write.offset, request.offset_bytes);
      const std::uint64_t to = std::min(write.offset + write.bytes.size(), request.offset_bytes + request.length_bytes);
      if (from < to)
        std::memcpy(request.data + (from - request.offset_bytes), write.bytes.data() + (from - write.offset),
                    to - from);
    }
  }

  std::shared_ptr<Medium> medium_;
  std::string url_, notes_;
  block::Geometry geometry_;
  int event_;
  std::deque<block::Completion> done_;
};

inline OpenDevice lossy(std::shared_ptr<Medium> medium) {
  return [medium](std::string_view url, const block::OpenOptions&) -> Result<std::unique_ptr<block::BlockDevice>> {
    return std::unique_ptr<block::BlockDevice>(std::make_unique<LossyDevice>(medium, std::string(url)));
  };
}

}  // namespace dlfs::volume::test
