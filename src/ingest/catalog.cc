#include "ingest/catalog.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <queue>

#include "base/check.h"
#include "base/error.h"
#include "base/try.h"

namespace dlfs::ingest {
namespace {

// An entry of the spool. This machine's byte order: the file never leaves the process.
struct EntryHeader {
  std::uint64_t size_bytes;
  std::int64_t modified_ns;
  std::uint32_t label;
  std::uint32_t name_bytes;
};
static_assert(sizeof(EntryHeader) == 24);

constexpr std::uint64_t kStride = 16;  // entries between two remembered offsets
constexpr std::size_t kMaxEntryBytes = sizeof(EntryHeader) + 4096;
constexpr std::size_t kMergeMemoryBytes = 32u << 20;

EntryHeader header_at(const std::byte* entry) {
  EntryHeader header;
  std::memcpy(&header, entry, sizeof header);
  return header;
}

std::string_view name_at(const std::byte* entry) {
  return {reinterpret_cast<const char*>(entry) + sizeof(EntryHeader), header_at(entry).name_bytes};
}

Error spool_too_short() {
  return base::make_error(Code::kIo, "the temporary list of files was cut short while it was in use; pack again");
}

// Reads the entries of one sorted run through a buffer of its own.
class RunReader {
 public:
  RunReader(const Spool& spool, std::uint64_t begin, std::uint64_t end, std::size_t buffer_bytes)
      : spool_(&spool), next_(begin), end_(end), buffer_(std::max(buffer_bytes, kMaxEntryBytes)) {}

  // The entry at the front, or null at the end of the run.
  const std::byte* front() const { return entry_bytes_ == 0 ? nullptr : buffer_.data() + at_; }
  std::size_t front_bytes() const { return entry_bytes_; }

  Result<void> advance() {
    at_ += entry_bytes_;
    entry_bytes_ = 0;
    if (filled_ - at_ < kMaxEntryBytes && next_ < end_) DLFS_TRY(refill());
    if (at_ == filled_) return {};
    if (filled_ - at_ < sizeof(EntryHeader)) return spool_too_short();
    const std::size_t bytes = sizeof(EntryHeader) + header_at(buffer_.data() + at_).name_bytes;
    if (filled_ - at_ < bytes) return spool_too_short();
    entry_bytes_ = bytes;
    return {};
  }

 private:
  Result<void> refill() {
    std::memmove(buffer_.data(), buffer_.data() + at_, filled_ - at_);
    filled_ -= at_;
    at_ = 0;
    const std::size_t want = std::min<std::uint64_t>(buffer_.size() - filled_, end_ - next_);
    DLFS_TRY_ASSIGN(const std::size_t got, spool_->read_at(next_, std::span(buffer_).subspan(filled_, want)));
    if (got != want) return spool_too_short();
    filled_ += got;
    next_ += got;
    return {};
  }

  const Spool* spool_;
  std::uint64_t next_, end_;
  std::vector<std::byte> buffer_;
  std::size_t at_ = 0, filled_ = 0, entry_bytes_ = 0;
};

}  // namespace

Result<SourceFile> Catalog::at(std::uint64_t index) const {
  DLFS_CHECK(index < count_);
  const std::uint64_t block = index / kStride;
  const std::uint64_t begin = offsets_[block];
  const std::uint64_t end = block + 1 < offsets_.size() ? offsets_[block + 1] : spool_.size();
  std::vector<std::byte> bytes(end - begin);
  DLFS_TRY_ASSIGN(const std::size_t got, spool_.read_at(begin, bytes));
  if (got != bytes.size()) return spool_too_short();
  const std::byte* entry = bytes.data();
  for (std::uint64_t i = index % kStride; i > 0; --i) entry += sizeof(EntryHeader) + header_at(entry).name_bytes;
  const EntryHeader header = header_at(entry);
  return SourceFile{std::string(name_at(entry)), header.size_bytes, header.modified_ns, header.label};
}

Result<CatalogBuilder> CatalogBuilder::create(const std::string& spool_directory, std::size_t memory_bytes) {
  DLFS_TRY_ASSIGN(Spool runs, Spool::create(spool_directory));
  return CatalogBuilder(std::move(runs), spool_directory, std::max<std::size_t>(memory_bytes, 64u << 10));
}

Result<void> CatalogBuilder::add(std::string_view name, std::uint64_t size_bytes, std::int64_t modified_ns,
                                 std::uint32_t label) {
  DLFS_CHECK(name.size() < 4096);
  if (buffer_.size() + positions_.size() * sizeof(std::uint32_t) + kMaxEntryBytes > memory_bytes_) DLFS_TRY(spill());
  const EntryHeader header{size_bytes, modified_ns, label, static_cast<std::uint32_t>(name.size())};
  positions_.push_back(static_cast<std::uint32_t>(buffer_.size()));
  const auto* head = reinterpret_cast<const std::byte*>(&header);
  const auto* text = reinterpret_cast<const std::byte*>(name.data());
  buffer_.insert(buffer_.end(), head, head + sizeof header);
  buffer_.insert(buffer_.end(), text, text + name.size());
  ++count_;
  return {};
}

Result<void> CatalogBuilder::spill() {
  if (positions_.empty()) return {};
  std::sort(positions_.begin(), positions_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return name_at(buffer_.data() + a) < name_at(buffer_.data() + b);
  });
  const std::uint64_t begin = spool_.size();
  for (const std::uint32_t position : positions_) {
    const std::byte* entry = buffer_.data() + position;
    DLFS_TRY(spool_.append({entry, sizeof(EntryHeader) + header_at(entry).name_bytes}));
  }
  runs_.push_back({begin, spool_.size()});
  positions_.clear();
  buffer_.clear();
  return {};
}

Result<Catalog> CatalogBuilder::finish() && {
  DLFS_TRY(spill());
  DLFS_TRY(spool_.flush());
  buffer_ = {};
  positions_ = {};

  std::vector<RunReader> readers;
  readers.reserve(runs_.size());
  for (const Run& run : runs_) {
    readers.emplace_back(spool_, run.begin, run.end, std::min<std::size_t>(kMergeMemoryBytes / runs_.size(), 1u << 20));
  }
  auto later = [&](std::size_t a, std::size_t b) { return name_at(readers[a].front()) > name_at(readers[b].front()); };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> heap(later);
  for (std::size_t i = 0; i < readers.size(); ++i) {
    DLFS_TRY(readers[i].advance());
    if (readers[i].front() != nullptr) heap.push(i);
  }

  DLFS_TRY_ASSIGN(Spool sorted, Spool::create(directory_));
  Catalog catalog(std::move(sorted));
  std::optional<std::string> previous;
  while (!heap.empty()) {
    const std::size_t run = heap.top();
    heap.pop();
    const std::byte* entry = readers[run].front();
    if (!previous || *previous != name_at(entry)) {
      previous = name_at(entry);
      if (catalog.count_ % kStride == 0) catalog.offsets_.push_back(catalog.spool_.size());
      DLFS_TRY(catalog.spool_.append({entry, readers[run].front_bytes()}));
      ++catalog.count_;
      catalog.total_bytes_ += header_at(entry).size_bytes;
    }
    DLFS_TRY(readers[run].advance());
    if (readers[run].front() != nullptr) heap.push(run);
  }
  DLFS_TRY(catalog.spool_.flush());
  return catalog;
}

}  // namespace dlfs::ingest
