// How much memory a pack takes for each sample: packs N small named samples in a shuffled order and prints the growth
// of the process's peak resident memory, in bytes a sample. Usage: pack_memory [SAMPLES] [SAMPLE_BYTES] [FILE]
#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "dlfs/dlfs.hpp"

namespace {

std::uint64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

int fail(const dlfs::Error& error) {
  fmt::print(stderr, "pack_memory: {}\n", error.message);
  return 1;
}

dlfs::Result<dlfs::VolumeInfo> pack(const std::string& path, std::uint32_t samples, std::size_t bytes) {
  auto writer =
      dlfs::Writer::create(path, dlfs::Schema::parse("image: bytes, label: int64").value(), {.overwrite = true});
  if (!writer.ok()) return writer.error();
  const std::vector<std::byte> image(bytes);
  for (std::uint32_t position = 0; position < samples; ++position) {
    const std::uint32_t id = dlfs::placement(position, samples, 1);
    const std::int64_t label = id % 1000;
    const std::array<dlfs::Bytes, 2> fields{image, std::as_bytes(std::span(&label, 1))};
    if (auto added = writer->append_at(id, fmt::format("train/n{:04}/{:08}.jpg", label, id), fields); !added.ok())
      return added.error();
  }
  return writer->commit();
}

}  // namespace

int main(int argc, char** argv) {
  const auto samples = static_cast<std::uint32_t>(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 10'000'000);
  const std::size_t bytes = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 100;
  const std::string path = argc > 3 ? argv[3] : "pack_memory.dlfs";
  const std::uint64_t before = peak_bytes();
  const auto start = std::chrono::steady_clock::now();
  const auto info = pack(path, samples, bytes);
  if (!info.ok()) return fail(info.error());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::uint64_t packing = peak_bytes() - before;
  const auto again = std::chrono::steady_clock::now();
  const auto volume = dlfs::Volume::mount(path);
  if (!volume.ok()) return fail(volume.error());
  const double mount_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - again).count();
  fmt::print("{} samples of {} bytes packed in {:.1f} s: peak memory grew by {:.1f} MiB, {:.1f} bytes a sample\n",
             samples, bytes, seconds, static_cast<double>(packing) / (1 << 20), static_cast<double>(packing) / samples);
  fmt::print(
      "mounted in {:.3f} s: directory of {} bytes, {:.2f} a sample; index {} bytes, names {} bytes on the media\n",
      mount_s, volume->info().directory_bytes, static_cast<double>(volume->info().directory_bytes) / samples,
      volume->info().index_bytes, volume->info().name_bytes);
  std::remove(path.c_str());
  return 0;
}
