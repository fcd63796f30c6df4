#include "layout/format.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/endian.h"

namespace dlfs::layout {
namespace {

Superblock committed() {
  Superblock s;
  for (std::size_t i = 0; i < 16; ++i) s.volume_id[i] = std::byte(0xA0 + i);
  s.generation = 3;
  s.state = State::kCommitted;
  s.chunk_bytes = 256u << 10;
  s.record_salt = 0xDEADBEEF;
  s.sample_count = 1000;
  s.data = {256u << 10, 1u << 20, 0};
  s.names = {1310720, 2 * 16384, 0};
  s.index = {1343488, 5000, 0x11223344};
  s.schema = {1351680, 60, 0x55667788};
  s.device_bytes = 1355776;
  s.payload_bytes = 900'000;
  s.record_bytes = 8000;
  s.padding_bytes = 140'576;
  s.unix_time_s = 1'790'000'000;
  s.writer = "dlfs 0.1.0";
  return s;
}

Code code_of(const Superblock& s) {
  const auto decoded = decode_superblock(encode(s));
  return decoded.ok() ? Code{} : decoded.error().code;
}

TEST(Superblock, comes_back) {
  const auto decoded = decode_superblock(encode(committed()));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, committed());
  const auto incomplete = decode_superblock(encode(Superblock{}));
  ASSERT_TRUE(incomplete.ok());
  EXPECT_EQ(incomplete->state, State::kIncomplete);
}

TEST(Superblock, every_truncation_and_every_flipped_bit_is_found) {
  auto bytes = encode(committed());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    ASSERT_FALSE(decode_superblock(std::span(bytes).first(length)).ok());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1u << bit % 8);
    const auto decoded = decode_superblock(bytes);
    ASSERT_FALSE(decoded.ok()) << bit;
    ASSERT_EQ(decoded.error().code, bit < 64 ? Code::kForeign : Code::kCorrupt) << bit;
    bytes[bit / 8] ^= std::byte(1u << bit % 8);
  }
  EXPECT_TRUE(decode_superblock(bytes).ok());
}

TEST(Superblock, tells_foreign_newer_and_damaged_apart) {
  auto bytes = encode(committed());
  EXPECT_EQ(decode_superblock(std::vector<std::byte>(4096)).error().code, Code::kForeign);
  base::store_le<std::uint32_t>(bytes.data() + 8, 2);
  EXPECT_EQ(decode_superblock(bytes).error().code, Code::kCorrupt);
  base::store_le<std::uint32_t>(bytes.data() + 4092, base::crc32c(std::span(bytes).first(4092)));
  EXPECT_EQ(decode_superblock(bytes).error().code, Code::kUnsupportedVersion);
}

TEST(Superblock, impossible_values_under_a_right_sum_are_refused) {
  EXPECT_EQ(code_of(committed()), Code{});
  const auto with = [](auto change) {
    Superblock s = committed();
    change(s);
    return code_of(s);
  };
  EXPECT_EQ(with([](Superblock& s) { s.generation = 0; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.state = static_cast<State>(2); }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.member = 1; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.members = 2; }), Code::kUnsupportedVersion);
  for (const std::uint32_t chunk : {0u, 32u << 10, 32u << 20, 300'000u}) {
    EXPECT_EQ(with([&](Superblock& s) { s.chunk_bytes = chunk; }), Code::kCorrupt) << chunk;
  }
  EXPECT_EQ(with([](Superblock& s) { s.sample_count = kMaxSamples + 1; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.sample_count = 200'000; }), Code::kCorrupt);  // more than the data can hold
  EXPECT_EQ(with([](Superblock& s) { s.device_bytes += 1; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.device_bytes = kMaxDeviceBytes + 4096; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.data.offset_bytes += 4096; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.data.offset_bytes = 0; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.data.length_bytes -= 4096; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.data.length_bytes += 1u << 20; }), Code::kCorrupt);  // into the names
  EXPECT_EQ(with([](Superblock& s) { s.names.length_bytes += 1; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.names.offset_bytes += 512; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.index.offset_bytes -= 4096; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.index.length_bytes = ~0ull; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.index.length_bytes = 0; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.schema.length_bytes = 0; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.schema.offset_bytes = ~0ull & ~4095ull; }), Code::kCorrupt);
  EXPECT_EQ(with([](Superblock& s) { s.names = {}; }), Code{});  // samples without names
}

TEST(Superblock, a_long_writer_is_cut_to_63_bytes) {
  Superblock s = committed();
  s.writer = std::string(200, 'w');
  EXPECT_EQ(decode_superblock(encode(s))->writer, std::string(63, 'w'));
}

Schema example() {
  Schema schema;
  schema.fields = {{"image", Kind::kBytes, DType::kUint8, {}},
                   {"label", Kind::kTensor, DType::kInt64, {}},
                   {"mask", Kind::kTensor, DType::kUint8, {256, 256}},
                   {"caption", Kind::kText, DType::kUint8, {}}};
  schema.attributes = {{"classes", std::string("cat\0dog", 7)}, {"source", ""}};
  return schema;
}

TEST(Schema, comes_back) {
  const auto decoded = decode_schema(encode(example()));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, example());
}

TEST(Schema, every_truncation_and_every_flipped_bit_is_found) {
  auto bytes = encode(example());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    ASSERT_FALSE(decode_schema(std::span(bytes).first(length)).ok());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1u << bit % 8);
    ASSERT_FALSE(decode_schema(bytes).ok()) << bit;
    bytes[bit / 8] ^= std::byte(1u << bit % 8);
  }
  EXPECT_TRUE(decode_schema(bytes).ok());
}

