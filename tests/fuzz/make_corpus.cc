// Writes the seeds of the fuzzers of the format, and of the two over TCP: make_corpus DIRECTORY (tests/fuzz/corpus).
// Deterministic.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "base/mix.h"
#include "directory/directory.h"
#include "layout/large_record.h"
#include "layout/name_block.h"

namespace {

using namespace dlfs;

void write(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

layout::Superblock committed() {
  layout::Superblock s;
  s.state = layout::State::kCommitted;
  s.sample_count = 10;
  s.data = {256u << 10, 256u << 10, 0};
  s.names = {512u << 10, 16384, 0};
  s.index = {528u << 10, 700, 1};
  s.schema = {532u << 10, 50, 2};
  s.device_bytes = 536u << 10;
  s.writer = "dlfs";
  return s;
}

void superblocks(const std::filesystem::path& to) {
  write(to / "committed", layout::encode(committed()));
  write(to / "incomplete", layout::encode(layout::Superblock{}));
}

void schemas(const std::filesystem::path& to) {
  const std::string texts[] = {"image: bytes", "image: bytes, label: int64, mask: uint8[256,256], caption: text",
                               "\"a, \\\"b\\\"\": complex128[1,2,3]"};
  for (std::size_t i = 0; i < std::size(texts); ++i) {
    write(to / ("text" + std::to_string(i)), std::as_bytes(std::span(texts[i])));
    auto schema = layout::parse_schema(texts[i]).value();
    schema.attributes.emplace_back("classes", "cat dog");
    write(to / ("encoded" + std::to_string(i)), layout::encode(schema));
  }
}

void records(const std::filesystem::path& to) {
  const auto schema =
      layout::parse_schema("a: bytes, b: uint8[3,5], c: text, d: float16").value();  // number 3 of record_fuzz.cc
  const layout::RecordLayout layout(schema, layout::kMinChunkBytes, 7);
  const std::vector<std::byte> a(20, std::byte{1}), b(15, std::byte{2}), c(5, std::byte{3}), d(2, std::byte{4});
  const std::vector<layout::FieldValue> fields = {a, b, c, d};
  std::vector<std::byte> out(1 + layout.record_bytes(std::vector<std::uint64_t>{20, 15, 5, 2}), std::byte{3});
  layout.encode(SampleId{1}, fields, std::span(out).subspan(1));
  write(to / "ordinary", out);
  layout::LargeRecordEncoder encoder(layout, SampleId{1}, std::vector<std::uint64_t>{66'000, 15, 5, 2});
  out.resize(1);
  std::vector<std::byte> piece(layout.chunk_bytes());
  while (!encoder.done()) {
    const auto size =
        encoder.next(piece, [](std::size_t, std::uint64_t, std::span<std::byte>) -> Result<void> { return {}; })
            .value();
    out.insert(out.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(size));
  }
  write(to / "large", std::span(out).first(200));  // the fuzzer fills the middle with zeros itself
}

void name_blocks(const std::filesystem::path& to) {
  layout::NameBlockBuilder builder(7);
  for (std::uint32_t i = 0; i < 20; ++i) (void)builder.add(SampleId{i}, std::string(i, static_cast<char>('a' + i)));
  std::vector<std::byte> block(layout::kNameBlockBytes);
  builder.finish(block);
  write(to / "twenty", std::span(block).first(300));
}

void indexes(const std::filesystem::path& to) {
  for (const std::uint32_t n : {0u, 1u, 40u, 700u}) {
    for (const bool names : {false, true}) {
      directory::Builder builder(layout::kMinChunkBytes, names);
      base::Prng prng(n);
      std::uint64_t at = 0;
      for (std::uint32_t i = 0; i < n; ++i) {
        const bool large = i % 13 == 5;
        const std::uint64_t length = large ? 70'000 + prng.below(200'000) : 8 + prng.below(5000),
                            chunk = layout::kMinChunkBytes;
        if (large || at % chunk + length > chunk) at = (at + chunk - 1) / chunk * chunk;
        builder.add(SampleId{n - 1 - i}, {at, length, large}, prng.next());
        at = large ? (at + length + chunk - 1) / chunk * chunk : (at + length + 7) / 8 * 8;
      }
      for (std::uint32_t id = 0; names && id < n; id += 50) builder.add_name_block(SampleId{id});
      layout::Superblock superblock;
      superblock.data.length_bytes = (at / layout::kMinChunkBytes + 1) * layout::kMinChunkBytes;
      write(to / ((names ? "named" : "unnamed") + std::to_string(n)), builder.finish(superblock).value());
    }
  }
}

// Of nvme_tcp_device_fuzz.cc: choice, seed, where the asking begins, what the meddler does (meddler.h), what is asked.
void device_runs(const std::filesystem::path& to) {
  const auto seed = [&](const std::string& name, unsigned choice, unsigned chance, std::vector<unsigned> meddling,
                        const std::vector<unsigned>& asking) {
    std::vector<std::byte> all = {static_cast<std::byte>(choice), static_cast<std::byte>(chance), std::byte{0}};
    const std::size_t total = meddling.size() + asking.size();
    all[2] = static_cast<std::byte>((255 * meddling.size() + total - 1) / total);
    for (const unsigned value : meddling) all.push_back(static_cast<std::byte>(value));
    for (const unsigned value : asking) all.push_back(static_cast<std::byte>(value));
    write(to / name, all);
  };
  const std::vector<unsigned> all_sorts = {0, 16, 5, 3, 15, 9, 1, 255, 0, 4, 6, 5, 40, 132, 200, 0, 7, 2, 7, 100, 6};
  const std::vector<unsigned> reads = {0, 1, 1, 0, 1, 1, 0, 1, 1};
  seed("honest", 0x00, 5, {}, all_sorts);
  seed("honest_digests", 0x03, 5, {}, all_sorts);
  seed("honest_paths_and_queues", 0x1C, 5, {}, all_sorts);
  seed("read_only_namespace", 0x80, 5, {}, all_sorts);
  seed("leaves_early", 0x40, 5, {}, {0, 16, 5, 3, 15, 9});
  seed("speaks_for_itself", 0x00, 5, {0xE0, 40, 1, 0, 128, 0, 128}, reads);
  // One thing done to one PDU, early and late.
  for (unsigned what = 0; what < 16; ++what) {
    for (const unsigned after : {2u, 20u, 40u}) {
      const std::string name = "meddles_" + std::to_string(what) + "_after_" + std::to_string(after);
      seed(name, what % 2 == 0 ? 0x00 : 0x03, what, {0, after, 0x80 | what, 12, 8, 1, 0, 0, 16}, all_sorts);
    }
  }
  // A target that ends the connection at the same place every time: requests must fail, not be tried for ever.
  for (const unsigned after : {34u, 36u, 80u})
    seed("breaks_again_" + std::to_string(after), 0, 0x80, {0, after, 0x8B}, reads);
  // And one that goes silent in the middle of everything it is asked.
  seed("silent_again", 0, 0x80, {0, 36, 0x8E}, reads);
}

// Of nvme_tcp_target_fuzz.cc: choice, seed, steps.
void target_runs(const std::filesystem::path& to) {
  const auto seed = [&](const std::string& name, const std::vector<unsigned>& values) {
    std::vector<std::byte> all;
    for (const unsigned value : values) all.push_back(static_cast<std::byte>(value));
    write(to / name, all);
  };
  const std::vector<unsigned> io = {6, 2, 0, 7,  2, 13, 6, 1, 3, 7,  1, 13, 10, 0, 13, 6, 1,
                                    0, 3, 0, 13, 6, 3,  0, 9, 0, 13, 6, 0,  0,  0, 0,  13};
  const std::vector<unsigned> admin = {8, 1, 0, 1, 0, 0, 8, 1, 1, 0, 0, 0, 8, 0,  0,  4, 0,
                                       0, 8, 5, 0, 0, 0, 0, 8, 3, 0, 7, 0, 3, 13, 15, 2, 13};
  for (const unsigned digests : {0u, 1u, 2u, 3u}) {
    std::vector<unsigned> steps = {digests, 3, 2, digests};
    steps.insert(steps.end(), admin.begin(), admin.end());
    for (const unsigned value : {0u, 1u, 2u, 4u | digests}) steps.push_back(value);
    steps.insert(steps.end(), io.begin(), io.end());
    seed("controller_and_queue_" + std::to_string(digests), steps);
    steps.insert(steps.begin() + 4, {12, 1});
    seed("something_changed_" + std::to_string(digests), steps);
  }
  seed("discovery", {0, 1, 2, 0x80, 8, 0, 0, 4, 0, 0, 13, 15, 2, 13});
  seed("raw", {1, 1, 1, 11, 16, 0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 13, 14, 200});
  // All connections write, and give no data for what they are asked for.
  std::vector<unsigned> hold = {1, 1, 2, 0};
  for (unsigned host = 1; host < 6; ++host) {
    for (const unsigned value : {0u, host, 2u, 4u}) hold.push_back(value);
    for (unsigned i = 0; i < 3; ++i) hold.insert(hold.end(), {6, 1, 0, 127, 15, 13});
  }
  seed("holds_memory", hold);
  // Deaf: reads whose data nobody takes.
  std::vector<unsigned> deaf = {1, 1, 2, 0, 0, 1, 2, 4, 15, 4};
  for (unsigned i = 0; i < 12; ++i) deaf.insert(deaf.end(), {6, 2, 0, 127, 14});
  seed("deaf", deaf);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_corpus DIRECTORY\n";
    return 2;
  }
  const std::filesystem::path to = argv[1];
  superblocks(to / "superblock");
  schemas(to / "schema");
  records(to / "record");
  name_blocks(to / "name_block");
  indexes(to / "index");
  device_runs(to / "nvme_tcp_device");
  target_runs(to / "nvme_tcp_target");
  return 0;
}
