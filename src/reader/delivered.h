// The batches that users hold.
#pragma once

#include <memory>

#include "base/arena.h"
#include "reader/channel.h"
#include "reader/reader.h"

namespace dlfs::reader {

// Over a body that somebody else owns or that a subclass does.
class BodyBatch : public Batch {
 public:
  BodyBatch(std::shared_ptr<const volume::Volume> volume, BatchBody* body) : volume_(std::move(volume)), body_(body) {}
  std::uint64_t epoch() const noexcept override { return body_->epoch; }
  std::uint64_t number() const noexcept override { return body_->number; }
  std::span<const std::uint32_t> ids() const noexcept override { return body_->ids; }
  std::size_t size() const noexcept override { return body_->size(); }
  std::uint32_t padding() const noexcept override { return body_->padding; }
  layout::FieldValue field(std::size_t i, std::size_t field) const noexcept override;
  std::uint64_t gather(std::size_t field, std::span<std::byte> into,
                       std::span<std::uint64_t> offsets) const noexcept override;

 protected:
  void locate() const;  // on first use: most consumers look at every field or at none

  std::shared_ptr<const volume::Volume> volume_;
  BatchBody* body_;
};

// A reader's batch: its body goes back through the channel.
class ReaderBatch final : public BodyBatch {
 public:
  ReaderBatch(std::shared_ptr<const volume::Volume> volume, std::shared_ptr<Channel> channel, BatchBody* body)
      : BodyBatch(std::move(volume), body), channel_(std::move(channel)) {}
  ~ReaderBatch() override;
  std::uint64_t gather(std::size_t field, std::span<std::byte> into,
                       std::span<std::uint64_t> offsets) const noexcept override;

 private:
  std::shared_ptr<Channel> channel_;
};

// A batch with memory of its own, of read_samples().
class OwnedBatch final : public BodyBatch {
 public:
  explicit OwnedBatch(std::shared_ptr<const volume::Volume> volume) : BodyBatch(std::move(volume), &own_) {}
  BatchBody& body() noexcept { return own_; }
  base::Arena& memory() noexcept { return memory_; }

 private:
  BatchBody own_;
  base::Arena memory_;
};

}  // namespace dlfs::reader
