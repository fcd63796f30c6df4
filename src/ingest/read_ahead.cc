#include "ingest/read_ahead.h"

#include <algorithm>
#include <utility>

#include "ingest/source_reader.h"

namespace dlfs::ingest {
namespace {
constexpr std::size_t kKeptBytes = 64u << 10;  // a slot's buffer that is kept for the next file
}

ReadAhead::ReadAhead(const Folder& folder, std::function<std::uint64_t(std::uint64_t)> order,
                     const ReadAheadOptions& options)
    : folder_(folder),
      order_(std::move(order)),
      options_(options),
      count_(folder.files().count()),
      slots_(std::min<std::uint64_t>(std::max<std::size_t>(options.files, 2), count_)) {
  for (unsigned i = 0; i < std::max(options_.threads, 1u); ++i) threads_.emplace_back([this] { work(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  threads_.clear();
}

bool ReadAhead::may_start(std::uint64_t bytes) const {
  if (started_ - released_ >= slots_.size()) return false;
  return charged_bytes_ == 0 || charged_bytes_ + bytes <= options_.memory_bytes;
}

std::uint64_t ReadAhead::charge(const SourceFile& file) const {
  return file.size_bytes > options_.whole_bytes ? 0 : std::max<std::uint64_t>(file.size_bytes, kKeptBytes / 2);
}

// Positions are started in order and pay for their memory when they start, so the one that the consumer waits for
// never waits for memory that later ones hold.
void ReadAhead::work() {
  std::unique_lock lock(mutex_);
  while (!stop_ && started_ < count_) {
    const std::uint64_t position = started_;
    if (!may_start(0)) {
      room_.wait(lock);
      continue;
    }
    Result<SourceFile> file = folder_.files().at(order_(position));
    const std::uint64_t bytes = file.ok() ? charge(*file) : 0;
    room_.wait(lock, [&] { return stop_ || started_ != position || may_start(bytes); });
    if (stop_ || started_ != position) continue;
    Slot& slot = slots_[position % slots_.size()];
    ++started_;
    charged_bytes_ += bytes;
    slot.charged_bytes = bytes;
    slot.loaded.index = order_(position);
    slot.loaded.error.reset();
    slot.loaded.whole = false;
    if (file.ok()) {
      slot.loaded.file = std::move(file).value();
    } else {
      slot.loaded.error = std::move(file).error();
    }
    lock.unlock();
    room_.notify_one();  // the next position may start beside this one
    load(slot.loaded);
    lock.lock();
    slot.ready = true;
    arrived_.notify_one();
  }
}

void ReadAhead::load(LoadedFile& loaded) const {
  loaded.bytes.clear();
  if (loaded.error || loaded.file.size_bytes > options_.whole_bytes) return;
  Result<void> read = read_whole(folder_, loaded.file, loaded.bytes);
  loaded.whole = read.ok();
  if (!read.ok()) loaded.error = std::move(read).error();
}

const LoadedFile* ReadAhead::next() {
  std::unique_lock lock(mutex_);
  if (released_ < delivered_) {
    Slot& last = slots_[released_ % slots_.size()];
    last.ready = false;
    charged_bytes_ -= last.charged_bytes;
    if (last.loaded.bytes.capacity() > kKeptBytes) last.loaded.bytes = {};
    ++released_;
    room_.notify_all();
  }
  if (delivered_ == count_) return nullptr;
  Slot& slot = slots_[delivered_ % slots_.size()];
  arrived_.wait(lock, [&] { return slot.ready; });
  ++delivered_;
  return &slot.loaded;
}

}  // namespace dlfs::ingest
