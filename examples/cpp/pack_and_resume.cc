// Packs a thousand small samples into a new volume, draws half an epoch on one rank, saves the state, and draws the
// other half on two ranks: together they see every sample once.
//
//   pack_and_resume new.dlfs
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfs/dlfs.hpp>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t kSamples = 1000;

// The value of a result, or the end of the program with its sentence.
template <class T>
T must(dlfs::Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "pack_and_resume: %s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

void pack(const std::string& url) {
  const auto schema = must(dlfs::Schema::parse("image: bytes, label: int64"));
  auto writer = must(dlfs::Writer::create(url, schema));
  for (std::uint32_t id = 0; id < kSamples; ++id) {
    const std::vector<std::uint8_t> image(100 + id, static_cast<std::uint8_t>(id));
    const std::int64_t label = id % 10;
    const dlfs::Bytes fields[] = {std::as_bytes(std::span(image)), std::as_bytes(std::span(&label, 1))};
    const auto appended = writer.append("class" + std::to_string(label) + "/" + std::to_string(id), fields);
    if (!appended.ok()) {
      std::fprintf(stderr, "pack_and_resume: %s\n", appended.error().message.c_str());
      std::exit(1);
    }
  }
  const auto info = must(writer.commit());
  std::printf("packed %llu samples\n", static_cast<unsigned long long>(info.samples));
}

// Draws at most `batches` batches and notes their ids.
void draw(dlfs::Sequence& sequence, std::uint64_t batches, std::multiset<std::uint32_t>& seen) {
  for (std::uint64_t i = 0; i < batches; ++i) {
    auto batch = must(sequence.next());
    if (!batch) return;
    seen.insert(batch->ids().begin(), batch->ids().end());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: pack_and_resume VOLUME\n");
    return 2;
  }
  pack(argv[1]);
  const auto volume = must(dlfs::Volume::mount(argv[1]));
  std::multiset<std::uint32_t> seen;
  auto alone = must(volume.sequence({.mode = dlfs::Mode::kChunk, .seed = 1, .batch = 100}));
  draw(alone, 5, seen);
  const auto state = alone.state();
  std::printf("drew %zu samples on one rank, saved %zu bytes of state\n", seen.size(), state.size());

  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    auto half = must(volume.resume(state, {.rank = rank, .ranks = 2}));
    draw(half, half.batches_per_epoch(), seen);
  }
  const std::set<std::uint32_t> distinct(seen.begin(), seen.end());
  std::printf("with two more ranks: %zu samples, %zu of them distinct\n", seen.size(), distinct.size());
  return seen.size() == kSamples && distinct.size() == kSamples ? 0 : 1;
}
