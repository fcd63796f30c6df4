#include "volume/section_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "volume/device_io.h"

namespace dlfs::volume {

Result<void> SectionWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (buffer_.empty()) {
      DLFS_TRY_ASSIGN(buffer_, queue_.acquire());
    }
    const std::size_t count = std::min<std::size_t>(bytes.size(), buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, bytes.data(), count);
    used_ += count;
    bytes = bytes.subspan(count);
    if (used_ == buffer_.size()) DLFS_TRY(write_buffer());
  }
  return {};
}

Result<void> SectionWriter::align(std::uint64_t unit_bytes) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  std::uint64_t missing = round_up(position(), unit_bytes) - position();
  while (missing > 0) {
    const std::uint64_t count = std::min<std::uint64_t>(missing, kZeros.size());
    DLFS_TRY(append(std::span(kZeros).first(count)));
    missing -= count;
  }
  return {};
}

Result<void> SectionWriter::finish() { return used_ > 0 ? write_buffer() : Result<void>(); }

Result<void> SectionWriter::write_buffer() {
  const std::uint64_t length = std::exchange(used_, 0);
  const std::uint64_t offset = std::exchange(begin_, begin_ + length);
  return write_(std::exchange(buffer_, {}), length, offset);
}

}  // namespace dlfs::volume
