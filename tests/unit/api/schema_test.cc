#include "api_support.h"

namespace dlfs {
namespace {

TEST(ApiSchema, text_survives_a_round_trip) {
  for (const char* text :
       {"image: bytes", "image: bytes, label: int64", "t: float32[3,224,224], caption: text, b: bfloat16[2]"}) {
    const auto schema = Schema::parse(text);
    ASSERT_TRUE(schema.ok()) << schema.error().message;
    EXPECT_EQ(schema->to_string(), text);
  }
}

TEST(ApiSchema, parsed_fields_say_kind_dtype_and_shape) {
  const auto schema = api_test::must(Schema::parse("image: bytes, mask: uint8[256,128], label: int64"));
  ASSERT_EQ(schema.fields.size(), 3u);
  EXPECT_EQ(schema.fields[0].kind, Kind::kBytes);
  EXPECT_EQ(schema.fields[0].dtype, "");
  EXPECT_EQ(schema.fields[1].kind, Kind::kTensor);
  EXPECT_EQ(schema.fields[1].dtype, "uint8");
  EXPECT_EQ(schema.fields[1].shape, (std::vector<std::uint64_t>{256, 128}));
  EXPECT_TRUE(schema.fields[2].shape.empty());
}

TEST(ApiSchema, nonsense_is_refused_with_a_reason) {
  const auto schema = Schema::parse("image: jpeg");
  ASSERT_FALSE(schema.ok());
  EXPECT_EQ(schema.error().code, Code::kInvalidArgument);
  EXPECT_NE(schema.error().message.find("jpeg"), std::string::npos) << schema.error().message;
}

TEST(ApiSchema, a_writer_refuses_a_schema_that_was_built_wrong) {
  api_test::TemporaryDirectory directory;
  Schema schema;
  schema.fields.push_back({"label", Kind::kTensor, "int65", {}});
  auto writer = Writer::create(directory / "v.dlfs", schema);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, Code::kInvalidArgument);
  EXPECT_NE(writer.error().message.find("label"), std::string::npos) << writer.error().message;
  schema.fields[0] = {"image", Kind::kBytes, "uint8", {}};
  writer = Writer::create(directory / "v.dlfs", schema);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace dlfs
