#include "layout/record.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/mix.h"
#include "layout/large_record.h"

namespace dlfs::layout {
namespace {

constexpr std::uint32_t kChunk = kMinChunkBytes;
constexpr std::uint32_t kSalt = 0x5A175A17;

struct Sample {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<FieldValue> fields() const { return {bytes.begin(), bytes.end()}; }
  std::vector<std::uint64_t> lengths() const {
    std::vector<std::uint64_t> out;
    for (const auto& field : bytes) out.push_back(field.size());
    return out;
  }
};

Schema schema_of(const std::string& text) {
  auto schema = parse_schema(text);
  EXPECT_TRUE(schema.ok()) << text;
  return std::move(schema).value();
}

std::vector<std::byte> noise(std::uint64_t seed, std::size_t count) {
  base::Prng prng(seed);
  std::vector<std::byte> out(count);
  for (std::byte& b : out) b = static_cast<std::byte>(prng.next());
  return out;
}

// Values for the schema: tensors as they must be, variable fields as long as given (in turn).
Sample sample_of(const Schema& schema, const std::vector<std::size_t>& variable_lengths, std::uint64_t seed = 1) {
  Sample sample;
  std::size_t next = 0;
  for (const Field& field : schema.fields) {
    const std::size_t length = field.fixed() ? field.fixed_bytes() : variable_lengths.at(next++);
    sample.bytes.push_back(noise(seed++, length));
  }
  return sample;
}

std::vector<std::byte> encoded(const RecordLayout& layout, SampleId id, const Sample& sample) {
  std::vector<std::byte> out(layout.record_bytes(sample.lengths()), std::byte{0xEE});
  layout.encode(id, sample.fields(), out);
  return out;
}

bool same(std::span<const FieldValue> found, const Sample& sample) {
  return std::equal(found.begin(), found.end(), sample.bytes.begin(), sample.bytes.end(),
                    [](FieldValue a, const std::vector<std::byte>& b) { return std::ranges::equal(a, b); });
}

std::vector<std::byte> encoded_large(const RecordLayout& layout, SampleId id, const Sample& sample) {
  LargeRecordEncoder encoder(layout, id, sample.lengths());
  EXPECT_EQ(encoder.record_bytes(), layout.record_bytes(sample.lengths()));
  std::vector<std::byte> out;
  std::vector<std::byte> piece(layout.chunk_bytes(), std::byte{0xEE});
  while (!encoder.done()) {
    const auto size =
        encoder.next(piece, [&](std::size_t field, std::uint64_t offset, std::span<std::byte> into) -> Result<void> {
          std::copy_n(sample.bytes[field].begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
          return {};
        });
    out.insert(out.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(*size));
  }
  EXPECT_EQ(out.size(), encoder.record_bytes());
  return out;
}

TEST(Record, one_field_costs_eight_bytes) {
  const RecordLayout layout(schema_of("image: bytes"), kChunk, kSalt);
  for (const std::uint64_t length : {0u, 1u, 7u, 8u, 921u})
    EXPECT_EQ(layout.record_bytes(std::vector{length}), 8 + length);
}

TEST(Record, fixed_fields_come_first_and_every_field_is_aligned) {
  const Schema schema = schema_of("caption: text, label: int32, image: bytes, box: float32[3]");
  const RecordLayout layout(schema, kChunk, kSalt);
  const Sample sample = sample_of(schema, {5, 3});
  // head 8 + one length 8; label at 16..20, box at 24..36, caption at 40..45, image at 48..51
  const auto record = encoded(layout, SampleId{7}, sample);
  ASSERT_EQ(record.size(), 51u);
  std::vector<FieldValue> fields(4);
  ASSERT_TRUE(layout.decode(record, SampleId{7}, fields));
  EXPECT_TRUE(same(fields, sample));
  EXPECT_EQ(fields[1].data() - record.data(), 16);
  EXPECT_EQ(fields[3].data() - record.data(), 24);
  EXPECT_EQ(fields[0].data() - record.data(), 40);
  EXPECT_EQ(fields[2].data() - record.data(), 48);
}

TEST(Record, is_refused_under_another_id_salt_or_length) {
  const Schema schema = schema_of("a: bytes, b: bytes");
  const RecordLayout layout(schema, kChunk, kSalt), other(schema, kChunk, kSalt + 1);
  const auto record = encoded(layout, SampleId{7}, sample_of(schema, {4, 9}));
  std::vector<FieldValue> fields(2);
  EXPECT_TRUE(layout.decode(record, SampleId{7}, fields));
  EXPECT_FALSE(layout.decode(record, SampleId{8}, fields));
  EXPECT_FALSE(other.decode(record, SampleId{7}, fields));
  auto longer = record;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(layout.decode(longer, SampleId{7}, fields));
}

TEST(Record, every_truncation_and_every_flipped_bit_is_found) {
  const Schema schema = schema_of("a: bytes, label: int16, b: bytes");
  const RecordLayout layout(schema, kChunk, kSalt);
  auto record = encoded(layout, SampleId{123456}, sample_of(schema, {13, 6}));
  std::vector<FieldValue> fields(3);
  for (std::size_t length = 0; length < record.size(); ++length) {
    EXPECT_FALSE(layout.decode(std::span(record).first(length), SampleId{123456}, fields)) << length;
  }
  for (std::size_t bit = 0; bit < 8 * record.size(); ++bit) {
    record[bit / 8] ^= std::byte(1u << bit % 8);
    EXPECT_FALSE(layout.decode(record, SampleId{123456}, fields)) << bit;
    record[bit / 8] ^= std::byte(1u << bit % 8);
  }
  EXPECT_TRUE(layout.decode(record, SampleId{123456}, fields));
}

TEST(Record, hostile_lengths_stay_inside_the_record) {
  const Schema schema = schema_of("a: bytes, b: bytes, c: bytes");
  const RecordLayout layout(schema, kChunk, kSalt);
  const auto good = encoded(layout, SampleId{1}, sample_of(schema, {1, 2, 3}));
  for (const std::uint64_t hostile : {~0ull, ~0ull - 7, 1ull << 63, 1ull << 32, 4096ull, 41ull}) {
    for (const std::size_t at : {8u, 16u}) {
      auto record = good;
      base::store_le<std::uint64_t>(record.data() + at, hostile);
      std::vector<FieldValue> fields(3);
      EXPECT_FALSE(layout.decode_unverified(record, SampleId{1}, fields)) << hostile;
    }
  }
}

TEST(Record, any_schema_and_any_lengths_come_back) {
  const bool ok = rc::check("decode(encode(sample)) == sample", [] {
    Schema schema;
    const auto count = *rc::gen::inRange<std::size_t>(1, 20);
    std::vector<std::size_t> lengths;
    for (std::size_t i = 0; i < count; ++i) {
      Field field{"f" + std::to_string(i), static_cast<Kind>(*rc::gen::inRange(0, 3)), DType::kUint8, {}};
      if (field.fixed()) {
        field.dtype = static_cast<DType>(*rc::gen::inRange(0, 15));
        field.shape = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 5));
        while (field.shape.size() > 3) field.shape.pop_back();
      } else {
        lengths.push_back(*rc::gen::element<std::size_t>(0, 0, 1, 7, 8, 9, 63, 1000));
      }
      schema.fields.push_back(field);
    }
    RC_ASSERT(validate(schema).ok());
    const RecordLayout layout(schema, kChunk, kSalt);
    const Sample sample = sample_of(schema, lengths, *rc::gen::arbitrary<std::uint64_t>());
    const SampleId id{*rc::gen::arbitrary<std::uint32_t>()};
    const auto record = encoded(layout, id, sample);
    std::vector<FieldValue> fields(count);
    RC_ASSERT(layout.decode(record, id, fields));
    RC_ASSERT(same(fields, sample));
    for (const FieldValue& field : fields) RC_ASSERT((field.data() - record.data()) % 8 == 0);
  });
  EXPECT_TRUE(ok);
}

TEST(LargeRecord, begins_one_byte_behind_a_chunk) {
  const RecordLayout layout(schema_of("image: bytes"), kChunk, kSalt);
  EXPECT_EQ(layout.record_bytes(std::vector<std::uint64_t>{kChunk - 8}), kChunk);
  EXPECT_FALSE(layout.large(kChunk));
  // 16 bytes of head, the data, two pieces and the table's own sum
  EXPECT_EQ(layout.record_bytes(std::vector<std::uint64_t>{kChunk - 7}), 16 + (kChunk - 7) + 12);
}

TEST(LargeRecord, shape_follows_from_the_whole_length) {
  for (std::uint64_t body = kChunk + 1; body < 5u * kChunk; body += 331) {
    const LargeShape shape = LargeShape::of_body(body, kChunk);
    const auto again = LargeShape::of_record(shape.record_bytes, kChunk);
    ASSERT_TRUE(again.has_value()) << body;
    EXPECT_EQ(again->table_offset, body);
    EXPECT_EQ(again->chunk_count, shape.chunk_count);
  }
  for (std::uint64_t k = 2; k < 40; ++k) {  // around every edge
    for (std::int64_t d = -9; d <= 9; ++d) {
      const std::uint64_t body = k * kChunk + static_cast<std::uint64_t>(d);
      EXPECT_EQ(LargeShape::of_record(LargeShape::of_body(body, kChunk).record_bytes, kChunk)->table_offset, body);
    }
  }
  EXPECT_FALSE(LargeShape::of_record(kChunk, kChunk).has_value());
  EXPECT_FALSE(LargeShape::of_record(0, kChunk).has_value());
}

// The first lengths put the table at and across an edge of a chunk.
class LargeRecordSizes : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, LargeRecordSizes,
                         testing::Values(kChunk - 7, 2 * kChunk - 16, 2 * kChunk - 17, 2 * kChunk - 15, 2 * kChunk - 20,
                                         2 * kChunk - 28, 3 * kChunk - 19, 3 * kChunk + 12345));

