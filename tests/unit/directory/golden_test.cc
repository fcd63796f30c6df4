// An index that was put together from docs/format.md, both ways.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/crc32c.h"
#include "directory/directory.h"

namespace dlfs::directory {
namespace {

constexpr std::uint32_t kChunk = 65536;
constexpr std::uint64_t kHashes[] = {0x8000000000000000, 0x00FF000000000000, 0xFFFF000000000000, 0x0001000000000000,
                                     0x00FF000000000000};
constexpr layout::Location kPlaces[] = {
    {65536, 70000, true}, {1000, 8, false}, {198616, 63528, false}, {0, 1000, false}, {196608, 2001, false}};

layout::Superblock superblock() {
  layout::Superblock s;
  s.chunk_bytes = kChunk;
  s.record_salt = 99;
  s.sample_count = 5;
  s.data = {131072, 4 * kChunk, 0};
  return s;
}

TEST(Golden, index_is_built) {
  Builder builder(kChunk, true);
  for (std::uint32_t id = 0; id < 5; ++id) builder.add(SampleId{id}, kPlaces[id], kHashes[id]);
  builder.add_name_block(SampleId{0});
  builder.add_name_block(SampleId{3});
  const auto index = builder.finish(superblock());
  ASSERT_TRUE(index.ok()) << index.error().message;
  EXPECT_EQ(*index, golden::load("index"));
}

TEST(Golden, index_is_read) {
  const auto bytes = golden::load("index");
  auto arena = base::Arena::create(bytes.size(), false);
  std::ranges::copy(bytes, arena->bytes().begin());
  layout::Superblock s = superblock();
  s.index = {0, bytes.size(), base::crc32c(bytes)};
  const auto directory = Directory::load(std::move(arena).value(), s);
  ASSERT_TRUE(directory.ok()) << directory.error().message;
  for (std::uint32_t id = 0; id < 5; ++id) {
    const layout::Location at = directory->location(SampleId{id});
    EXPECT_EQ(at.address_bytes, kPlaces[id].address_bytes);
    EXPECT_EQ(at.length_bytes, id == 0 ? 73728 : kPlaces[id].length_bytes);
    EXPECT_EQ(at.large, id == 0);
    EXPECT_EQ(directory->name_block_of(SampleId{id}), id < 3 ? 0u : 1u);
  }
  const std::uint32_t slots[] = {3, 1, 0, 4, 2};
  for (std::uint32_t slot = 0; slot < 5; ++slot) EXPECT_EQ(directory->id_of(Slot{slot}).value, slots[slot]);
  ASSERT_EQ(directory->unit_count(), 3u);
  EXPECT_EQ(directory->first_slot(1), 2u);
  EXPECT_EQ(directory->first_slot(2), 3u);
  SampleId found[3];
  ASSERT_EQ(directory->candidates(kHashes[4], found), 2u);
  EXPECT_EQ(found[0].value, 1u);
  EXPECT_EQ(found[1].value, 4u);
}

// The value that xxHash publishes for the empty input, and one that its Python package (0.8.4) computed: the hash is
// part of the format.
TEST(Golden, name_hash) {
  EXPECT_EQ(name_hash("", 0), 0x2D06800538D394C2u);
  EXPECT_EQ(name_hash("train/cat/1.jpg", 1), 0x03200844bcadbe2eu);
}

}  // namespace
}  // namespace dlfs::directory
