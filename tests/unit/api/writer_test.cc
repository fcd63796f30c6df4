#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "api_support.h"

namespace dlfs {
namespace {

using api_test::must;

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class ApiWriter : public ::testing::Test {
 protected:
  Result<Writer> create(const WriterOptions& options = api_test::small_chunks()) const {
    return Writer::create(path_, must(Schema::parse(api_test::kSchema)), options);
  }
  api_test::TemporaryDirectory directory_;
  std::string path_ = directory_ / "v.dlfs";
};

TEST_F(ApiWriter, without_commit_nothing_is_left) {
  {
    auto writer = must(create());
    for (std::uint32_t id = 0; id < 100; ++id) must(api_test::append_sample(writer, id));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(ApiWriter, without_commit_the_old_volume_stays_as_it_was) {
  api_test::pack(path_, 20);
  const std::string before = contents(path_);
  {
    WriterOptions options = api_test::small_chunks();
    options.overwrite = true;
    auto writer = must(create(options));
    for (std::uint32_t id = 0; id < 100; ++id) must(api_test::append_sample(writer, id));
  }
  EXPECT_EQ(contents(path_), before);
  EXPECT_EQ(must(Volume::mount(path_)).size(), 20u);
}

TEST_F(ApiWriter, an_existing_volume_is_replaced_only_when_asked) {
  api_test::pack(path_, 20);
  const auto refused = create();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kExists);
  WriterOptions options = api_test::small_chunks();
  options.overwrite = true;
  api_test::pack(path_, 30, options);
  EXPECT_EQ(must(Volume::mount(path_)).size(), 30u);
}

TEST_F(ApiWriter, samples_that_do_not_fit_the_schema_are_refused_by_field) {
  auto writer = must(create());
  const std::int32_t short_label = 1;
  const Bytes fields[] = {{}, std::as_bytes(std::span(&short_label, 1)), {}};
  const auto misfit = writer.append("a", fields);
  ASSERT_FALSE(misfit.ok());
  EXPECT_EQ(misfit.error().code, Code::kSchemaMismatch);
  EXPECT_NE(misfit.error().message.find("label"), std::string::npos) << misfit.error().message;
  EXPECT_EQ(writer.append("a", std::span(fields, 2)).error().code, Code::kSchemaMismatch);
  EXPECT_EQ(writer.append(std::string_view("a\0b", 3), fields).ok(), false);
}

TEST_F(ApiWriter, one_name_twice_names_both_samples) {
  auto writer = must(create());
  const std::int64_t label = 1;
  const Bytes fields[] = {{}, std::as_bytes(std::span(&label, 1)), {}};
  for (const char* name : {"a", "b", "a"}) {
    if (!writer.append(name, fields).ok()) return;  // found at once is as good
  }
  const auto committed = writer.commit();
  ASSERT_FALSE(committed.ok());
  EXPECT_EQ(committed.error().code, Code::kDuplicateName);
  EXPECT_NE(committed.error().message.find('0'), std::string::npos) << committed.error().message;
  EXPECT_NE(committed.error().message.find('2'), std::string::npos) << committed.error().message;
}

TEST_F(ApiWriter, samples_may_come_in_any_order_and_as_streams) {
  constexpr std::uint32_t kSamples = 50;
  auto writer =
      must(Writer::create(path_, must(Schema::parse("label: int64, image: bytes")), api_test::small_chunks()));
  for (std::uint32_t position = 0; position < kSamples; ++position) {
    const std::uint32_t id = placement(position, kSamples, 9);
    const auto image = api_test::image_of(id);
    const std::int64_t label = api_test::label_of(id);
    const Bytes fields[] = {std::as_bytes(std::span(&label, 1)), image};
    if (id != api_test::kLargeId) {
      must(writer.append_at(id, api_test::name_of(id), fields));
      continue;
    }
    std::size_t done = 0;
    must(writer.append_stream_at(id, api_test::name_of(id), std::span(fields, 1), image.size(),
                                 [&](std::span<std::byte> into) {
                                   EXPECT_LE(done + into.size(), image.size());
                                   std::memcpy(into.data(), image.data() + done, into.size());
                                   done += into.size();
                                   return Result<void>();
                                 }));
    EXPECT_EQ(done, image.size());
  }
  EXPECT_EQ(must(writer.commit()).samples, kSamples);
  const Volume volume = must(Volume::mount(path_));
  for (std::uint32_t id = 0; id < kSamples; ++id) {
    const Batch batch = must(volume.read({&id, 1}));
    EXPECT_EQ(api_test::bytes_of(batch.field(0, 1)), api_test::image_of(id));
    EXPECT_EQ(must(volume.find(api_test::name_of(id))), id);
  }
}

TEST_F(ApiWriter, a_source_that_fails_ends_the_append_with_its_error) {
  auto writer = must(Writer::create(path_, must(Schema::parse("image: bytes")), api_test::small_chunks()));
  const auto appended = writer.append_stream_at(0, "a", {}, 1'000'000, [](std::span<std::byte>) -> Result<void> {
    return Error{Code::kSourceChanged, "the file is gone"};
  });
  ASSERT_FALSE(appended.ok());
  EXPECT_EQ(appended.error().code, Code::kSourceChanged);
}

TEST_F(ApiWriter, an_empty_volume_mounts) {
  auto writer = must(create());
  EXPECT_EQ(must(writer.commit()).samples, 0u);
  const Volume volume = must(Volume::mount(path_));
  EXPECT_EQ(volume.size(), 0u);
  EXPECT_EQ(volume.find("a").error().code, Code::kNotFound);
  const auto opened = volume.open_id(0);
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("empty"), std::string::npos);
  EXPECT_EQ(must(volume.verify({})).findings, 0u);
}

TEST(ApiPlacement, is_a_permutation_that_the_seed_decides) {
  for (const std::uint32_t n : {1u, 2u, 17u, 1000u}) {
    std::set<std::uint32_t> seen;
    for (std::uint32_t p = 0; p < n; ++p) seen.insert(placement(p, n, 5));
    EXPECT_EQ(seen.size(), n);
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
  int same = 0;
  for (std::uint32_t p = 0; p < 1000; ++p) same += placement(p, 1000, 5) == placement(p, 1000, 6);
  EXPECT_LT(same, 10);
}

}  // namespace
}  // namespace dlfs
