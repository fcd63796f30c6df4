// A pack that is stopped anywhere leaves the volume that was there, or the new one, or something that says
// 'incomplete'.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "faulty_device.h"
#include "samples.h"
#include "volume/verify.h"
#include "volume/writer_internal.h"

namespace dlfs::volume {
namespace {

using namespace test;
using std::chrono::steady_clock;

constexpr std::uint64_t kOld = 1, kNew = 2;  // versions of the samples' bytes
constexpr std::uint32_t kChunk = 65536;

std::vector<std::uint64_t> lengths_of(std::uint64_t version) {
  auto lengths = random_lengths(version == kOld ? 60 : 80, 6000, version);
  lengths[11] = 150'000;
  return lengths;
}

Result<void> try_pack(const std::string& url, std::uint64_t version, const OpenDevice& open) {
  auto writer =
      create_writer(url, one_field(), {.chunk_bytes = kChunk, .overwrite = true, .pool_bytes = 4 * kChunk}, open);
  if (!writer.ok()) return writer.error();
  const auto lengths = lengths_of(version);
  for (std::uint64_t id = 0; id < lengths.size(); ++id) {
    const auto bytes = bytes_of(id, lengths[id], version);
    const layout::FieldValue field(bytes);
    if (auto appended = (*writer)->append(name_of(id), {&field, 1}); !appended.ok()) return appended;
  }
  auto committed = (*writer)->commit();
  return committed.ok() ? Result<void>() : Result<void>(committed.error());
}

// Which version a place holds whole: kOld, kNew, or 0 when it does not mount. A volume that mounts and is neither fails
// the test. When power failed between the two superblocks, one of them may be old or torn: mount says so, and verify
// reports just that.
std::uint64_t version_at(const std::string& url, Error& error, bool one_superblock_will_do = false) {
  const auto volume = Volume::mount(url);
  if (!volume.ok()) {
    error = volume.error();
    return 0;
  }
  const std::uint64_t version = (*volume)->size() == lengths_of(kOld).size() ? kOld : kNew;
  expect_samples(**volume, lengths_of(version), true, version);
  std::size_t bad_superblocks = 0;
  const auto report = verify(**volume,
                             [&](const Finding& finding) {
                               const bool tolerated =
                                   one_superblock_will_do && finding.what == Finding::What::kSuperblock;
                               EXPECT_TRUE(tolerated) << finding.message;
                               ++bad_superblocks;
                             },
                             {});
  EXPECT_TRUE(report.ok());
  EXPECT_LE(bad_superblocks, 1u);
  EXPECT_EQ((*volume)->report().warning.empty(), bad_superblocks == 0) << (*volume)->report().warning;
  return version;
}

// Kills the child that runs `work` after `delay`, or lets it end. True when it was killed.
template <class Work>
bool run_and_kill(Work&& work, std::chrono::microseconds delay) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  std::this_thread::sleep_for(delay);
  kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status);
}

// After a kill the place is as it was or says 'incomplete', and the next pack works.
void expect_sound(const std::string& path, bool old_was_there) {
  Error error;
  const std::uint64_t version = version_at(path, error);
  if (version == 0) {
    EXPECT_FALSE(old_was_there) << error.message;
    EXPECT_EQ(error.code, Code::kNotFound) << error.message;
    const bool says_so = error.message.find("incomplete") != std::string::npos;
    EXPECT_EQ(says_so, std::filesystem::exists(path + ".partial")) << error.message;
  } else if (version == kOld) {
    EXPECT_TRUE(old_was_there);
  }
}

void prepare(const std::string& path, bool old) {
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".partial");
  if (!old) return;
  const auto packed = try_pack(path, kOld, default_open_device());
  ASSERT_TRUE(packed.ok()) << packed.error().message;
}

TEST(Kill, leaves_a_file_as_it_was_at_any_time) {
  TemporaryDirectory directory;
  const std::string path = directory / "v";
  const auto start = steady_clock::now();
  ASSERT_TRUE(try_pack(path, kNew, default_open_device()).ok());
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - start);
  base::Prng prng(42);
  int killed = 0;
  for (int i = 0; i < 100; ++i) {
    const bool old = i % 2 == 0;
    prepare(path, old);
    const std::chrono::microseconds delay(prng.below(static_cast<std::uint64_t>(whole.count()) * 5 / 4));
    killed += run_and_kill([&] { static_cast<void>(try_pack(path, kNew, default_open_device())); }, delay);
    expect_sound(path, old);
  }
  EXPECT_GT(killed, 20);
  ASSERT_TRUE(try_pack(path, kNew, default_open_device()).ok());  // what the killed ones left is reclaimed
  EXPECT_EQ(directory.list(), std::vector<std::string>{"v"});
}

