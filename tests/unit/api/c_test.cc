// dlfs.h end to end: the volume is packed and read through C alone.
#include <cstring>
#include <set>

#include "api_support.h"
#include "c_usage.h"

namespace dlfs {
namespace {

constexpr std::uint32_t kSamples = 200;

// Appends sample `id` of the api tests' data set.
int append(dlfs_writer* writer, std::uint32_t id, dlfs_error* error) {
  const auto image = api_test::image_of(id);
  const std::int64_t label = api_test::label_of(id);
  const std::string caption = api_test::caption_of(id);
  const dlfs_bytes fields[] = {{image.data(), image.size()}, {&label, sizeof label}, {caption.data(), caption.size()}};
  return dlfs_writer_append(writer, api_test::name_of(id).c_str(), fields, 3, error);
}

class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    const dlfs_attribute classes = {"classes", {"cat\0dog", 7}};
    dlfs_writer_options options{};
    options.chunk_bytes = api_test::kChunkBytes;
    options.attributes = &classes;
    options.attribute_count = 1;
    dlfs_writer* writer = dlfs_writer_create(path_.c_str(), api_test::kSchema, &options, &error_);
    ASSERT_NE(writer, nullptr) << error_.message;
    for (std::uint32_t id = 0; id < kSamples; ++id) ASSERT_EQ(append(writer, id, &error_), 0) << error_.message;
    dlfs_volume_info info;
    ASSERT_EQ(dlfs_writer_commit(writer, &info, &error_), 0) << error_.message;
    EXPECT_EQ(info.samples, kSamples);
    EXPECT_STREQ(info.url, path_.c_str());
    EXPECT_EQ(dlfs_writer_count(writer), kSamples);
    EXPECT_EQ(append(writer, kSamples, &error_), -1);
    EXPECT_EQ(error_.code, DLFS_E_INVALID_ARGUMENT);
    dlfs_writer_close(writer);
    volume_ = dlfs_mount(path_.c_str(), nullptr, &error_);
    ASSERT_NE(volume_, nullptr) << error_.message;
  }
  void TearDown() override { dlfs_unmount(volume_); }

  dlfs_sequence* open(dlfs_order order) {
    dlfs_sequence* sequence = dlfs_sequence_open(volume_, &order, &error_);
    EXPECT_NE(sequence, nullptr) << error_.message;
    return sequence;
  }

  api_test::TemporaryDirectory directory_;
  std::string path_ = directory_ / "v.dlfs";
  dlfs_error error_;
  dlfs_volume* volume_ = nullptr;
};

TEST_F(CApi, names_ids_and_bytes) {
  EXPECT_EQ(dlfs_sample_count(volume_), kSamples);
  for (const std::uint32_t id : {0u, 1u, api_test::kLargeId, kSamples - 1}) {
    const std::string name = api_test::name_of(id);
    EXPECT_EQ(dlfs_find(volume_, name.c_str(), &error_), id) << error_.message;
    char got[DLFS_NAME_MAX];
    EXPECT_EQ(dlfs_name(volume_, id, got, sizeof got, &error_), static_cast<std::int64_t>(name.size()));
    EXPECT_STREQ(got, name.c_str());
    dlfs_file* file = dlfs_open(volume_, name.c_str(), &error_);
    ASSERT_NE(file, nullptr) << error_.message;
    EXPECT_EQ(dlfs_file_id(file), id);
    std::vector<std::byte> bytes(dlfs_file_size(file) + 1);
    EXPECT_EQ(dlfs_read(file, bytes.data(), bytes.size(), 0, &error_), static_cast<std::int64_t>(bytes.size() - 1));
    bytes.pop_back();
    EXPECT_EQ(bytes, api_test::image_of(id));
    EXPECT_EQ(dlfs_read(file, nullptr, 1, 0, &error_), -1);
    EXPECT_EQ(error_.code, DLFS_E_INVALID_ARGUMENT);
    dlfs_close(file);
  }
}

TEST_F(CApi, a_name_that_does_not_fit_is_not_cut) {
  const std::string name = api_test::name_of(5);
  std::string buffer(name.size() + 1, 'x');
  EXPECT_EQ(dlfs_name(volume_, 5, buffer.data(), name.size(), &error_), static_cast<std::int64_t>(name.size()));
  EXPECT_EQ(buffer[0], '\0');
  EXPECT_EQ(dlfs_name(volume_, 5, buffer.data(), name.size() + 1, &error_), static_cast<std::int64_t>(name.size()));
  EXPECT_STREQ(buffer.c_str(), name.c_str());
  EXPECT_EQ(dlfs_name(volume_, 5, nullptr, 0, &error_), static_cast<std::int64_t>(name.size()));
  EXPECT_EQ(dlfs_name(volume_, kSamples, nullptr, 0, &error_), -1);
  EXPECT_EQ(error_.code, DLFS_E_NOT_FOUND);
}

