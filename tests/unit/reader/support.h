// Volumes whose every byte names its sample, the order that a reader must follow, and devices that misbehave on
// request.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mix.h"
#include "block/device.h"
#include "order/order.h"
#include "reader/placement.h"
#include "reader/reader.h"
#include "support/temporary_directory.h"
#include "volume/volume.h"
#include "volume/writer.h"

namespace dlfs::reader::test {

using testing_support::TemporaryDirectory;

inline std::byte byte_of(std::uint64_t id, std::uint64_t i) {
  return static_cast<std::byte>(base::mix64(base::mix64(id + 77) + i / 8) >> (i % 8 * 8));
}
inline std::vector<std::byte> bytes_of(std::uint64_t id, std::uint64_t length) {
  std::vector<std::uint64_t> words(length / 8 + 1);
  for (std::uint64_t w = 0; w < words.size(); ++w) words[w] = base::mix64(base::mix64(id + 77) + w);
  const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
  return {bytes, bytes + length};
}

inline std::vector<std::uint64_t> random_lengths(std::size_t count, std::uint64_t bound, std::uint64_t seed = 1) {
  base::Prng prng(seed);
  std::vector<std::uint64_t> lengths(count);
  for (auto& length : lengths) length = prng.below(bound);
  return lengths;
}

inline layout::Schema image_schema() {
  layout::Schema schema;
  schema.fields.push_back({.name = "image", .kind = layout::Kind::kBytes, .dtype = {}, .shape = {}});
  schema.fields.push_back(
      {.name = "label", .kind = layout::Kind::kTensor, .dtype = layout::DType::kInt64, .shape = {}});
  return schema;
}

inline std::int64_t label_of(std::uint64_t id) { return static_cast<std::int64_t>(base::mix64(id) % 1000); }

// Packs samples {image of these lengths, label}.
inline void pack(const std::string& url, const std::vector<std::uint64_t>& lengths,
                 std::uint32_t chunk_bytes = 64u << 10) {
  volume::WriterOptions options;
  options.chunk_bytes = chunk_bytes;
  auto writer = volume::Writer::create(url, image_schema(), options);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (std::uint64_t id = 0; id < lengths.size(); ++id) {
    const auto image = bytes_of(id, lengths[id]);
    const std::int64_t label = label_of(id);
    const layout::FieldValue fields[] = {image, std::as_bytes(std::span(&label, 1))};
    const auto appended = (*writer)->append("train/" + std::to_string(id) + ".jpg", fields);
    ASSERT_TRUE(appended.ok()) << appended.error().message;
  }
  const auto committed = (*writer)->commit();
  ASSERT_TRUE(committed.ok()) << committed.error().message;
}

inline std::shared_ptr<const volume::Volume> mount(const std::string& url, const volume::MountOptions& options = {}) {
  auto volume = volume::Volume::mount(url, options);
  if (!volume.ok()) {
    ADD_FAILURE() << volume.error().message;
    return nullptr;
  }
  return *volume;
}

// The ids of every batch of one epoch, from the order alone.
inline std::vector<std::vector<std::uint32_t>> expected_batches(const std::shared_ptr<const volume::Volume>& volume,
                                                                const order::Parameters& parameters) {
  auto epoch = order::Epoch::create(parameters, volume->size(), std::make_shared<const VolumePlacement>(volume));
  EXPECT_TRUE(epoch.ok());
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

// Every byte of every field is as packed.
inline void expect_contents(const Batch& batch, const std::vector<std::uint64_t>& lengths) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::uint32_t id = batch.ids()[i];
    const layout::FieldValue image = batch.field(i, 0);
    ASSERT_EQ(image.size(), lengths[id]) << id;
    const auto expected = bytes_of(id, lengths[id]);
    ASSERT_TRUE(image.empty() || std::memcmp(image.data(), expected.data(), image.size()) == 0) << id;
    const layout::FieldValue label = batch.field(i, 1);
    ASSERT_EQ(label.size(), 8u);
    std::int64_t value = 0;
    std::memcpy(&value, label.data(), 8);
    ASSERT_EQ(value, label_of(id));
  }
}

