// Fixed small workloads whose instructions are counted under callgrind, each inside one function counted_NAME:
//   guard NAME...      runs them (without NAME it lists them)
//   guard --compiler   prints what built it: counts hold for one compiler
// bench/guard.py counts, and compares with bench/guard.json.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mix.h"
#include "block/device.h"
#include "order/order.h"
#include "reader/reader.h"
#include "volume/volume.h"
#include "volume/writer.h"

namespace {

using namespace dlfs;

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "guard: {}\n", result.error().message);
  std::exit(1);
}
void must(Result<void> result) {
  if (result.ok()) return;
  fmt::print(stderr, "guard: {}\n", result.error().message);
  std::exit(1);
}

std::uint64_t total = 0;                                // so that nothing is optimised away
std::vector<std::unique_ptr<block::BlockDevice>> kept;  // a memory device is there as long as somebody has it open

std::string space(std::string_view name) {
  const std::string url = fmt::format("mem:guard-{}?size=96MiB", name);
  kept.push_back(must(block::open_device(url)));
  return url;
}

void pack(const std::string& url, std::uint32_t samples, std::size_t bytes) {
  const layout::Schema schema = must(layout::parse_schema("image: bytes, label: int64"));
  auto writer = must(volume::Writer::create(url, schema, {}));
  std::vector<std::byte> content(bytes), label(8);
  base::Prng prng(1);
  for (auto& each : content) each = static_cast<std::byte>(prng.next());
  for (std::uint32_t i = 0; i < samples; ++i) {
    const layout::FieldValue fields[] = {{content.data(), bytes - i % 16}, label};
    must(writer->append(fmt::format("class{}/{:06}.jpg", i % 10, i), fields));
  }
  must(writer->commit());
}

// One thread and the memory device: the same instructions every time.
std::unique_ptr<reader::Reader> open(const std::shared_ptr<const volume::Volume>& volume, order::Mode mode) {
  reader::Options options;
  options.order.mode = mode;
  options.order.batch = 256;
  options.order.lanes = 12;
  options.cache_bytes = 8u << 20;
  options.epochs = 2;
  options.threaded = false;
  return must(reader::Reader::open(volume, options));
}

extern "C" __attribute__((noinline)) void counted_read(reader::Reader& reader) {
  while (auto batch = must(reader.next(std::chrono::minutes(1)))) {
    for (std::size_t i = 0; i < batch->size(); ++i) total += batch->field(i, 0).size();
  }
}

extern "C" __attribute__((noinline)) void counted_draw(order::Cursor& cursor) {
  std::vector<order::Draw> draws;
  while (cursor.next(draws)) total += draws.front().index;
}

extern "C" __attribute__((noinline)) void counted_look_up(const volume::Volume& volume) {
  std::vector<layout::Location> places(256);
  std::vector<std::uint32_t> ids(256);
  for (std::uint32_t round = 0; round < 400; ++round) {
    for (std::uint32_t i = 0; i < 256; ++i)
      ids[i] = static_cast<std::uint32_t>(base::mix64(round * 256 + i) % volume.size());
    volume.directory().locations(ids, places);
    total += places[0].length_bytes;
  }
}

extern "C" __attribute__((noinline)) void counted_mount(const std::string& url) {
  total += must(volume::Volume::mount(url, {}))->size();
}

extern "C" __attribute__((noinline)) void counted_pack(const std::string& url) { pack(url, 4000, 900); }

std::shared_ptr<const volume::Volume> packed(std::string_view name, std::uint32_t samples, std::size_t bytes) {
  const std::string url = space(name);
  pack(url, samples, bytes);
  return must(volume::Volume::mount(url, {}));
}

void read_chunk() { counted_read(*open(packed("chunk", 20'000, 500), order::Mode::kChunk)); }
void read_full() { counted_read(*open(packed("full", 6'000, 4'096), order::Mode::kFull)); }
void look_up() { counted_look_up(*packed("look-up", 20'000, 100)); }
void write() { counted_pack(space("pack")); }

void mount() {
  const std::string url = space("mount");
  pack(url, 30'000, 100);
  counted_mount(url);
}

void draw_full() {
  order::Parameters parameters;
  parameters.mode = order::Mode::kFull;
  order::Cursor cursor(must(order::Epoch::create(parameters, 200'000, nullptr)));
  counted_draw(cursor);
}

struct Workload {
  std::string_view name;
  void (*run)();
};
constexpr Workload kWorkloads[] = {{"read-chunk", read_chunk}, {"read-full", read_full}, {"draw-full", draw_full},
                                   {"look-up", look_up},       {"mount", mount},         {"pack", write}};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--compiler") {
#if defined(__clang__)
    fmt::print("clang-{}\n", __clang_major__);
#else
    fmt::print("gcc-{}\n", __GNUC__);
#endif
    return 0;
  }
  for (const Workload& each : kWorkloads) {
    if (argc == 1) fmt::print("{}\n", each.name);
    for (int i = 1; i < argc; ++i) {
      if (each.name == argv[i]) each.run();
    }
  }
  if (argc > 1) fmt::print("{}\n", total);
  return 0;
}
