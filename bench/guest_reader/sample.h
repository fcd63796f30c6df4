// What samples hold: bytes that say which sample they belong to, so that every reader can check all it is given.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace dlfs::guest {

// Word j of sample i is (i + 1) * kOfSample + j * kOfWord, modulo 2^64, in the byte order of the machine.
inline constexpr std::uint64_t kOfSample = 0x9E3779B97F4A7C15, kOfWord = 0xBF58476D1CE4E5B9;

// The number that times an odd `value` is 1 modulo 2^64 (Newton's iteration: each step doubles the right bits).
constexpr std::uint64_t inverse(std::uint64_t value) noexcept {
  std::uint64_t guess = value;
  for (int step = 0; step < 6; ++step) guess *= 2 - value * guess;
  return guess;
}
static_assert(inverse(kOfSample) * kOfSample == 1);

// **Precondition**: whole words.
inline void fill(std::uint64_t sample, std::span<std::byte> bytes) noexcept {
  std::uint64_t word = (sample + 1) * kOfSample;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof word, word += kOfWord)
    std::memcpy(bytes.data() + at, &word, sizeof word);
}

// Which samples came, each of `bytes` bytes. **Thread**: any, at the same time.
class Seen {
 public:
  Seen(std::uint64_t count, std::uint64_t bytes) : times_(count), bytes_(bytes) {}

  // Looks at every byte. False when these are not exactly the bytes of one of the samples.
  bool take(std::span<const std::byte> bytes) noexcept {
    std::uint64_t word = 0;
    if (bytes.size() != bytes_ || bytes.size() < sizeof word) return false;
    std::memcpy(&word, bytes.data(), sizeof word);
    const std::uint64_t sample = word * inverse(kOfSample) - 1;
    if (sample >= times_.size()) return false;
    std::uint64_t differs = 0, expected = word;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof word, expected += kOfWord) {
      std::memcpy(&word, bytes.data() + at, sizeof word);
      differs |= word ^ expected;
    }
    if (differs != 0) return false;
    times_[sample].fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  std::uint64_t distinct() const noexcept {
    std::uint64_t distinct = 0;
    for (const auto& times : times_) distinct += times != 0;
    return distinct;
  }
  // Whether each sample came `times` times.
  bool each_came(std::uint32_t times) const noexcept {
    for (const auto& came : times_)
      if (came != times) return false;
    return true;
  }

 private:
  std::vector<std::atomic<std::uint32_t>> times_;
  std::uint64_t bytes_;
};

}  // namespace dlfs::guest
