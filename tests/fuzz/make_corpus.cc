// Writes the seeds of the format's fuzzers: make_corpus DIRECTORY (tests/fuzz/corpus). Deterministic.
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
  return 0;
}
