// FileDevice above an engine that misbehaves as the kernel may: short, interrupted, out of order, refusing O_DIRECT.
#include "block/file_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "base/mix.h"
#include "temporary_file.h"

namespace dlfs::block {
namespace {

using ::testing::HasSubstr;

// Runs pieces in reap(), newest first. `fault` sees each piece before it runs: it may shorten it, or give a result
// instead.
class FaultyEngine final : public Engine {
 public:
  using Fault = std::function<std::optional<int>(Piece&)>;
  FaultyEngine(int fd, Fault fault) : fd_(fd), event_(eventfd(1, EFD_CLOEXEC)), fault_(std::move(fault)) {}

  const char* name() const noexcept override { return "faulty"; }
  void queue(const Piece& piece) noexcept override { pieces_.push_back(piece); }
  void kick() noexcept override {}
  std::size_t unstarted() const noexcept override { return 0; }
  std::size_t reap(std::span<Finished> into) noexcept override {
    std::size_t count = 0;
    while (count < into.size() && !pieces_.empty()) {
      const Piece piece = pieces_.back();
      pieces_.pop_back();
      into[count++] = {piece.token, run(piece)};
    }
    return count;
  }
  int wait_descriptor() const noexcept override { return event_.get(); }  // always readable
  void register_memory(std::span<std::byte>) noexcept override {}
  void abandon() noexcept override {}

 private:
  int run(Piece piece) const {
    if (piece.kind == PieceKind::kNothing) return 0;
    if (const auto result = fault_(piece)) return *result;
    const auto offset = static_cast<off_t>(piece.offset_bytes);
    ssize_t result = 0;
    if (piece.kind == PieceKind::kRead) result = pread(fd_, piece.data, piece.length_bytes, offset);
    if (piece.kind == PieceKind::kWrite) result = pwrite(fd_, piece.data, piece.length_bytes, offset);
    return result < 0 ? -errno : static_cast<int>(result);
  }

  int fd_;
  Descriptor event_;
  Fault fault_;
  std::vector<Piece> pieces_;
};

class FaultyFile : public ::testing::Test {
 protected:
  std::unique_ptr<BlockDevice> open(FaultyEngine::Fault fault, OpenOptions options = {.write = true}) {
    auto file = open_file(file_.path(), options);
    EXPECT_TRUE(file.ok());
    direct_ = file->direct;
    auto engine = std::make_unique<FaultyEngine>(file->fd.get(), std::move(fault));
    return std::make_unique<FileDevice>(std::move(file).value(), std::move(engine));
  }
  std::span<std::byte> bytes() { return arena_.bytes(); }
  std::span<std::byte> back() { return arena_back_.bytes(); }
  void fill() {
    base::Prng prng(5);
    for (std::byte& b : bytes()) b = static_cast<std::byte>(prng.next());
  }