TEST(Kill, leaves_a_file_as_it_was_at_every_request) {
  TemporaryDirectory directory;
  const std::string path = directory / "v";
  std::uint64_t requests = 0;
  ASSERT_TRUE(try_pack(path, kNew, judged([&](const block::Request&) { return ++requests, 0; })).ok());
  ASSERT_GT(requests, 10u);
  for (std::uint64_t last = 0; last <= requests; ++last) {
    for (const bool old : {false, true}) {
      prepare(path, old);
      std::uint64_t seen = 0;
      const auto die = [&](const block::Request&) -> int { return seen++ == last ? kill(getpid(), SIGKILL) : 0; };
      const pid_t child = fork();
      if (child == 0) {
        static_cast<void>(try_pack(path, kNew, judged(die)));
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(WIFSIGNALED(status), last < requests);
      expect_sound(path, old);
    }
  }
}

// The medium after a pack of `version` over `before`, power failing at request `fails_at`; whether the pack said that
// it worked.
struct Outcome {
  std::shared_ptr<Medium> medium;
  bool packed;
};
Outcome pack_and_fail(std::vector<std::byte> before, std::uint64_t version, std::uint64_t fails_at) {
  auto medium = std::make_shared<Medium>();
  medium->durable = std::move(before);
  medium->fails_at = fails_at;
  const bool packed = try_pack("mem:lossy", version, lossy(medium)).ok();
  return {medium, packed};
}

void put_on_device(block::BlockDevice& device, std::span<const std::byte> image) {
  const base::Arena arena = base::Arena::create(image.size()).value();
  std::ranges::copy(image, arena.bytes().begin());
  ASSERT_TRUE(block::write_all(device, 0, arena.bytes().first(image.size())).ok());
}

TEST(PowerLoss, leaves_a_device_as_it_was_or_incomplete) {
  constexpr std::size_t kSize = 2 << 20;
  auto device = block::open_device("mem:power-loss?size=2MiB", {.write = true}).value();
  const Outcome blank = pack_and_fail(std::vector<std::byte>(kSize), kOld, ~std::uint64_t{0});
  ASSERT_TRUE(blank.packed);
  blank.medium->flush();
  const std::vector<std::byte> old_image = blank.medium->durable;
  const Outcome complete = pack_and_fail(old_image, kNew, ~std::uint64_t{0});
  ASSERT_TRUE(complete.packed);
  EXPECT_TRUE(complete.medium->cached.empty());  // what is committed is durable
  base::Prng prng(7);
  int incomplete = 0, old_seen = 0, new_seen = 0;
  for (std::uint64_t fails_at = 0; fails_at <= complete.medium->requests; ++fails_at) {
    for (const bool over_old : {true, false}) {
      const Outcome outcome = pack_and_fail(over_old ? old_image : std::vector<std::byte>(kSize), kNew, fails_at);
      for (int i = 0; i < 8; ++i) {
        put_on_device(*device, outcome.medium->after_power_loss(prng));
        Error error;
        const std::uint64_t version = version_at("mem:power-loss", error, !outcome.packed);
        EXPECT_TRUE(version == kNew || !outcome.packed) << error.message;
        EXPECT_TRUE(version != kOld || over_old);
        const bool blank_still = !over_old && error.code == Code::kForeign;  // nothing had been written
        const bool says_so = error.message.find("incomplete") != std::string::npos;
        EXPECT_TRUE(version != 0 || blank_still || says_so) << fails_at << ": " << error.message;
        incomplete += version == 0;
        old_seen += version == kOld;
        new_seen += version == kNew;
      }
    }
  }
  EXPECT_GT(incomplete, 50);
  EXPECT_GT(old_seen, 5);
  EXPECT_GT(new_seen, 5);
}

TEST(Writer, clears_up_when_the_disk_is_full_or_fails) {
  TemporaryDirectory directory;
  const std::string path = directory / "v";
  ASSERT_TRUE(try_pack(path, kOld, default_open_device()).ok());
  const auto before = read_file(path);
  std::uint64_t requests = 0;
  ASSERT_TRUE(try_pack(directory / "w", kNew, judged([&](const block::Request&) { return ++requests, 0; })).ok());
  std::filesystem::remove(directory / "w");
  for (const int reason : {ENOSPC, EIO}) {
    for (std::uint64_t bad = 0; bad < requests; ++bad) {
      std::uint64_t seen = 0;
      const auto packed =
          try_pack(path, kNew, judged([&](const block::Request&) { return seen++ == bad ? reason : 0; }));
      ASSERT_FALSE(packed.ok()) << bad;
      EXPECT_EQ(packed.error().code, reason == ENOSPC ? Code::kNoSpace : Code::kIo);
      EXPECT_NE(packed.error().message.find(path), std::string::npos) << packed.error().message;
      EXPECT_EQ(packed.error().message.starts_with("no space is left for '" + path + "'"), reason == ENOSPC)
          << packed.error().message;
      EXPECT_EQ(directory.list(), std::vector<std::string>{"v"});
      EXPECT_EQ(read_file(path), before);
    }
  }
}

}  // namespace
}  // namespace dlfs::volume