TEST_F(CApi, all_names_are_visited_until_the_visitor_says_stop) {
  std::vector<std::string> names;
  const auto visit = [](void* context, std::uint32_t, const char* name) {
    auto* list = static_cast<std::vector<std::string>*>(context);
    list->emplace_back(name);
    return list->size() < 150;
  };
  EXPECT_EQ(dlfs_names(volume_, 0, visit, &names, &error_), 0) << error_.message;
  ASSERT_EQ(names.size(), 150u);
  for (std::uint32_t id = 0; id < 150; ++id) EXPECT_EQ(names[id], api_test::name_of(id));
}

TEST_F(CApi, failures_say_what_and_where) {
  EXPECT_EQ(dlfs_find(volume_, "no such sample", &error_), -1);
  EXPECT_EQ(error_.code, DLFS_E_NOT_FOUND);
  EXPECT_NE(std::strstr(error_.message, "no such sample"), nullptr) << error_.message;
  EXPECT_EQ(dlfs_mount((directory_ / "none").c_str(), nullptr, &error_), nullptr);
  EXPECT_EQ(error_.code, DLFS_E_NOT_FOUND);
  EXPECT_NE(std::strstr(error_.message, "none"), nullptr) << error_.message;
  EXPECT_EQ(dlfs_open_id(volume_, 0, 3, &error_), nullptr);
  EXPECT_EQ(error_.code, DLFS_E_INVALID_ARGUMENT);
  EXPECT_EQ(dlfs_writer_create(path_.c_str(), api_test::kSchema, nullptr, &error_), nullptr);
  EXPECT_EQ(error_.code, DLFS_E_EXISTS);
  EXPECT_EQ(dlfs_find(volume_, api_test::name_of(3).c_str(), &error_), 3);
  EXPECT_EQ(error_.code, DLFS_OK);
}

TEST_F(CApi, the_schema_can_be_asked) {
  ASSERT_EQ(dlfs_schema_fields(volume_), 3u);
  dlfs_field_info info;
  ASSERT_EQ(dlfs_schema_field(volume_, 1, &info, &error_), 0);
  EXPECT_STREQ(info.name, "label");
  EXPECT_STREQ(info.dtype, "int64");
  EXPECT_EQ(info.kind, DLFS_TENSOR);
  EXPECT_EQ(info.dimensions, 0u);
  EXPECT_EQ(dlfs_schema_field(volume_, 3, &info, &error_), -1);
  EXPECT_EQ(dlfs_schema_find(volume_, "caption"), 2);
  EXPECT_EQ(dlfs_schema_find(volume_, "none"), -1);
  EXPECT_STREQ(dlfs_schema_text(volume_), api_test::kSchema);
  std::size_t size = 0;
  const char* classes = dlfs_schema_attribute(volume_, "classes", &size);
  ASSERT_NE(classes, nullptr);
  EXPECT_EQ(std::string(classes, size), std::string("cat\0dog", 7));
  EXPECT_EQ(dlfs_schema_attribute(volume_, "none", &size), nullptr);
}

TEST_F(CApi, stat_and_verify) {
  dlfs_volume_info info;
  ASSERT_EQ(dlfs_stat(volume_, &info, &error_), 0);
  EXPECT_EQ(info.samples, kSamples);
  EXPECT_EQ(std::strlen(info.volume_id), 32u);
  dlfs_verify_report report;
  const auto found = [](void*, const dlfs_finding* finding) { ADD_FAILURE() << finding->message; };
  ASSERT_EQ(dlfs_verify(volume_, found, nullptr, nullptr, &report, &error_), 0) << error_.message;
  EXPECT_EQ(report.samples, kSamples);
  EXPECT_EQ(report.findings, 0u);
}