TEST_P(LargeRecordSizes, come_back_whole_and_in_parts) {
  const RecordLayout layout(schema_of("image: bytes"), kChunk, kSalt);
  Sample sample;
  sample.bytes.push_back(noise(3, GetParam()));
  const auto record = encoded_large(layout, SampleId{9}, sample);
  std::vector<FieldValue> fields(1);
  ASSERT_TRUE(decode_large(layout, record, SampleId{9}, fields));
  EXPECT_TRUE(same(fields, sample));

  const auto head = LargeRecordHead::decode(layout, std::span(record).first(LargeRecordHead::bytes_needed(layout)),
                                            SampleId{9}, record.size());
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->shape().record_bytes, record.size());
  EXPECT_EQ(head->field(0).length_bytes, GetParam());
  const auto table = std::span(record).subspan(head->shape().table_offset, head->shape().table_bytes());
  ASSERT_TRUE(head->verify_table(table));
  for (std::uint64_t i = 0; i < head->shape().chunk_count; ++i) {
    EXPECT_TRUE(head->verify_piece(table, i, std::span(record).subspan(i * kChunk, head->piece_bytes(i))));
  }
  EXPECT_FALSE(head->verify_piece(table, 0, std::span(record).subspan(1, kChunk)));
}

TEST(LargeRecord, many_fields_come_back) {
  const Schema schema = schema_of("a: bytes, mask: uint8[300,300], b: text, label: int64, c: bytes");
  const RecordLayout layout(schema, kChunk, kSalt);
  for (const auto& lengths :
       std::vector<std::vector<std::size_t>>{{0, 0, 0}, {100'000, 0, 1}, {1, 200'001, 70'000}, {3, 5, 65'536}}) {
    const Sample sample = sample_of(schema, lengths);
    const auto record = encoded_large(layout, SampleId{1}, sample);
    std::vector<FieldValue> fields(5);
    ASSERT_TRUE(decode_large(layout, record, SampleId{1}, fields));
    EXPECT_TRUE(same(fields, sample));
    auto followed = record;  // what lies behind it in its last chunk does not matter
    followed.resize(record.size() + 77, std::byte{0x77});
    EXPECT_TRUE(decode_large(layout, followed, SampleId{1}, fields));
    EXPECT_FALSE(decode_large(layout, record, SampleId{2}, fields));
  }
}

