#include <fstream>

#include "api_support.h"

namespace dlfs {
namespace {

using api_test::must;
using api_test::PackedVolume;

constexpr std::uint32_t kSamples = 300;

class ApiVolume : public ::testing::TestWithParam<PackedVolume::Place> {
 protected:
  PackedVolume packed_{kSamples, GetParam()};
  Volume volume_ = packed_.mount();
};

TEST_P(ApiVolume, names_and_ids_find_each_other) {
  ASSERT_EQ(volume_.size(), kSamples);
  for (std::uint32_t id = 0; id < kSamples; ++id) {
    EXPECT_EQ(must(volume_.find(api_test::name_of(id))), id);
    EXPECT_EQ(must(volume_.name(id)), api_test::name_of(id));
  }
  std::uint32_t next = 290;
  must(volume_.names(290, [&](std::uint32_t id, std::string_view name) {
    EXPECT_EQ(id, next++);
    EXPECT_EQ(name, api_test::name_of(id));
    return id < 295;
  }));
  EXPECT_EQ(next, 296u);
  must(volume_.names(kSamples, [](std::uint32_t, std::string_view) { return ADD_FAILURE() << "there is none", true; }));
}

TEST_P(ApiVolume, what_is_not_there_is_said_to_be_so) {
  EXPECT_EQ(volume_.find("class 0/none").error().code, Code::kNotFound);
  EXPECT_EQ(volume_.open("").error().code, Code::kNotFound);
  const std::uint32_t absent[] = {0, kSamples};
  for (const Error& error :
       {volume_.name(kSamples).error(), volume_.open_id(kSamples).error(), volume_.read(absent).error(),
        volume_.names(kSamples + 1, [](auto, auto) { return true; }).error()}) {
    EXPECT_EQ(error.code, Code::kNotFound);
    EXPECT_NE(error.message.find("30"), std::string::npos) << error.message;
  }
  EXPECT_EQ(volume_.open_id(1, 3).error().code, Code::kInvalidArgument);
  EXPECT_EQ(volume_.open(api_test::name_of(1), 3).error().code, Code::kInvalidArgument);
}

TEST_P(ApiVolume, every_field_of_a_file_reads_whole_and_in_parts) {
  for (const std::uint32_t id : {0u, 1u, api_test::kLargeId, kSamples - 1}) {
    const auto image = api_test::image_of(id);
    const File file = must(volume_.open(api_test::name_of(id)));
    EXPECT_EQ(file.id(), id);
    ASSERT_EQ(file.size(), image.size());
    for (const std::size_t step : {std::size_t{1000}, std::size_t{65536}, image.size() + 10}) {
      std::vector<std::byte> got, part(step);
      while (true) {
        const std::uint64_t read = must(file.read(part, got.size()));
        if (read == 0) break;
        got.insert(got.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(read));
        EXPECT_TRUE(read == step || got.size() == image.size());
      }
      EXPECT_EQ(got, image) << "sample " << id << " in steps of " << step;
    }
    const std::string caption = api_test::caption_of(id);
    const File text = must(volume_.open_id(id, 2));
    std::string got(text.size(), '\0');
    EXPECT_EQ(must(text.read(std::as_writable_bytes(std::span(got)), 0)), caption.size());
    EXPECT_EQ(got, caption);
  }
}

TEST_P(ApiVolume, reading_behind_the_end_gives_nothing) {
  std::byte one[1];
  for (const std::uint32_t id : {1u, api_test::kLargeId}) {
    const File file = must(volume_.open_id(id));
    EXPECT_EQ(must(file.read(one, file.size())), 0u);
    EXPECT_EQ(must(file.read(one, ~std::uint64_t{0})), 0u);
    EXPECT_EQ(must(file.read({}, 0)), 0u);
    EXPECT_EQ(must(file.read(one, file.size() - 1)), 1u);
    EXPECT_EQ(one[0], api_test::image_of(id).back());
  }
}

TEST_P(ApiVolume, lists_of_ids_come_in_the_order_asked_with_repeats) {
  const std::vector<std::uint32_t> ids = {5, 299, 5, api_test::kLargeId, 0, 11, 298, api_test::kLargeId};
  const Batch batch = must(volume_.read(ids));
  ASSERT_EQ(batch.size(), ids.size());
  EXPECT_TRUE(std::ranges::equal(batch.ids(), ids));
  for (std::size_t i = 0; i < batch.size(); ++i) EXPECT_TRUE(api_test::sample_is_right(batch, i));
  EXPECT_EQ(must(volume_.read({})).size(), 0u);
}

TEST_P(ApiVolume, info_adds_up) {
  const VolumeInfo info = volume_.info();
  EXPECT_EQ(info.samples, kSamples);
  EXPECT_EQ(info.chunk_bytes, api_test::kChunkBytes);
  EXPECT_EQ(info.volume_id.size(), 32u);
  EXPECT_GT(info.created_unix_s, 1'600'000'000u);
  std::uint64_t payload = 0;
  for (std::uint32_t id = 0; id < kSamples; ++id)
    payload += api_test::image_of(id).size() + 8 + api_test::caption_of(id).size();
  EXPECT_EQ(info.payload_bytes, payload);
  EXPECT_EQ(info.payload_bytes + info.record_bytes + info.padding_bytes, info.chunks * info.chunk_bytes);
  EXPECT_LE(info.directory_bytes, 16 * kSamples + 8192);
  EXPECT_GT(info.mount_s, 0);
  EXPECT_EQ(volume_.schema().to_string(), api_test::kSchema);
  ASSERT_EQ(volume_.schema().attributes.size(), 1u);
  EXPECT_EQ(volume_.schema().attributes[0].second, std::string("cat\0dog", 7));
}

TEST_P(ApiVolume, verify_finds_nothing_in_a_good_volume_and_can_be_stopped) {
  const auto report = must(volume_.verify([](const Volume::Finding& f) { ADD_FAILURE() << f.message; }));
  EXPECT_EQ(report.samples, kSamples);
  EXPECT_EQ(report.findings, 0u);
  EXPECT_GE(report.bytes, volume_.info().payload_bytes);
  const auto stopped = volume_.verify({}, [](std::uint64_t, std::uint64_t) { return false; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, Code::kInterrupted);
}

TEST_P(ApiVolume, copies_outlive_the_handle_they_were_made_from) {
  std::optional<File> file;
  std::optional<Volume> copy;
  {
    const Volume mounted = packed_.mount();
    file = must(mounted.open_id(api_test::kLargeId));
    copy = mounted;
  }
  std::vector<std::byte> got(file->size());
  EXPECT_EQ(must(file->read(got, 0)), got.size());
  EXPECT_EQ(got, api_test::image_of(api_test::kLargeId));
  EXPECT_EQ(copy->size(), kSamples);
}

INSTANTIATE_TEST_SUITE_P(, ApiVolume, ::testing::Values(PackedVolume::Place::kFile, PackedVolume::Place::kMemory),
                         [](const auto& test) { return test.param == PackedVolume::Place::kFile ? "file" : "memory"; });

TEST(ApiMount, an_absent_file_is_not_found) {
  api_test::TemporaryDirectory directory;
  const auto volume = Volume::mount(directory / "none.dlfs");
  ASSERT_FALSE(volume.ok());
  EXPECT_EQ(volume.error().code, Code::kNotFound);
  EXPECT_NE(volume.error().message.find("none.dlfs"), std::string::npos) << volume.error().message;
}

TEST(ApiMount, foreign_data_is_refused) {
  api_test::TemporaryDirectory directory;
  std::ofstream(directory / "text") << std::string(300'000, 'x');
  const auto volume = Volume::mount(directory / "text");
  ASSERT_FALSE(volume.ok());
  EXPECT_EQ(volume.error().code, Code::kForeign);
}

TEST(ApiMount, unknown_schemes_and_senseless_timeouts_are_invalid) {
  EXPECT_EQ(Volume::mount("gopher:x").error().code, Code::kInvalidArgument);
  EXPECT_EQ(Volume::mount("x.dlfs", {.timeout = std::chrono::milliseconds(0)}).error().code, Code::kInvalidArgument);
}

TEST(ApiMount, a_truncated_volume_is_refused) {
  PackedVolume packed(kSamples);
  std::filesystem::resize_file(packed.path(), std::filesystem::file_size(packed.path()) - 4096);
  const auto volume = Volume::mount(packed.url());
  ASSERT_FALSE(volume.ok());
  EXPECT_EQ(volume.error().code, Code::kTruncated) << volume.error().message;
}

TEST(ApiMount, a_pack_under_way_mounts_as_incomplete) {
  api_test::TemporaryDirectory directory;
  const std::string path = directory / "v.dlfs";
  auto writer = must(Writer::create(path, must(Schema::parse(api_test::kSchema)), api_test::small_chunks()));
  for (std::uint32_t id = 0; id < kSamples; ++id) must(api_test::append_sample(writer, id));
  const auto volume = Volume::mount(path);
  ASSERT_FALSE(volume.ok());
  EXPECT_NE(volume.error().message.find("incomplete"), std::string::npos) << volume.error().message;
}

TEST(ApiMount, a_flipped_byte_in_a_record_is_found_and_never_delivered) {
  PackedVolume packed(kSamples);
  const VolumeInfo info = packed.mount().info();
  packed.flip_byte(2 * 65536 + 100);  // in the first record of chunk 0

  const Volume volume = packed.mount();
  std::vector<Volume::Finding> findings;
  const auto report = must(volume.verify([&](const Volume::Finding& f) { findings.push_back(f); }));
  ASSERT_EQ(report.bad_samples, 1u);
  ASSERT_EQ(findings.size(), 1u);
  ASSERT_TRUE(findings[0].id.has_value());
  const std::uint32_t bad = *findings[0].id;
  const auto file = volume.open_id(bad);
  std::vector<std::byte> into(api_test::kLargeBytes);
  const bool refused = !file.ok() || !file->read(into, 0).ok();
  EXPECT_TRUE(refused);
  const std::uint32_t ids[] = {bad == 0 ? 1u : 0u, bad};
  const auto raised = volume.read(ids);
  ASSERT_FALSE(raised.ok());
  EXPECT_EQ(raised.error().code, Code::kCorrupt);
  EXPECT_NE(raised.error().message.find("sample " + std::to_string(bad)), std::string::npos) << raised.error().message;
  const Batch skipped = must(volume.read(ids, OnError::kSkip));
  ASSERT_EQ(skipped.size(), 1u);
  EXPECT_EQ(skipped.ids()[0], ids[0]);
  EXPECT_EQ(info.samples, kSamples);
}

}  // namespace
}  // namespace dlfs