TEST_F(CApi, a_quarter_of_every_batch_for_one_of_four_ranks) {
  dlfs_sequence* sequence = c_open_quarter(volume_, &error_);
  ASSERT_NE(sequence, nullptr) << error_.message;
  std::uint64_t samples, batches;
  EXPECT_EQ(c_drain(sequence, 64, &samples, &batches), DLFS_OK);
  EXPECT_EQ(samples, kSamples / 4);
  EXPECT_EQ(batches, 4u);
  EXPECT_EQ(dlfs_bread(sequence, 64, &error_), nullptr);  // over stays over
  EXPECT_EQ(error_.code, DLFS_OK);
  dlfs_sequence_close(sequence);
}

TEST_F(CApi, batches_hold_the_samples_of_their_ids) {
  dlfs_sequence* sequence = open({.seed = 3, .mode = DLFS_FULL});
  std::set<std::uint32_t> seen;
  dlfs_batch* batch;
  while ((batch = dlfs_bread(sequence, 30, &error_)) != nullptr) {
    for (std::size_t i = 0; i < dlfs_batch_size(batch); ++i) {
      const std::uint32_t id = dlfs_batch_ids(batch)[i];
      EXPECT_TRUE(seen.insert(id).second);
      std::size_t size = 99;
      const auto* data = static_cast<const std::byte*>(dlfs_batch_field(batch, i, 0, &size));
      ASSERT_NE(data, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 8, 0u);
      EXPECT_EQ(std::vector<std::byte>(data, data + size), api_test::image_of(id));
    }
    EXPECT_EQ(dlfs_batch_field(batch, dlfs_batch_size(batch), 0, nullptr), nullptr);
    EXPECT_EQ(dlfs_batch_field(batch, 0, 3, nullptr), nullptr);
    dlfs_batch_release(batch);
  }
  EXPECT_EQ(error_.code, DLFS_OK) << error_.message;
  EXPECT_EQ(seen.size(), kSamples);
  dlfs_statistics statistics;
  EXPECT_EQ(dlfs_sequence_statistics(sequence, &statistics, &error_), 0);
  EXPECT_EQ(statistics.samples, kSamples);
  dlfs_sequence_close(sequence);
}

TEST_F(CApi, the_first_bread_fixes_the_batch) {
  dlfs_sequence* sequence = open({.seed = 3});
  char state[DLFS_STATE_BYTES];
  EXPECT_EQ(dlfs_sequence_batches(sequence), 0u);
  EXPECT_EQ(dlfs_sequence_state(sequence, state, sizeof state, &error_), -1);
  EXPECT_EQ(dlfs_bread(sequence, 0, &error_), nullptr);
  EXPECT_EQ(error_.code, DLFS_E_INVALID_ARGUMENT);
  dlfs_batch* first = dlfs_bread(sequence, 32, &error_);
  ASSERT_NE(first, nullptr) << error_.message;
  EXPECT_EQ(dlfs_sequence_batches(sequence), 7u);
  EXPECT_EQ(dlfs_bread(sequence, 16, &error_), nullptr);
  EXPECT_EQ(error_.code, DLFS_E_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error_.message, "32"), nullptr) << error_.message;
  dlfs_batch* second = dlfs_bread(sequence, 0, &error_);
  ASSERT_NE(second, nullptr) << error_.message;
  EXPECT_EQ(dlfs_batch_number(second), 1u);
  dlfs_batch_release(second);
  dlfs_batch_release(first);
  dlfs_sequence_close(sequence);
}

TEST_F(CApi, a_first_bread_that_cannot_be_may_be_tried_again) {
  dlfs_sequence* sequence = open({.ranks = 4});
  EXPECT_EQ(dlfs_bread(sequence, 30, &error_), nullptr);
  EXPECT_EQ(error_.code, DLFS_E_INVALID_ARGUMENT);
  dlfs_batch* batch = dlfs_bread(sequence, 32, &error_);
  ASSERT_NE(batch, nullptr) << error_.message;
  EXPECT_EQ(dlfs_batch_size(batch), 8u);
  dlfs_batch_release(batch);
  dlfs_sequence_close(sequence);
}