TEST(LargeRecord, every_truncation_is_refused_and_every_damaged_byte_found) {
  const RecordLayout layout(schema_of("a: bytes, label: int64, b: bytes"), kChunk, kSalt);
  Sample sample;
  sample.bytes = {noise(1, 100), noise(2, 8), noise(3, 70'000)};
  auto record = encoded_large(layout, SampleId{5}, sample);
  std::vector<FieldValue> fields(3);
  for (std::size_t length = 0; length < record.size();
       length += length < 200 || length > record.size() - 40 ? 1 : 997) {
    EXPECT_FALSE(decode_large(layout, std::span(record).first(length), SampleId{5}, fields)) << length;
  }
  for (std::size_t at = 0; at < record.size(); at += at < 160 || at > record.size() - 40 ? 1 : 499) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      record[at] ^= std::byte(1u << bit);
      EXPECT_FALSE(decode_large(layout, record, SampleId{5}, fields)) << at;
      record[at] ^= std::byte(1u << bit);
    }
  }
  EXPECT_TRUE(decode_large(layout, record, SampleId{5}, fields));
}

TEST(LargeRecord, longer_than_the_directory_says_is_refused) {
  const RecordLayout layout(schema_of("a: bytes"), kChunk, kSalt);
  Sample sample;
  sample.bytes = {noise(1, 70'000)};
  const auto record = encoded_large(layout, SampleId{5}, sample);
  EXPECT_TRUE(LargeRecordHead::decode(layout, record, SampleId{5}, record.size()).has_value());
  EXPECT_FALSE(LargeRecordHead::decode(layout, record, SampleId{5}, record.size() - 1).has_value());
}

TEST(LargeRecord, a_failing_source_stops_the_encoder) {
  const RecordLayout layout(schema_of("a: bytes"), kChunk, kSalt);
  LargeRecordEncoder encoder(layout, SampleId{1}, std::vector<std::uint64_t>{200'000});
  std::vector<std::byte> piece(kChunk);
  const auto failed = encoder.next(piece, [](std::size_t, std::uint64_t, std::span<std::byte>) -> Result<void> {
    return Error{Code::kSourceChanged, "gone"};
  });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kSourceChanged);
}

}  // namespace
}  // namespace dlfs::layout
