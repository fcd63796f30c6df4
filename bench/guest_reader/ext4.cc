// Plain files, read as a program without a library would read them.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "readers.h"
#include "sample.h"

namespace dlfs::guest {
namespace {

Error failed(const std::string& what, const std::string& path) {
  const int number = errno;
  return {Code::kIo, fmt::format("{} {}: {}", what, path, std::generic_category().message(number)), number};
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::vector<std::uint32_t> random_order(std::uint64_t count, std::uint64_t seed) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order;
}

struct Free {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using Buffer = std::unique_ptr<std::byte, Free>;
constexpr std::size_t kPage = 4096;
Buffer page_aligned(std::size_t bytes) {
  return Buffer(static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage)));
}

// Reads one sample into the buffer; where it lies there, or nothing with errno set.
using ReadOne = std::function<std::optional<Bytes>(std::uint64_t sample, std::byte* buffer)>;

// `threads` plain loops share one random order.
Result<Outcome> read_all(const Options& options, std::size_t buffer_bytes, const ReadOne& read_one) {
  const std::vector<std::uint32_t> order = random_order(options.count, options.seed);
  Seen seen(options.count, options.bytes);
  std::atomic<std::uint64_t> next{0}, read{0};
  std::mutex mutex;
  std::optional<Error> error;
  const Meter meter;
  auto loop = [&] {
    const Buffer buffer = page_aligned(buffer_bytes);
    std::uint64_t done = 0;
    for (std::uint64_t at; (at = next.fetch_add(1)) < order.size(); ++done) {
      if (options.seconds > 0 && meter.elapsed_s() >= options.seconds) break;
      const std::optional<Bytes> bytes = read_one(order[at], buffer.get());
      if (bytes && seen.take(*bytes)) continue;
      const std::lock_guard lock(mutex);
      error = bytes ? Error{Code::kCorrupt, fmt::format("sample {} of {} has other bytes", order[at], options.where)}
                    : failed(fmt::format("cannot read sample {} of", order[at]), options.where);
      next = order.size();
    }
    read += done;
  };
  std::vector<std::thread> others;
  for (std::uint64_t thread = 1; thread < options.threads; ++thread) others.emplace_back(loop);
  loop();
  for (std::thread& other : others) other.join();
  Outcome outcome{.samples = read, .epochs = read == options.count ? 1u : 0u};
  meter.stop(outcome);
  if (error) return *error;
  outcome.distinct = seen.distinct();
  return outcome;
}

}  // namespace

std::string sample_path(const std::string& folder, std::uint64_t sample) {
  return fmt::format("{}/{:02}/{:08}", folder, sample % 100, sample);
}

Result<Outcome> make_samples(const Options& options) {
  std::vector<std::byte> bytes(options.bytes);
  const Descriptor packed(options.packed, O_WRONLY | O_CREAT | O_TRUNC);
  if (packed.get() < 0) return failed("cannot create", options.packed);
  for (std::uint64_t folder = 0; folder < std::min<std::uint64_t>(options.count, 100); ++folder) {
    const std::string path = fmt::format("{}/{:02}", options.where, folder);
    if (::mkdir(path.c_str(), 0755) != 0) return failed("cannot make the folder", path);
  }
  for (std::uint64_t sample = 0; sample < options.count; ++sample) {
    fill(sample, bytes);
    const std::string path = sample_path(options.where, sample);
    const Descriptor file(path, O_WRONLY | O_CREAT | O_EXCL);
    const auto length = static_cast<ssize_t>(bytes.size());
    if (file.get() < 0 || ::write(file.get(), bytes.data(), bytes.size()) != length)
      return failed("cannot write", path);
    if (::write(packed.get(), bytes.data(), bytes.size()) != length) return failed("cannot write", options.packed);
  }
  return Outcome{.samples = options.count, .distinct = options.count};
}

Result<Outcome> read_files(const Options& options) {
  return read_all(options, options.bytes, [&](std::uint64_t sample, std::byte* buffer) -> std::optional<Bytes> {
    const Descriptor file(sample_path(options.where, sample), O_RDONLY);
    if (file.get() < 0) return std::nullopt;
    const ssize_t got = ::read(file.get(), buffer, options.bytes);
    if (got < 0) return std::nullopt;
    return Bytes(buffer, static_cast<std::size_t>(got));
  });
}

Result<Outcome> read_packed(const Options& options) {
  const Descriptor file(options.where, options.align == 0 ? O_RDONLY : O_RDONLY | O_DIRECT);
  if (file.get() < 0) return failed("cannot open", options.where);
  const std::uint64_t block = std::max<std::uint64_t>(options.align, 1);
  return read_all(options, options.bytes + 2 * block,
                  [&](std::uint64_t sample, std::byte* buffer) -> std::optional<Bytes> {
                    const std::uint64_t begin = sample * options.bytes, skip = begin % block;
                    const std::uint64_t length = (skip + options.bytes + block - 1) / block * block;
                    const ssize_t got = ::pread(file.get(), buffer, length, static_cast<off_t>(begin - skip));
                    if (got < 0) return std::nullopt;
                    const std::uint64_t useful = std::max<std::uint64_t>(static_cast<std::uint64_t>(got), skip) - skip;
                    return Bytes(buffer + skip, std::min(useful, options.bytes));
                  });
}

}  // namespace dlfs::guest