  TemporaryFile file_{1u << 20};
  base::Arena arena_ = base::Arena::create(1u << 20, false).value();
  base::Arena arena_back_ = base::Arena::create(1u << 20, false).value();
  bool direct_ = false;
};

TEST_F(FaultyFile, short_and_interrupted_transfers_are_continued) {
  base::Prng prng(1);
  std::size_t faults = 0;
  const auto fault = [&](Piece& piece) -> std::optional<int> {
    switch (prng.below(4)) {
      case 0:
        return ++faults, -EINTR;
      case 1:
        return ++faults, -EAGAIN;
      case 2:
        if (piece.length_bytes > 512) {
          ++faults;
          piece.length_bytes = static_cast<std::uint32_t>(prng.below(piece.length_bytes / 512) + 1) * 512;
        }
        return std::nullopt;
      default:
        return std::nullopt;
    }
  };
  fill();
  for (const bool direct : {true, false}) {
    auto device = open(fault, {.write = true, .direct = direct});
    ASSERT_TRUE(write_all(*device, 0, bytes()).ok());
    std::fill(back().begin(), back().end(), std::byte{0});
    ASSERT_TRUE(read_all(*device, 0, back()).ok());
    EXPECT_TRUE(std::ranges::equal(bytes(), back()));
  }
  EXPECT_GT(faults, 10u);
}

TEST_F(FaultyFile, transfers_that_stop_inside_a_block_go_back_to_its_start) {
  bool odd = false;
  std::size_t misaligned = 0;
  auto device = open(
      [&](Piece& piece) -> std::optional<int> {
        misaligned += (piece.offset_bytes | piece.length_bytes) % 512 != 0;
        odd = !odd;
        if (!odd) return std::nullopt;
        piece.length_bytes = piece.length_bytes - 100;
        return std::nullopt;
      },
      {.write = true, .direct = false});
  fill();
  ASSERT_TRUE(write_all(*device, 0, bytes()).ok());
  ASSERT_TRUE(read_all(*device, 0, back()).ok());
  EXPECT_TRUE(std::ranges::equal(bytes(), back()));
  EXPECT_EQ(misaligned, 0u);
}

TEST_F(FaultyFile, endless_interruption_is_an_error_in_the_end) {
  for (const int error : {EINTR, EAGAIN}) {
    auto device = open([&](Piece&) { return std::optional<int>(-error); });
    const auto result = read_all(*device, 0, back());
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().errno_value, error);
  }
}

TEST_F(FaultyFile, an_end_that_comes_too_early_is_an_error) {
  auto device = open([](Piece&) { return std::optional<int>(0); });
  for (const auto& result : {read_all(*device, 0, back()), write_all(*device, 0, back())}) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().errno_value, EIO);
  }
}

TEST_F(FaultyFile, a_full_disk_is_no_space_whatever_was_written_before) {
  std::size_t calls = 0;
  auto device = open([&](Piece& piece) -> std::optional<int> {
    if (piece.kind != PieceKind::kWrite) return std::nullopt;
    if (calls++ > 0) return -ENOSPC;
    piece.length_bytes = 4096;
    return std::nullopt;
  });
  const Request request{Op::kWrite, bytes().data(), 16384, 0, 1};
  ASSERT_EQ(device->submit(std::span(&request, 1)), 1u);
  Completion done;
  while (device->poll(std::span(&done, 1)) == 0) {
  }
  EXPECT_EQ(done.errno_value, ENOSPC);
  EXPECT_EQ(done.length_bytes, 4096u);
  const Error error = completion_error(*device, request, done);
  EXPECT_EQ(error.code, Code::kNoSpace);
  EXPECT_THAT(error.message, HasSubstr("cannot write 16384 bytes at offset 0 of file:"));
  EXPECT_THAT(error.message, HasSubstr("free some space"));
}

TEST_F(FaultyFile, a_flush_that_fails_is_reported) {
  auto device =
      open([](Piece& piece) { return piece.kind == PieceKind::kFlush ? std::optional<int>(-EIO) : std::nullopt; });
  const auto result = flush(*device);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kIo);
  EXPECT_THAT(result.error().message, HasSubstr("cannot flush file:"));
}

TEST_F(FaultyFile, direct_io_refused_at_the_first_transfer_falls_back_once) {
  int fd = -1;
  auto device = open([&](Piece& piece) -> std::optional<int> {
    if (piece.kind != PieceKind::kFlush && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) return -EINVAL;
    return std::nullopt;
  });
  if (!direct_)
    GTEST_SKIP() << "the temporary folder's file system refuses O_DIRECT already at open: " << device->notes();
  // The file's descriptor is the newest one with O_DIRECT.
  for (int i = 0; i < 1024; ++i) {
    const int flags = fcntl(i, F_GETFL);
    if (flags >= 0 && (flags & O_DIRECT) != 0 && (flags & O_ACCMODE) == O_RDWR) fd = i;
  }
  ASSERT_GE(fd, 0);
  EXPECT_EQ(device->notes(), "");
  fill();
  ASSERT_TRUE(write_all(*device, 0, bytes()).ok());
  ASSERT_TRUE(read_all(*device, 0, back()).ok());
  EXPECT_TRUE(std::ranges::equal(bytes(), back()));
  EXPECT_THAT(device->notes(), HasSubstr("O_DIRECT is not used"));
  EXPECT_EQ(device->notes().find("O_DIRECT"), device->notes().rfind("O_DIRECT")) << "said twice";
}

