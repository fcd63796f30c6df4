// A program of somebody else's, built against an installed DLFS: packs 100 samples, mounts them, opens one by name,
// reads it, draws two epochs.
#include <cstdint>
#include <cstdio>
#include <dlfs/dlfs.hpp>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t kSamples = 100;

std::string name_of(std::uint32_t id) { return "class" + std::to_string(id % 10) + "/" + std::to_string(id); }

std::vector<std::byte> sample_of(std::uint32_t id) {
  std::vector<std::byte> bytes(3 * id);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(id * 7 + i);
  return bytes;
}

bool equal(dlfs::Bytes a, const std::vector<std::byte>& b) { return std::vector<std::byte>(a.begin(), a.end()) == b; }

dlfs::Result<void> pack(const char* path) {
  auto schema = dlfs::Schema::parse("data: bytes");
  if (!schema.ok()) return schema.error();
  auto writer = dlfs::Writer::create(path, *schema);
  if (!writer.ok()) return writer.error();
  for (std::uint32_t id = 0; id < kSamples; ++id) {
    const auto data = sample_of(id);
    const dlfs::Bytes fields[] = {data};
    if (auto appended = writer->append(name_of(id), fields); !appended.ok()) return appended;
  }
  auto info = writer->commit();
  if (!info.ok()) return info.error();
  return {};
}

dlfs::Result<bool> names_give_their_samples(const dlfs::Volume& volume) {
  for (std::uint32_t id = 0; id < kSamples; ++id) {
    auto file = volume.open(name_of(id));
    if (!file.ok()) return file.error();
    std::vector<std::byte> got(file->size());
    auto read = file->read(got, 0);
    if (!read.ok()) return read.error();
    if (file->id() != id || *read != got.size() || got != sample_of(id)) return false;
  }
  return true;
}

dlfs::Result<bool> two_epochs_hold_every_sample_twice(const dlfs::Volume& volume) {
  auto sequence = volume.sequence({.seed = 1, .epochs = 2, .batch = 32});
  if (!sequence.ok()) return sequence.error();
  std::vector<int> seen(kSamples);
  for (;;) {
    auto batch = sequence->next();
    if (!batch.ok()) return batch.error();
    if (!*batch) break;
    for (std::size_t i = 0; i < (*batch)->size(); ++i) {
      const std::uint32_t id = (*batch)->ids()[i];
      if (id >= kSamples || !equal((*batch)->field(i, 0), sample_of(id))) return false;
      ++seen[id];
    }
  }
  return seen == std::vector<int>(kSamples, 2);
}

bool good(const char* what, const dlfs::Result<bool>& result) {
  if (!result.ok()) std::fprintf(stderr, "consumer: %s: %s\n", what, result.error().message.c_str());
  if (result.ok() && !*result) std::fprintf(stderr, "consumer: %s: no\n", what);
  return result.ok() && *result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (auto packed = pack(argv[1]); !packed.ok()) {
    std::fprintf(stderr, "consumer: %s\n", packed.error().message.c_str());
    return 1;
  }
  auto volume = dlfs::Volume::mount(argv[1]);
  if (!volume.ok()) {
    std::fprintf(stderr, "consumer: %s\n", volume.error().message.c_str());
    return 1;
  }
  bool ok = good("names give their samples", names_give_their_samples(*volume));
  ok &= good("two epochs hold every sample twice", two_epochs_hold_every_sample_twice(*volume));
  if (ok) std::printf("consumer: all well with dlfs %s\n", dlfs::version());
  return ok ? 0 : 1;
}
