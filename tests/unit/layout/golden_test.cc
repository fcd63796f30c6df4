// Bytes that were put together from docs/format.md, both ways.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "layout/name_block.h"
#include "layout/record.h"

namespace dlfs::layout {
namespace {

TEST(Golden, superblock) {
  const auto bytes = golden::load("superblock");
  ASSERT_EQ(bytes.size(), 4096u);
  const auto s = decode_superblock(bytes);
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->volume_id[15], std::byte{0xAF});
  EXPECT_EQ(s->generation, 3u);
  EXPECT_EQ(s->state, State::kCommitted);
  EXPECT_EQ(s->chunk_bytes, 262144u);
  EXPECT_EQ(s->record_salt, 0xDEADBEEFu);
  EXPECT_EQ(s->sample_count, 1000u);
  EXPECT_EQ(s->device_bytes, 1355776u);
  EXPECT_EQ(s->data, (Extent{262144, 1048576, 0}));
  EXPECT_EQ(s->names, (Extent{1310720, 32768, 0}));
  EXPECT_EQ(s->index, (Extent{1343488, 5000, 0x11223344}));
  EXPECT_EQ(s->schema, (Extent{1351680, 60, 0x55667788}));
  EXPECT_EQ(s->payload_bytes, 900'000u);
  EXPECT_EQ(s->record_bytes, 8000u);
  EXPECT_EQ(s->padding_bytes, 140'576u);
  EXPECT_EQ(s->unix_time_s, 1'790'000'000u);
  EXPECT_EQ(s->writer, "dlfs 0.1.0");
  EXPECT_TRUE(std::ranges::equal(encode(*s), bytes));
}

TEST(Golden, schema) {
  const auto bytes = golden::load("schema");
  const auto schema = decode_schema(bytes);
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  EXPECT_EQ(schema->to_string(), "image: bytes, label: int64, mask: uint8[256,256], caption: text");
  ASSERT_EQ(schema->attributes.size(), 2u);
  EXPECT_EQ(schema->attributes[0].second, std::string("cat\0dog", 7));
  EXPECT_EQ(schema->attributes[1].first, "source");
  EXPECT_EQ(encode(*schema), bytes);
}

TEST(Golden, record) {
  const auto bytes = golden::load("record");
  ASSERT_EQ(bytes.size(), 51u);
  const RecordLayout layout(parse_schema("caption: text, label: int32, image: bytes, box: float32[3]").value(),
                            kMinChunkBytes, 0x5A175A17);
  std::vector<FieldValue> fields(4);
  ASSERT_TRUE(layout.decode(bytes, SampleId{7}, fields));
  EXPECT_TRUE(std::ranges::equal(fields[0], std::as_bytes(std::span("hello", 5))));
  EXPECT_EQ(base::load_le<std::int32_t>(fields[1].data()), -2);
  EXPECT_TRUE(std::ranges::equal(fields[2], std::as_bytes(std::span("\xff\xd8\xff", 3))));
  EXPECT_EQ(std::bit_cast<float>(base::load_le<std::uint32_t>(fields[3].data() + 8)), -1.0f);
  std::vector<std::byte> again(bytes.size());
  layout.encode(SampleId{7}, fields, again);
  EXPECT_EQ(again, bytes);
}

TEST(Golden, name_block) {
  const auto bytes = golden::load("name_block");
  const auto block = NameBlock::decode(bytes, 77);
  ASSERT_TRUE(block.ok()) << block.error().message;
  EXPECT_EQ(block->first_id().value, 41u);
  ASSERT_EQ(block->count(), 4u);
  EXPECT_EQ(block->name(0), "train/cat/1.jpg");
  EXPECT_EQ(block->name(1), "");
  EXPECT_EQ(block->name(2), "with space\nand newline");
  EXPECT_EQ(block->name(3), "\xff\xfe");
  NameBlockBuilder builder(77);
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(builder.add(SampleId{41 + i}, block->name(i)));
  std::vector<std::byte> again(kNameBlockBytes);
  builder.finish(again);
  EXPECT_EQ(again, bytes);
}

}  // namespace
}  // namespace dlfs::layout