TEST_F(FaultyFile, a_device_that_never_answers_times_out) {
  auto device = open([](Piece&) { return std::optional<int>(-EAGAIN); });
  // Never polled to the end: one retry a poll, a thousand of them, against a deadline that is over at once.
  const auto result = read_all(*device, 0, back(), std::chrono::milliseconds(0));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kTimedOut);
  EXPECT_THAT(result.error().message, HasSubstr("no answer within 0 ms"));
  EXPECT_THAT(result.error().message, HasSubstr("offset"));
}

TEST(FileDevice, opening_what_is_not_there_or_no_device_says_so) {
  const auto absent = open_device(TemporaryFile::fresh_path().string());
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Code::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("check the path"));

  const auto folder = open_device(std::filesystem::temp_directory_path().string());
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, Code::kInvalidArgument);
  EXPECT_THAT(folder.error().message, HasSubstr("is a folder; name a regular file or a block device"));

  const auto character = open_device("/dev/null");
  ASSERT_FALSE(character.ok());
  EXPECT_THAT(character.error().message, HasSubstr("is a character device"));

  const auto pipe_path = TemporaryFile::fresh_path();
  ASSERT_EQ(mkfifo(pipe_path.c_str(), 0600), 0);
  const auto pipe = open_device(pipe_path.string());  // opening it would wait for a writer
  std::filesystem::remove(pipe_path);
  ASSERT_FALSE(pipe.ok());
  EXPECT_THAT(pipe.error().message, HasSubstr("is a pipe"));

  const auto below = open_device(TemporaryFile::fresh_path().string() + "/x", {.create = true});
  ASSERT_FALSE(below.ok());
  EXPECT_THAT(below.error().message, HasSubstr("make its folder first"));
}

TEST(FileDevice, create_makes_a_file_and_keeps_one_that_exists) {
  const auto path = TemporaryFile::fresh_path();
  std::vector<std::byte> block(4096, std::byte{7});
  {
    auto device = open_device(path.string(), {.create = true, .direct = false});
    ASSERT_TRUE(device.ok()) << device.error().message;
    EXPECT_TRUE((*device)->geometry().growable);
    EXPECT_EQ((*device)->geometry().capacity_bytes, 0u);
    ASSERT_TRUE(write_all(**device, 0, block).ok());
  }
  auto again = open_device("file:" + path.string(), {.create = true, .direct = false});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->geometry().capacity_bytes, 4096u);
  EXPECT_EQ((*again)->url(), "file:" + std::filesystem::canonical(path).string());
  std::filesystem::remove(path);
}

TEST(FileDevice, a_forked_child_leaves_the_parents_requests_alone) {
  for (const EngineChoice choice : {EngineChoice::kBest, EngineChoice::kThreads}) {
    const TemporaryFile file(1u << 20);
    auto memory = base::Arena::create(1u << 20, false).value();
    auto device = open_file_device(file.path(), {}, choice);
    ASSERT_TRUE(device.ok());
    // AddressSanitizer's allocator is not safe to fork while another thread is in it, as threads are when they start.
    ASSERT_TRUE(read_all(**device, 0, memory.bytes()).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 64; ++i)
      requests.push_back({Op::kRead, memory.bytes().data() + i * 4096, 4096, i * 4096, i});
    ASSERT_EQ((*device)->submit(requests), 64u);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a hang is a failure
      Completion done;
      bool good = (*device)->submit(requests) == 0 && (*device)->poll(std::span(&done, 1)) == 0;
      device->reset();
#ifndef __SANITIZE_THREAD__  // it forbids threads in a child of a process that had some
      auto fresh = open_file_device(file.path(), {}, choice);
      good = good && fresh.ok() && read_all(**fresh, 0, memory.bytes().first(4096)).ok();
      if (fresh.ok()) fresh->reset();
#endif
      _exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    std::size_t got = 0;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (got < 64 && std::chrono::steady_clock::now() < until) {
      Completion done[16];
      got += (*device)->poll(done);
    }
    EXPECT_EQ(got, 64u);
  }
}

}  // namespace
}  // namespace dlfs::block
