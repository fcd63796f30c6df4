#include "volume/name_spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/endian.h"
#include "base/error.h"
#include "base/try.h"

namespace dlfs::volume {
namespace {

// An entry: u32 id, u16 length, the name.
constexpr std::size_t kEntryHeader = 6;
constexpr std::size_t kBufferBytes = 1u << 20;
constexpr std::uint64_t kGroupIds = 4096;
// At least the 16.8 MB that one group of the longest names takes, so that every group fits in a bucket.
constexpr std::uint64_t kBucketBytes = 24u << 20;
constexpr std::size_t kDealBufferBytes = 16u << 10;

// Makes a file that nobody else sees and that is gone when the descriptor is closed, also after a kill.
int open_unlinked(const std::string& directory) {
  const int anonymous = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (anonymous >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
    return anonymous;
  std::string path = directory + "/.dlfs-names-XXXXXX";  // file systems without O_TMPFILE
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

Result<void> write_fully(int file, std::span<const std::byte> bytes, std::uint64_t offset,
                         const std::string& directory) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return base::errno_error(
          errno, fmt::format("cannot write the temporary file for names in '{}' (choose another spool directory)",
                             base::escape(directory)));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<void> read_fully(int file, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::errno_error(errno, "cannot read the temporary file for names");
    if (count == 0) return base::make_error(Code::kIo, "the temporary file for names was cut short by somebody else");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

void append_entry(std::vector<std::byte>& to, SampleId id, std::string_view name) {
  const std::size_t at = to.size();
  to.resize(at + kEntryHeader + name.size());
  base::store_le<std::uint32_t>(to.data() + at, id.value);
  base::store_le<std::uint16_t>(to.data() + at + 4, static_cast<std::uint16_t>(name.size()));
  std::memcpy(to.data() + at + kEntryHeader, name.data(), name.size());
}

struct Entry {
  SampleId id;
  std::string_view name;
  std::size_t bytes = 0;
};
// The entry at the front of `bytes`; its bytes are 0 when it is not there whole.
Entry entry_at(std::span<const std::byte> bytes) {
  if (bytes.size() < kEntryHeader) return {};
  const std::size_t length = base::load_le<std::uint16_t>(bytes.data() + 4);
  if (bytes.size() < kEntryHeader + length) return {};
  return {SampleId{base::load_le<std::uint32_t>(bytes.data())},
          {reinterpret_cast<const char*>(bytes.data()) + kEntryHeader, length},
          kEntryHeader + length};
}

}  // namespace

FileHandle::FileHandle(FileHandle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
FileHandle::~FileHandle() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<NameSpool> NameSpool::create(std::vector<std::string> directories) {
  NameSpool spool;
  spool.directories_ = std::move(directories);
  DLFS_TRY_ASSIGN(spool.file_, spool.make_file());
  spool.buffer_.reserve(kBufferBytes + kEntryHeader + 65535);
  return spool;
}

Result<FileHandle> NameSpool::make_file() {
  for (const std::string& directory : directories_) {
    directory_ = directory;
    if (FileHandle file(open_unlinked(directory)); file) return file;
  }
  return base::errno_error(errno,
                           fmt::format("cannot make a temporary file for names in '{}' (choose a spool directory)",
                                       base::escape(directory_)));
}

Result<void> NameSpool::add(SampleId id, std::string_view name) {
  DLFS_CHECK(!dealt_ && name.size() <= 65535);
  ascending_ = ascending_ && (!any_ || id.value > last_);
  any_ = true;
  last_ = id.value;
  const std::size_t group = id.value / kGroupIds;
  if (group >= group_bytes_.size()) group_bytes_.resize(group + 1);
  group_bytes_[group] += kEntryHeader + name.size();
  append_entry(buffer_, id, name);
  if (buffer_.size() >= kBufferBytes) DLFS_TRY(flush());
  return {};
}

Result<void> NameSpool::flush() {
  DLFS_TRY(write_fully(file_.get(), buffer_, written_, directory_));
  written_ += buffer_.size();
  buffer_.clear();
  return {};
}

Result<void> NameSpool::for_each(const Visit& visit) {
  DLFS_TRY(flush());
  if (ascending_) {
    DLFS_TRY_ASSIGN(const bool all, visit_file(visit));
    static_cast<void>(all);
    return {};
  }
  if (!dealt_) DLFS_TRY(deal());
  for (const Bucket& bucket : buckets_) {
    DLFS_TRY_ASSIGN(const bool more, visit_bucket(bucket, visit));
    if (!more) break;
  }
  return {};
}

Result<bool> NameSpool::visit_file(const Visit& visit) const {
  std::vector<std::byte> memory(kBufferBytes);
  std::size_t kept = 0;
  for (std::uint64_t offset = 0; offset < written_;) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(memory.size() - kept, written_ - offset));
    DLFS_TRY(read_fully(file_.get(), std::span(memory).subspan(kept, count), offset));
    offset += count;
    std::span<const std::byte> rest = std::span(memory).first(kept + count);
    for (Entry entry = entry_at(rest); entry.bytes > 0; entry = entry_at(rest)) {
      DLFS_TRY_ASSIGN(const bool more, visit(entry.id, entry.name));
      if (!more) return false;
      rest = rest.subspan(entry.bytes);
    }
    kept = rest.size();
    std::memmove(memory.data(), rest.data(), kept);
  }
  return true;
}

std::vector<NameSpool::Bucket> NameSpool::plan_buckets() const {
  std::vector<Bucket> buckets;
  std::uint64_t offset = 0;
  for (std::uint64_t group = 0; group < group_bytes_.size(); ++group) {
    const std::uint64_t bytes = group_bytes_[group];
    if (buckets.empty() || buckets.back().bytes + bytes > kBucketBytes) buckets.push_back({group, offset, 0});
    buckets.back().bytes += bytes;
    offset += bytes;
  }
  return buckets;
}

Result<void> NameSpool::deal() {
  DLFS_TRY_ASSIGN(sorted_, make_file());
  buckets_ = plan_buckets();
  struct Pending {
    std::vector<std::byte> bytes;
    std::uint64_t written = 0;
  };
  std::vector<Pending> pending(buckets_.size());
  auto flush_bucket = [&](std::size_t i) -> Result<void> {
    DLFS_TRY(write_fully(sorted_.get(), pending[i].bytes, buckets_[i].offset + pending[i].written, directory_));
    pending[i].written += pending[i].bytes.size();
    pending[i].bytes.clear();
    return {};
  };
  const auto visited = visit_file([&](SampleId id, std::string_view name) -> Result<bool> {
    const std::uint64_t group = id.value / kGroupIds;
    const auto after = std::upper_bound(buckets_.begin(), buckets_.end(), group,
                                        [](std::uint64_t g, const Bucket& bucket) { return g < bucket.first_group; });
    const auto i = static_cast<std::size_t>(after - buckets_.begin()) - 1;
    append_entry(pending[i].bytes, id, name);
    if (pending[i].bytes.size() >= kDealBufferBytes) DLFS_TRY(flush_bucket(i));
    return true;
  });
  if (!visited.ok()) return visited.error();
  for (std::size_t i = 0; i < pending.size(); ++i) DLFS_TRY(flush_bucket(i));
  file_ = FileHandle();
  dealt_ = true;
  return {};
}

Result<bool> NameSpool::visit_bucket(const Bucket& bucket, const Visit& visit) const {
  std::vector<std::byte> memory(bucket.bytes);
  DLFS_TRY(read_fully(sorted_.get(), memory, bucket.offset));
  struct Position {
    std::uint32_t id, offset;
  };
  std::vector<Position> positions;
  for (std::size_t at = 0; at < memory.size();) {
    const Entry entry = entry_at(std::span(memory).subspan(at));
    if (entry.bytes == 0)
      return base::make_error(Code::kIo, "the temporary file for names was changed by somebody else");
    positions.push_back({entry.id.value, static_cast<std::uint32_t>(at)});
    at += entry.bytes;
  }
  std::ranges::sort(positions, {}, &Position::id);
  for (const Position& position : positions) {
    const Entry entry = entry_at(std::span(memory).subspan(position.offset));
    DLFS_TRY_ASSIGN(const bool more, visit(entry.id, entry.name));
    if (!more) return false;
  }
  return true;
}

}  // namespace dlfs::volume
