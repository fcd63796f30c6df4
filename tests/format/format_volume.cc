// For check_format_reader.py: `format_volume pack KIND PATH` makes a small volume of many shapes, `format_volume print
// PATH` mounts it with DLFS and prints what dlfs_format_reader.py prints.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "base/mix.h"
#include "volume/volume.h"
#include "volume/writer.h"

namespace {

using namespace dlfs;

struct Kind {
  std::string_view name, schema;
  std::uint32_t samples;
  bool names, large;
};
constexpr Kind kKinds[] = {
    {"one_field", "image: bytes", 700, true, false},
    {"many_fields", "caption: text, label: int64, image: bytes, mask: uint8[9,5], box: float32[4], extra: bytes", 300,
     true, false},
    {"large", "a: bytes, label: int16, b: bytes", 40, true, true},
    {"fixed", "label: int32, x: float64[7]", 200, false, false},
    {"empty", "image: bytes", 0, true, false},
    {"single", "image: bytes", 1, false, false},
};

std::vector<std::byte> noise(base::Prng& prng, std::uint64_t count) {
  std::vector<std::byte> out(count);
  for (std::byte& b : out) b = static_cast<std::byte>(prng.next());
  return out;
}

// Spaces, newlines, bytes that are not UTF-8, and the longest name there may be.
std::string name_of(std::uint32_t id) {
  if (id % 50 == 7) return fmt::format("long/{}/", id) + std::string(4095 - fmt::format("long/{}/", id).size(), 'n');
  return fmt::format("train/class {}\n\xff/{:05}.jpg", id % 10, id);
}

Result<void> pack(const Kind& kind, const std::string& path) {
  layout::Schema schema = layout::parse_schema(kind.schema).value();
  schema.attributes.emplace_back("classes", std::string("cat\0dog", 7));
  volume::WriterOptions options;
  options.chunk_bytes = layout::kMinChunkBytes;
  options.names = kind.names;
  auto writer = volume::Writer::create(path, schema, options);
  if (!writer.ok()) return writer.error();
  base::Prng prng(kind.samples);
  for (std::uint32_t id = 0; id < kind.samples; ++id) {
    std::vector<std::vector<std::byte>> values;
    for (const layout::Field& field : schema.fields) {
      const std::uint64_t variable = id % 11 == 3                ? 0
                                     : kind.large && id % 4 == 1 ? prng.below(200'000)
                                                                 : prng.below(900);
      values.push_back(noise(prng, field.fixed() ? field.fixed_bytes() : variable));
      if (field.kind == layout::Kind::kText) std::ranges::fill(values.back(), std::byte('t'));  // text is UTF-8
    }
    const std::vector<layout::FieldValue> fields(values.begin(), values.end());
    if (auto appended = (*writer)->append(kind.names ? name_of(id) : "", fields); !appended.ok())
      return appended.error();
  }
  auto committed = (*writer)->commit();
  return committed.ok() ? Result<void>() : Result<void>(committed.error());
}

Result<void> print(const std::string& path) {
  auto mounted = volume::Volume::mount(path);
  if (!mounted.ok()) return mounted.error();
  const volume::Volume& volume = **mounted;
  for (std::uint32_t id = 0; id < volume.size(); ++id) {
    auto record = volume.read(SampleId{id});
    if (!record.ok()) return record.error();
    auto name = volume.name(SampleId{id});
    if (!name.ok()) return name.error();
    std::string hex, fields;
    for (const char c : *name) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
    for (const layout::FieldValue value : record->fields) {
      fields += fmt::format("{}[{}, \"{:08x}\"]", fields.empty() ? "" : ", ", value.size(), base::crc32c(value));
    }
    fmt::print("{{\"id\": {}, \"name\": \"{}\", \"fields\": [{}]}}\n", id, hex, fields);
  }
  return {};
}

int fail(const std::string& sentence) {
  fmt::print(stderr, "format_volume: {}\n", sentence);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "print") {
    const auto printed = print(arguments[1]);
    return printed.ok() ? 0 : fail(printed.error().message);
  }
  if (arguments.size() == 3 && arguments[0] == "pack") {
    for (const Kind& kind : kKinds) {
      if (kind.name != arguments[1]) continue;
      const auto packed = pack(kind, arguments[2]);
      return packed.ok() ? 0 : fail(packed.error().message);
    }
  }
  return fail("usage: format_volume pack KIND PATH | format_volume print PATH");
}