inline constexpr std::chrono::milliseconds kLong{60'000};

// Reads to the end and compares with the order; returns the reader's statistics.
inline Statistics expect_run(const std::shared_ptr<const volume::Volume>& volume, const Options& options,
                             const std::vector<std::uint64_t>& lengths) {
  auto reader = Reader::open(volume, options);
  EXPECT_TRUE(reader.ok()) << (reader.ok() ? "" : reader.error().message);
  if (!reader.ok()) return {};
  std::uint64_t start = options.start_batch;
  for (std::uint64_t e = 0; e < options.epochs; ++e, start = 0) {
    order::Parameters parameters = options.order;
    parameters.epoch += e;
    const auto expected = expected_batches(volume, parameters);
    EXPECT_EQ((*reader)->batches_per_epoch(), expected.size());
    for (std::uint64_t g = start; g < expected.size(); ++g) {
      EXPECT_EQ((*reader)->position().parameters.epoch, parameters.epoch);
      EXPECT_EQ((*reader)->position().next_batch, g);
      auto batch = (*reader)->next(kLong);
      EXPECT_TRUE(batch.ok()) << (batch.ok() ? "" : batch.error().message);
      if (!batch.ok() || *batch == nullptr) {
        ADD_FAILURE() << "no batch " << g << " of epoch " << e;
        return (*reader)->statistics();
      }
      EXPECT_EQ((*batch)->epoch(), parameters.epoch);
      EXPECT_EQ((*batch)->number(), g);
      EXPECT_TRUE(std::ranges::equal((*batch)->ids(), expected[g])) << "batch " << g;
      expect_contents(**batch, lengths);
      if (testing::Test::HasFatalFailure()) return (*reader)->statistics();
    }
  }
  auto end = (*reader)->next(kLong);
  EXPECT_TRUE(end.ok() && *end == nullptr);
  const Statistics statistics = (*reader)->statistics();
  EXPECT_LE(statistics.memory_peak_bytes, options.cache_bytes);
  return statistics;
}

// ---- devices that misbehave ----

struct Verdict {
  int fail_with = 0;  // errno
  std::chrono::milliseconds delay{0};
  bool never = false;  // the request does not come back before the device is released
};

// Decides over every read of data; shared by all handles of a volume. **Thread**: any.
class Faults {
 public:
  using Decide = std::function<Verdict(const block::Request&)>;
  void set(Decide decide) {
    const std::lock_guard lock(mutex_);
    decide_ = std::move(decide);
  }
  Verdict judge(const block::Request& request) {
    const std::lock_guard lock(mutex_);
    return decide_ ? decide_(request) : Verdict{};
  }
  void release_stuck() { released_.store(true); }
  bool released() const { return released_.load(); }

 private:
  std::mutex mutex_;
  Decide decide_;
  std::atomic<bool> released_{false};
};

class FaultyDevice final : public block::BlockDevice {
 public:
  FaultyDevice(std::unique_ptr<block::BlockDevice> inner, std::shared_ptr<Faults> faults)
      : inner_(std::move(inner)),
        faults_(std::move(faults)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (const int fd : {inner_->wait_descriptor(), timer_}) {
      epoll_event event{.events = EPOLLIN, .data = {}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
  }
  ~FaultyDevice() override {
    std::vector<block::Completion> completions(64);
    for (int i = 0; in_flight() != 0 && i < 20'000; ++i) {  // waits for what is in flight, as every device does
      poll(completions);
      usleep(500);
    }
    EXPECT_EQ(in_flight(), 0u) << "destroyed with requests in flight";
    close(epoll_);
    close(timer_);
  }
  const block::Geometry& geometry() const noexcept override { return inner_->geometry(); }
  const std::string& url() const noexcept override { return inner_->url(); }
  const std::string& notes() const noexcept override { return inner_->notes(); }
  const char* engine() const noexcept override { return inner_->engine(); }

  std::size_t submit(std::span<const block::Request> requests) noexcept override {
    std::size_t taken = 0;
    for (const block::Request& request : requests) {
      const Verdict verdict = faults_->judge(request);
      if (verdict.fail_with == 0 && verdict.delay.count() == 0 && !verdict.never) {
        if (inner_->submit({&request, 1}) == 0) break;
      } else {
        held_.push_back({request, verdict, std::chrono::steady_clock::now() + verdict.delay});
        arm();
      }
      ++taken;
    }
    return taken;
  }

  std::size_t poll(std::span<block::Completion> completions) noexcept override {
    std::size_t count = 0;
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < held_.size() && count < completions.size();) {
      const Held& held = held_[i];
      const bool due = held.verdict.never ? faults_->released() : now >= held.due;
      if (due && held.verdict.fail_with == 0 && !held.verdict.never && inner_->submit({&held.request, 1}) == 0) break;
      if (due && (held.verdict.fail_with != 0 || held.verdict.never)) {
        completions[count++] = {held.request.user_data, held.verdict.never ? EIO : held.verdict.fail_with, 0, 0};
      }
      if (due) {
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    if (!held_.empty()) arm();
    return count + inner_->poll(completions.subspan(count));
  }

  int wait_descriptor() const noexcept override { return epoll_; }
  std::size_t in_flight() const noexcept override { return inner_->in_flight() + held_.size(); }
  void register_memory(std::span<std::byte>) noexcept override {}

 private:
  struct Held {
    block::Request request;
    Verdict verdict;
    std::chrono::steady_clock::time_point due;
  };
  void arm() noexcept {  // wakes whoever sleeps on the descriptor every millisecond: simple, and it hides no lost
                         // wake-up of ours
    std::uint64_t ticks = 0;
    [[maybe_unused]] const ssize_t got = read(timer_, &ticks, sizeof ticks);
    const itimerspec soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = 1'000'000}};
    timerfd_settime(timer_, 0, &soon, nullptr);
  }

  std::unique_ptr<block::BlockDevice> inner_;
  std::shared_ptr<Faults> faults_;
  int timer_, epoll_;
  std::vector<Held> held_;
};

inline volume::MountOptions faulty_options(std::shared_ptr<Faults> faults) {
  volume::MountOptions options;
  options.open_device = [faults = std::move(faults)](
                            std::string_view url,
                            const block::OpenOptions& open) -> Result<std::unique_ptr<block::BlockDevice>> {
    auto device = block::open_device(url, open);
    if (!device.ok()) return std::move(device).error();
    return std::unique_ptr<block::BlockDevice>(std::make_unique<FaultyDevice>(std::move(*device), faults));
  };
  return options;
}

}  // namespace dlfs::reader::test
