// Samples whose every byte names its place, and a temporary directory that goes with the test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/mix.h"
#include "support/temporary_directory.h"
#include "volume/volume.h"
#include "volume/writer.h"

namespace dlfs::volume::test {

using testing_support::TemporaryDirectory;

// Byte i of sample `id`, of version `seed`.
inline std::byte byte_of(std::uint64_t id, std::uint64_t i, std::uint64_t seed = 0) {
  return static_cast<std::byte>(base::mix64(base::mix64(seed * 0x10001 + id) + i / 8) >> (i % 8 * 8));
}
inline std::vector<std::byte> bytes_of(std::uint64_t id, std::uint64_t length, std::uint64_t seed = 0) {
  std::vector<std::byte> bytes(length);
  for (std::uint64_t i = 0; i < length; ++i) bytes[i] = byte_of(id, i, seed);
  return bytes;
}

inline layout::Schema one_field() {
  return {.fields = {{.name = "data", .kind = layout::Kind::kBytes, .dtype = {}, .shape = {}}}, .attributes = {}};
}

inline std::string name_of(std::uint64_t id) {
  return "dir " + std::to_string(id % 7) + "/sample " + std::to_string(id) + ".bin";
}

inline std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
inline void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// Packs one-field samples of these lengths; fails the test when that does not work.
inline void pack(const std::string& url, const std::vector<std::uint64_t>& lengths, const WriterOptions& options = {},
                 std::uint64_t seed = 0) {
  auto writer = Writer::create(url, one_field(), options);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (std::uint64_t id = 0; id < lengths.size(); ++id) {
    const auto bytes = bytes_of(id, lengths[id], seed);
    const layout::FieldValue field(bytes);
    const auto appended = (*writer)->append(name_of(id), {&field, 1});
    ASSERT_TRUE(appended.ok()) << appended.error().message;
  }
  const auto committed = (*writer)->commit();
  ASSERT_TRUE(committed.ok()) << committed.error().message;
}

// Every sample of the volume is as packed.
inline void expect_samples(const Volume& volume, const std::vector<std::uint64_t>& lengths, bool names = true,
                           std::uint64_t seed = 0) {
  ASSERT_EQ(volume.size(), lengths.size());
  for (std::uint32_t id = 0; id < lengths.size(); ++id) {
    const auto record = volume.read(SampleId{id});
    ASSERT_TRUE(record.ok()) << record.error().message;
    const auto expected = bytes_of(id, lengths[id], seed);
    ASSERT_EQ(record->fields.size(), 1u);
    ASSERT_TRUE(std::ranges::equal(record->fields[0], expected)) << id;
    if (!names) continue;
    const auto found = volume.find(name_of(id));
    ASSERT_TRUE(found.ok()) << found.error().message;
    ASSERT_EQ(found->value, id);
    ASSERT_EQ(volume.name(SampleId{id}).value(), name_of(id));
  }
}

inline std::vector<std::uint64_t> random_lengths(std::size_t count, std::uint64_t bound, std::uint64_t seed = 1) {
  base::Prng prng(seed);
  std::vector<std::uint64_t> lengths(count);
  for (auto& length : lengths) length = prng.below(bound);
  return lengths;
}

}  // namespace dlfs::volume::test