TEST_F(CApi, a_state_goes_on_with_another_number_of_ranks) {
  dlfs_sequence* sequence = open({.seed = 3, .batch = 20});
  std::set<std::uint32_t> seen;
  const auto take = [&](dlfs_batch* batch) {
    for (std::size_t i = 0; i < dlfs_batch_size(batch); ++i) EXPECT_TRUE(seen.insert(dlfs_batch_ids(batch)[i]).second);
    dlfs_batch_release(batch);
  };
  for (int i = 0; i < 4; ++i) take(dlfs_bread(sequence, 20, &error_));
  char state[DLFS_STATE_BYTES];
  EXPECT_EQ(dlfs_sequence_state(sequence, state, 10, &error_), -1);
  const std::int64_t length = dlfs_sequence_state(sequence, state, sizeof state, &error_);
  ASSERT_GT(length, 0) << error_.message;
  dlfs_sequence_close(sequence);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    dlfs_order options{};
    options.rank = rank;
    options.ranks = 2;
    sequence = dlfs_sequence_resume(volume_, state, static_cast<std::size_t>(length), &options, &error_);
    ASSERT_NE(sequence, nullptr) << error_.message;
    std::uint64_t epoch = 9, next = 9;
    dlfs_sequence_position(sequence, &epoch, &next);
    EXPECT_EQ(epoch, 0u);
    EXPECT_EQ(next, 4u);
    while (dlfs_batch* batch = dlfs_bread(sequence, 20, &error_)) take(batch);
    EXPECT_EQ(error_.code, DLFS_OK) << error_.message;
    dlfs_sequence_close(sequence);
  }
  EXPECT_EQ(seen.size(), kSamples);
  EXPECT_EQ(dlfs_sequence_resume(volume_, state, 5, nullptr, &error_), nullptr);
  EXPECT_NE(error_.code, DLFS_OK);
}

TEST_F(CApi, orders_are_printed_without_reading) {
  std::vector<std::uint32_t> ids;
  const auto visit = [](void* context, std::uint64_t, const std::uint32_t* batch, std::size_t count) {
    auto* list = static_cast<std::vector<std::uint32_t>*>(context);
    list->insert(list->end(), batch, batch + count);
    return true;
  };
  const dlfs_order order = {.seed = 8, .batch = 50};
  ASSERT_EQ(dlfs_order_ids(volume_, &order, visit, &ids, &error_), 0) << error_.message;
  ASSERT_EQ(ids.size(), kSamples);
  dlfs_sequence* sequence = open(order);
  dlfs_batch* batch = dlfs_bread(sequence, 0, &error_);
  ASSERT_NE(batch, nullptr) << error_.message;
  EXPECT_TRUE(std::equal(dlfs_batch_ids(batch), dlfs_batch_ids(batch) + 50, ids.begin()));
  dlfs_batch_release(batch);
  dlfs_sequence_close(sequence);
}

TEST_F(CApi, impossible_orders_are_refused_when_the_sequence_is_opened) {
  const auto refused = [&](dlfs_order order) {
    EXPECT_EQ(dlfs_sequence_open(volume_, &order, &error_), nullptr);
    EXPECT_EQ(error_.code, DLFS_E_INVALID_ARGUMENT) << error_.message;
    EXPECT_NE(error_.message[0], '\0');
  };
  refused({.mode = 3});
  refused({.tail = -1});
  refused({.on_error = 2});
  refused({.rank = 4, .ranks = 4});
  refused({.ranks = 7});
  refused({.reserved = {0, 0, 1}});
  const dlfs_options options = {.reserved = {1}};
  EXPECT_EQ(dlfs_mount(path_.c_str(), &options, &error_), nullptr);
  EXPECT_EQ(error_.code, DLFS_E_INVALID_ARGUMENT);
}

TEST_F(CApi, lists_of_ids_and_gather) {
  const std::uint32_t ids[] = {9, 0, 9};
  dlfs_batch* batch = dlfs_read_ids(volume_, ids, 3, DLFS_RAISE, &error_);
  ASSERT_NE(batch, nullptr) << error_.message;
  std::uint64_t offsets[4];
  const std::int64_t needed = dlfs_batch_gather(batch, 0, nullptr, 0, offsets, &error_);
  const auto image = api_test::image_of(9);
  ASSERT_EQ(needed, static_cast<std::int64_t>(2 * image.size()));
  std::vector<std::byte> into(static_cast<std::size_t>(needed));
  EXPECT_EQ(dlfs_batch_gather(batch, 0, into.data(), into.size(), nullptr, &error_), needed);
  EXPECT_TRUE(std::equal(image.begin(), image.end(), into.begin() + static_cast<std::ptrdiff_t>(offsets[2])));
  std::size_t size = 99;
  EXPECT_NE(dlfs_batch_field(batch, 1, 0, &size), nullptr);  // sample 0 has an empty image
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(dlfs_batch_gather(batch, 3, nullptr, 0, nullptr, &error_), -1);
  EXPECT_EQ(dlfs_batch_gather(batch, 0, nullptr, 8, nullptr, &error_), -1);
  dlfs_batch_release(batch);
  EXPECT_EQ(dlfs_read_ids(volume_, ids, 3, 7, &error_), nullptr);
  EXPECT_EQ(dlfs_read_ids(volume_, nullptr, 3, DLFS_RAISE, &error_), nullptr);
  const std::uint32_t absent[] = {kSamples};
  EXPECT_EQ(dlfs_read_ids(volume_, absent, 1, DLFS_RAISE, &error_), nullptr);
  EXPECT_EQ(error_.code, DLFS_E_NOT_FOUND);
}

