// Fallbacks against the real kernel: a child process forbids itself what a container or file system would, by seccomp.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "base/arena.h"
#include "block/device.h"
#include "block/file_device.h"
#include "temporary_file.h"

namespace dlfs::block {
namespace {

using ::testing::HasSubstr;

constexpr int kCannotFilter = 77;

// From here on `call` fails with `error`; with `argument` >= 0 only if that argument has one of the bits of `mask`.
bool forbid(long call, int error, int argument = -1, std::uint32_t mask = 0) {
  const auto argument_offset = static_cast<std::uint32_t>(
      offsetof(seccomp_data, args) + sizeof(std::uint64_t) * static_cast<std::size_t>(std::max(argument, 0)));
  const std::uint32_t refuse = SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error);
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  if (argument >= 0) {
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument_offset));  // the low half on little-endian machines
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, mask, 1, 0));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, refuse));
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Runs `body` in a child, whose failures are printed there; its last word becomes this process's verdict.
void in_child(const std::function<bool()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang is a failure
    const bool able = body();
    std::fflush(nullptr);
    _exit(!able ? kCannotFilter : ::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kCannotFilter) GTEST_SKIP() << "this system does not let a process restrict itself";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see the child's output above";
}

void expect_round_trip(BlockDevice& device) {
  auto memory = base::Arena::create(1u << 20, false).value();
  const auto half = memory.bytes().size() / 2;
  std::memset(memory.bytes().data(), 0x5C, half);
  const auto written = write_all(device, 4096, memory.bytes().first(half));
  ASSERT_TRUE(written.ok()) << written.error().message;
  ASSERT_TRUE(flush(device).ok());
  const auto read = read_all(device, 4096, memory.bytes().subspan(half));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(std::memcmp(memory.bytes().data(), memory.bytes().data() + half, half), 0);
}

struct Refusal {
  long call;
  int error;
};

class UringRefused : public ::testing::TestWithParam<Refusal> {};

TEST_P(UringRefused, uses_threads_and_says_so_once) {
  const TemporaryFile file(1u << 20);
  in_child([&] {
    if (!forbid(GetParam().call, GetParam().error)) return false;
    auto device = open_device(file.path(), {.write = true, .direct = false});
    EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().message);
    if (!device.ok()) return true;
    EXPECT_STREQ((*device)->engine(), "threads");
    const std::string before = (*device)->notes();
    EXPECT_THAT(before,
                HasSubstr("io_uring is not to be had here (" + std::string(std::strerror(GetParam().error)) + ")"));
    EXPECT_THAT(before, HasSubstr("using a pool of 8 threads"));
    EXPECT_EQ(before.find('\n'), std::string::npos);
    expect_round_trip(**device);
    EXPECT_EQ((*device)->notes(), before);
    const auto forced = open_file_device(file.path(), {}, EngineChoice::kUring);
    EXPECT_FALSE(forced.ok());
    return true;
  });
}

INSTANTIATE_TEST_SUITE_P(Kernel, UringRefused,
                         ::testing::Values(Refusal{SYS_io_uring_setup, EPERM}, Refusal{SYS_io_uring_setup, ENOSYS},
                                           Refusal{SYS_io_uring_setup, EACCES}, Refusal{SYS_io_uring_enter, EPERM}),
                         [](const ::testing::TestParamInfo<Refusal>& refusal) {
                           return (refusal.param.call == SYS_io_uring_setup ? "setup_" : "enter_") +
                                  std::to_string(refusal.param.error);
                         });

TEST(DirectRefused, at_open_uses_the_page_cache_and_says_so) {
  const TemporaryFile file(1u << 20);
  in_child([&] {
    if (!forbid(SYS_openat, EINVAL, 2, O_DIRECT)) return false;
    auto device = open_device(file.path(), {.write = true});
    EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().message);
    if (!device.ok()) return true;
    EXPECT_THAT((*device)->notes(), HasSubstr("O_DIRECT is not used for file:"));
    EXPECT_THAT((*device)->notes(), HasSubstr("refused it (Invalid argument)"));
    expect_round_trip(**device);
    return true;
  });
}

TEST(DirectRefused, at_the_first_read_uses_the_page_cache_and_says_so) {
  const TemporaryFile file(1u << 20);
  in_child([&] {
    auto probe = open_file_device(file.path(), {}, EngineChoice::kUring);
    if (!probe.ok() || !(*probe)->notes().empty())
      return false;  // needs io_uring for the reads that follow, and O_DIRECT
    probe->reset();
    if (!forbid(SYS_pread64, EINVAL)) return false;
    auto device = open_device(file.path(), {.write = true});
    EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().message);
    if (!device.ok()) return true;
    EXPECT_THAT((*device)->notes(), HasSubstr("the first read with it failed (Invalid argument)"));
    expect_round_trip(**device);
    return true;
  });
}

TEST(DirectRefused, both_fallbacks_at_once_are_two_lines) {
  const TemporaryFile file(1u << 20);
  in_child([&] {
    if (!forbid(SYS_openat, EINVAL, 2, O_DIRECT) || !forbid(SYS_io_uring_setup, EPERM)) return false;
    auto device = open_device(file.path(), {.write = true});
    EXPECT_TRUE(device.ok());
    if (!device.ok()) return true;
    EXPECT_EQ(std::ranges::count((*device)->notes(), '\n'), 1);
    expect_round_trip(**device);
    return true;
  });
}

TEST(SharedMemoryFile, works_whether_or_not_the_kernel_takes_direct_io_there) {
  const std::string path = "/dev/shm/block-" + std::to_string(getpid());
  auto device = open_device(path, {.create = true});
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  expect_round_trip(**device);
  std::filesystem::remove(path);
}

TEST(FullDisk, is_no_space) {
  const auto folder = TemporaryFile::fresh_path();
  std::filesystem::create_directory(folder);
  in_child([&] {
    // A file system of 256 KiB in a mount namespace of the child's own.
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    if (mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=256k") != 0) return false;
    for (const EngineChoice choice : {EngineChoice::kBest, EngineChoice::kThreads}) {
      auto device = open_file_device((folder / "x").string(), {.create = true}, choice);
      EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().message);
      if (!device.ok()) return true;
      auto memory = base::Arena::create(1u << 20, false).value();
      const auto result = write_all(**device, 0, memory.bytes());
      EXPECT_FALSE(result.ok());
      if (!result.ok()) {
        EXPECT_EQ(result.error().code, Code::kNoSpace) << result.error().message;
        EXPECT_THAT(result.error().message, HasSubstr("free some space"));
      }
      device->reset();
      std::filesystem::remove(folder / "x");
    }
    return true;
  });
  std::filesystem::remove(folder);
}

}  // namespace
}  // namespace dlfs::block