// Every single byte changed to every value, under a right sum: refused, or another valid schema.
TEST(Schema, hostile_bytes_under_a_right_sum_give_an_error_or_a_valid_schema) {
  const auto good = encode(example());
  for (std::size_t at = 8; at + 4 < good.size(); ++at) {
    for (unsigned value = 0; value < 256; ++value) {
      auto bytes = good;
      bytes[at] = std::byte(value);
      base::store_le<std::uint32_t>(bytes.data() + bytes.size() - 4,
                                    base::crc32c(std::span(bytes).first(bytes.size() - 4)));
      const auto decoded = decode_schema(bytes);
      ASSERT_TRUE(!decoded.ok() || (validate(*decoded).ok() && encode(*decoded) == bytes)) << at;
    }
  }
}

TEST(Schema, text_is_parsed) {
  const auto parsed = parse_schema("image: bytes, label:int64 ,mask: uint8[256, 256], caption: text");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->fields, example().fields);
  EXPECT_EQ(parsed->to_string(), "image: bytes, label: int64, mask: uint8[256,256], caption: text");
  EXPECT_EQ(parsed->find("mask"), 2);
  EXPECT_EQ(parsed->find("nothing"), -1);
  EXPECT_EQ(parse_schema("x: float32[]")->fields[0].shape.size(), 0u);
}

TEST(Schema, wrong_text_is_explained) {
  for (const char* text :
       {"", " ", "image", "image:", "image: jpeg", "image: bytes,", "image: bytes label: int64", "a: int64[",
        "a: int64[1", "a: int64[x]", "a: int64[1]]", "a: bytes, a: text", ": bytes", "\"a: bytes", "a: bytes[3]",
        "a: uint8[99999999999]", "a: int64[-1]", "a: uint8[18446744073709551616]"}) {
    const auto parsed = parse_schema(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
  }
  EXPECT_EQ(parse_schema("image: jpeg").error().message,
            "schema 'image: jpeg': expected bytes, text or a dtype such as int64 instead of 'jpeg' at character 7");
}

TEST(Schema, limits_are_checked) {
  Schema schema = example();
  schema.fields[0].name = std::string(256, 'x');
  EXPECT_FALSE(validate(schema).ok());
  schema.fields[0].name = std::string(255, 'x');
  EXPECT_TRUE(validate(schema).ok());
  for (const char* bad : {"", "tab\t", "\xff", "new\nline", "c1\xc2\x85"}) {
    schema.fields[0].name = bad;
    EXPECT_FALSE(validate(schema).ok()) << bad;
  }
  schema.fields[0].name = "b\\s";
  EXPECT_TRUE(validate(schema).ok());
  schema.attributes.push_back({"classes", "again"});
  EXPECT_FALSE(validate(schema).ok());
  schema.attributes = {{"big", std::string(kMaxSchemaBytes, 'x')}};
  EXPECT_FALSE(validate(schema).ok());
  schema.attributes.clear();
  while (schema.fields.size() < kMaxFields)
    schema.fields.push_back({"f" + std::to_string(schema.fields.size()), Kind::kBytes, DType::kUint8, {}});
  EXPECT_TRUE(validate(schema).ok());
  EXPECT_TRUE(decode_schema(encode(schema)).ok());
  schema.fields.push_back({"one more", Kind::kBytes, DType::kUint8, {}});
  EXPECT_FALSE(validate(schema).ok());
  Schema huge;
  huge.fields = {{"a", Kind::kTensor, DType::kFloat64, {1ull << 62, 1ull << 62}}};
  EXPECT_FALSE(validate(huge).ok());
  huge.fields[0].shape = {1ull << 62, 0};
  EXPECT_TRUE(validate(huge).ok());
  huge.fields[0].shape = {(64ull << 30) / 8};
  EXPECT_TRUE(validate(huge).ok());
  huge.fields.push_back({"b", Kind::kTensor, DType::kUint8, {}});
  EXPECT_FALSE(validate(huge).ok());
}

TEST(DType, names_and_sizes_agree) {
  for (unsigned i = 0; i <= static_cast<unsigned>(DType::kComplex128); ++i) {
    const auto dtype = static_cast<DType>(i);
    ASSERT_EQ(*dtype_of_name(dtype_name(dtype)), dtype);
    const std::string name = dtype_name(dtype);
    const std::size_t digits = name.find_first_of("0123456789");
    EXPECT_EQ(item_bytes(dtype), name == "bool" ? 1 : std::stoul(name.substr(digits)) / 8) << name;
  }
  EXPECT_FALSE(dtype_of_name("int65").ok());
  EXPECT_EQ(item_bytes(static_cast<DType>(15)), 0u);
}

TEST(Schema, any_text_is_an_error_or_comes_back) {
  const bool ok = rc::check("parse(to_string(schema)) == schema", [] {
    Schema schema;
    const auto count = *rc::gen::inRange<std::size_t>(1, 6);
    for (std::size_t i = 0; i < count; ++i) {
      std::string name = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc ,:[]\"\\")));
      Field field{
          name.substr(0, 200) + std::to_string(i), static_cast<Kind>(*rc::gen::inRange(0, 3)), DType::kUint8, {}};
      if (field.fixed()) {
        field.dtype = static_cast<DType>(*rc::gen::inRange(0, 15));
        field.shape = {*rc::gen::inRange<std::uint64_t>(0, 100), *rc::gen::inRange<std::uint64_t>(0, 100)};
      }
      schema.fields.push_back(field);
    }
    RC_ASSERT(validate(schema).ok());
    const auto parsed = parse_schema(schema.to_string());
    RC_ASSERT(parsed.ok());
    RC_ASSERT(*parsed == schema);
    RC_ASSERT(*decode_schema(encode(schema)) == schema);
  });
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace dlfs::layout