TEST_F(CApi, handles_work_after_the_volume_is_unmounted) {
  dlfs_file* file = dlfs_open_id(volume_, api_test::kLargeId, 0, &error_);
  dlfs_sequence* sequence = open({.batch = 10});
  dlfs_unmount(volume_);
  volume_ = nullptr;
  dlfs_batch* batch = dlfs_bread(sequence, 10, &error_);
  ASSERT_NE(batch, nullptr) << error_.message;
  dlfs_sequence_close(sequence);
  std::size_t size = 0;
  const auto* label = static_cast<const std::byte*>(dlfs_batch_field(batch, 0, 1, &size));
  const std::int64_t expected = api_test::label_of(dlfs_batch_ids(batch)[0]);
  ASSERT_EQ(size, sizeof expected);
  EXPECT_EQ(std::memcmp(label, &expected, size), 0);
  dlfs_batch_release(batch);
  std::byte last;
  EXPECT_EQ(dlfs_read(file, &last, 1, dlfs_file_size(file) - 1, &error_), 1) << error_.message;
  EXPECT_EQ(last, api_test::image_of(api_test::kLargeId).back());
  dlfs_close(file);
}

TEST(CApiWriter, streams_and_any_order) {
  api_test::TemporaryDirectory directory;
  const std::string path = directory / "v.dlfs";
  dlfs_error error;
  dlfs_writer* writer = dlfs_writer_create(path.c_str(), "data: bytes", nullptr, &error);
  ASSERT_NE(writer, nullptr) << error.message;
  const auto fill = [](void* context, void* into, std::size_t size) {
    std::memset(into, *static_cast<int*>(context), size);
    return true;
  };
  int value = 7;
  EXPECT_EQ(dlfs_writer_append_stream_at(writer, 1, "one", nullptr, 0, 1'000'000, fill, &value, &error), 0)
      << error.message;
  const dlfs_bytes field = {"zero", 4};
  EXPECT_EQ(dlfs_writer_append_at(writer, 0, "zero", &field, 1, &error), 0) << error.message;
  const dlfs_bytes bad = {nullptr, 4};
  EXPECT_EQ(dlfs_writer_append_at(writer, 2, "two", &bad, 1, &error), -1);
  EXPECT_EQ(error.code, DLFS_E_INVALID_ARGUMENT);
  ASSERT_EQ(dlfs_writer_commit(writer, nullptr, &error), 0) << error.message;
  dlfs_writer_close(writer);
  dlfs_volume* volume = dlfs_mount(path.c_str(), nullptr, &error);
  ASSERT_NE(volume, nullptr) << error.message;
  dlfs_file* file = dlfs_open(volume, "one", &error);
  ASSERT_NE(file, nullptr) << error.message;
  std::vector<unsigned char> got(1'000'000);
  EXPECT_EQ(dlfs_read(file, got.data(), got.size(), 0, &error), 1'000'000) << error.message;
  EXPECT_EQ(got, std::vector<unsigned char>(1'000'000, 7));
  dlfs_close(file);
  dlfs_unmount(volume);
}

TEST(CApiWriter, closing_without_a_commit_leaves_nothing) {
  api_test::TemporaryDirectory directory;
  dlfs_error error;
  const auto refuse = [](void*, void*, std::size_t) { return false; };
  dlfs_writer* writer = dlfs_writer_create((directory / "v.dlfs").c_str(), "data: bytes", nullptr, &error);
  ASSERT_NE(writer, nullptr) << error.message;
  EXPECT_EQ(dlfs_writer_append_stream_at(writer, 0, "a", nullptr, 0, 100, refuse, nullptr, &error), -1);
  EXPECT_EQ(error.code, DLFS_E_SOURCE_CHANGED) << error.message;
  dlfs_writer_close(writer);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace dlfs
