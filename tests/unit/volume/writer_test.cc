#include "volume/writer.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "samples.h"
#include "volume/verify.h"

namespace dlfs::volume {
namespace {

using namespace test;

void expect_clean(const std::string& url) {
  const auto volume = Volume::mount(url);
  ASSERT_TRUE(volume.ok()) << volume.error().message;
  const auto report = verify(**volume, [](const Finding& finding) { ADD_FAILURE() << finding.message; }, {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->bad_samples, 0u);
}

Error create_error(const std::string& url, const WriterOptions& options = {}) {
  auto writer = Writer::create(url, one_field(), options);
  return writer.ok() ? Error{Code::kUnsupported, "it was created", 0, 0} : writer.error();
}

TEST(Writer, shuffles_the_placement_by_its_seed) {
  TemporaryDirectory directory;
  const std::vector<std::uint64_t> lengths(3000, 900);
  const auto order = [&](const char* name, std::uint64_t seed, bool shuffle) {
    pack(directory / name, lengths, {.chunk_bytes = 65536, .shuffle = shuffle, .pool_bytes = 1 << 20, .seed = seed});
    const auto volume = Volume::mount(directory / name).value();
    expect_samples(*volume, lengths);
    std::vector<std::uint32_t> ids;
    for (std::uint32_t slot = 0; slot < lengths.size(); ++slot)
      ids.push_back(volume->directory().id_of(Slot{slot}).value);
    return ids;
  };
  std::vector<std::uint32_t> sorted(lengths.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  EXPECT_EQ(order("plain", 1, false), sorted);
  const auto first = order("one", 1, true);
  EXPECT_EQ(first, order("again", 1, true));
  EXPECT_NE(first, order("two", 2, true));
  // The samples of the first chunk come from all over what the pool holds.
  EXPECT_GT(*std::max_element(first.begin(), first.begin() + 70), 600u);
}

TEST(Writer, wastes_little_space) {
  TemporaryDirectory directory;
  base::Prng prng(9);
  std::vector<std::uint64_t> lengths(20'000);
  for (auto& length : lengths) length = 400 + prng.below(1043);  // mean 921, as the JPEGs
  const auto payload = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
  for (const std::uint64_t pool : {std::uint64_t{1}, std::uint64_t{1} << 20, std::uint64_t{64} << 20}) {
    for (const bool shuffle : {true, false}) {
      pack(directory / "v", lengths, {.overwrite = true, .shuffle = shuffle, .pool_bytes = pool, .names = false});
      const auto volume = Volume::mount(directory / "v").value();
      const double overhead =
          static_cast<double>(volume->superblock().data.length_bytes) / static_cast<double>(payload) - 1;
      EXPECT_LE(overhead, 0.04) << "pool " << pool << " shuffle " << shuffle;
    }
  }
  expect_clean(directory / "v");
}

TEST(Writer, packs_records_of_mixed_sizes_tightly) {
  TemporaryDirectory directory;
  const auto lengths = random_lengths(1200, 40'000);
  const auto payload = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
  for (const bool shuffle : {true, false}) {
    pack(directory / "v", lengths, {.overwrite = true, .shuffle = shuffle, .pool_bytes = 4 << 20});
    const auto volume = Volume::mount(directory / "v").value();
    EXPECT_LE(static_cast<double>(volume->superblock().data.length_bytes), 1.04 * static_cast<double>(payload))
        << shuffle;
    expect_samples(*volume, lengths);
  }
}

TEST(Writer, takes_samples_in_any_order_of_id) {
  TemporaryDirectory directory;
  const std::uint32_t n = 20'000;
  std::vector<std::uint32_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0u);
  base::Prng prng(5);
  for (std::uint32_t i = n; i > 1; --i) std::swap(ids[i - 1], ids[prng.below(i)]);
  const auto lengths = random_lengths(n, 300);
  auto writer = Writer::create(directory / "v", one_field(), {.chunk_bytes = 65536}).value();
  for (const std::uint32_t id : ids) {
    const auto bytes = bytes_of(id, lengths[id]);
    const layout::FieldValue field(bytes);
    ASSERT_TRUE(writer->append_at(SampleId{id}, name_of(id), {&field, 1}).ok());
  }
  const layout::FieldValue none;
  const auto twice = writer->append_at(SampleId{7}, "another", {&none, 1});
  EXPECT_EQ(twice.error().code, Code::kInvalidArgument);
  ASSERT_TRUE(writer->commit().ok());
  const auto volume = Volume::mount(directory / "v").value();
  expect_samples(*volume, lengths);
  for (std::uint32_t slot = 0; slot < n; ++slot) ASSERT_EQ(volume->directory().id_of(Slot{slot}).value, ids[slot]);
}

TEST(Writer, refuses_gaps_in_the_ids) {
  TemporaryDirectory directory;
  for (const bool names : {true, false}) {
    auto writer = Writer::create(directory / "v", one_field(), {.names = names}).value();
    const layout::FieldValue none;
    ASSERT_TRUE(writer->append_at(SampleId{0}, "a", {&none, 1}).ok());
    ASSERT_TRUE(writer->append_at(SampleId{2}, "c", {&none, 1}).ok());
    EXPECT_EQ(writer->commit().error().code, Code::kInvalidArgument);
    EXPECT_EQ(writer->commit().error().code, Code::kInvalidArgument);
    EXPECT_TRUE(directory.list().empty());
  }
}

TEST(Writer, streams_samples_of_any_size) {
  TemporaryDirectory directory;
  const auto schema = layout::parse_schema("image: bytes, label: int32, more: bytes").value();
  auto writer = Writer::create(directory / "v", schema, {.chunk_bytes = 65536}).value();
  const std::int32_t label = 7;
  const std::string small = "small";
  const layout::FieldValue others[] = {std::as_bytes(std::span(small)), std::as_bytes(std::span(&label, 1))};
  const std::vector<std::uint64_t> lengths = {0, 10, 65536, 5'000'000, 65535, 1};
  for (std::uint32_t id = 0; id < lengths.size(); ++id) {
    const auto bytes = bytes_of(id, lengths[id]);
    std::uint64_t position = 0;
    const auto source = [&](std::span<std::byte> into) -> Result<void> {
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(position), into.size(), into.begin());
      position += into.size();
      return {};
    };
    const auto appended = writer->append_stream_at(SampleId{id}, name_of(id), others, lengths[id], source);
    ASSERT_TRUE(appended.ok()) << appended.error().message;
    EXPECT_EQ(position, lengths[id]);
  }
  // A source that fails leaves the writer as it was.
  for (const std::uint64_t length : {100u, 400'000u}) {
    int calls = 0;
    const auto failing = [&](std::span<std::byte>) -> Result<void> {
      if (++calls < 3 && length > 100) return {};
      return base::make_error(Code::kSourceChanged, "it went away");
    };
    EXPECT_EQ(writer->append_stream_at(SampleId{6}, "x", others, length, failing).error().code, Code::kSourceChanged);
  }
  EXPECT_EQ(writer->count(), lengths.size());
  ASSERT_TRUE(writer->commit().ok());
  expect_clean(directory / "v");
  const auto volume = Volume::mount(directory / "v").value();
  for (std::uint32_t id = 0; id < lengths.size(); ++id) {
    const auto record = volume->read(SampleId{id});
    ASSERT_TRUE(record.ok()) << record.error().message;
    EXPECT_TRUE(std::ranges::equal(record->fields[2], bytes_of(id, lengths[id])));
    EXPECT_TRUE(std::ranges::equal(record->fields[0], others[0]));
    EXPECT_TRUE(std::ranges::equal(record->fields[1], others[1]));
  }
}

TEST(Writer, names_the_first_sample_that_does_not_fit_the_schema) {
  TemporaryDirectory directory;
  const auto schema = layout::parse_schema("label: int32, caption: text").value();
  auto writer = Writer::create(directory / "v", schema, {}).value();
  const std::int64_t wide = 7;
  const std::int32_t label = 7;
  const std::string good = "gut: ä猫𝄞", bad = "ab\xff", overlong = "\xc0\xaf", surrogate = "\xed\xa0\x80";
  const auto append = [&](std::vector<layout::FieldValue> fields) { return writer->append("n", fields); };
  const auto text = [](const std::string& s) { return std::as_bytes(std::span(s)); };
  const auto number = std::as_bytes(std::span(&label, 1));
  EXPECT_EQ(append({number}).error().code, Code::kSchemaMismatch);
  const auto wrong = append({std::as_bytes(std::span(&wide, 1)), text(good)});
  EXPECT_EQ(wrong.error().code, Code::kSchemaMismatch);
  EXPECT_NE(wrong.error().message.find("'label' takes 4 bytes of int32, 8 were given"), std::string::npos)
      << wrong.error().message;
  EXPECT_EQ(append({number, text(overlong)}).error().code, Code::kSchemaMismatch);
  EXPECT_EQ(append({number, text(surrogate)}).error().code, Code::kSchemaMismatch);
  const auto not_text = append({number, text(bad)});
  EXPECT_NE(not_text.error().message.find("byte 2"), std::string::npos);
  EXPECT_TRUE(append({number, text(good)}).ok());
  EXPECT_EQ(writer->count(), 1u);
}

TEST(Writer, refuses_two_samples_of_one_name_and_names_both) {
  TemporaryDirectory directory;
  auto writer = Writer::create(directory / "v", one_field(), {}).value();
  const layout::FieldValue none;
  for (std::uint32_t id = 0; id < 5000; ++id) {
    const std::string name = id == 4321 ? name_of(17) : name_of(id);
    ASSERT_TRUE(writer->append(name, {&none, 1}).ok());
  }
  const auto committed = writer->commit();
  ASSERT_EQ(committed.error().code, Code::kDuplicateName);
  for (const char* part : {"17", "4321", "sample 17.bin"})
    EXPECT_NE(committed.error().message.find(part), std::string::npos);
  EXPECT_TRUE(directory.list().empty());
}

TEST(Writer, never_overwrites_without_being_told) {
  TemporaryDirectory directory;
  const std::string path = directory / "v";
  pack(path, {1, 2, 3});
  const auto before = read_file(path);
  const Error volume = create_error(path);
  EXPECT_EQ(volume.code, Code::kExists);
  EXPECT_NE(volume.message.find("a DLFS volume of 3 samples"), std::string::npos) << volume.message;
  EXPECT_NE(volume.message.find("--force"), std::string::npos);
  write_file(directory / "foreign", bytes_of(1, 10));
  const Error foreign = create_error(directory / "foreign");
  EXPECT_EQ(foreign.code, Code::kExists);
  EXPECT_NE(foreign.message.find("foreign data"), std::string::npos) << foreign.message;
  // Until the commit the old volume is there, untouched.
  auto writer = Writer::create(path, one_field(), {.overwrite = true}).value();
  const layout::FieldValue none;
  ASSERT_TRUE(writer->append("a", {&none, 1}).ok());
  EXPECT_EQ(read_file(path), before);
  writer.reset();
  EXPECT_EQ(read_file(path), before);
  pack(path, {9}, {.overwrite = true});
  EXPECT_EQ(Volume::mount(path).value()->size(), 1u);
  write_file(directory / "empty", {});
  pack(directory / "empty", {1});  // an empty file holds nothing to lose
}

TEST(Writer, never_overwrites_a_device_without_being_told) {
  auto holder = block::open_device("mem:overwrite-me?size=4MiB", {.write = true});
  ASSERT_TRUE(holder.ok());
  std::vector<std::byte> sector(512, std::byte{0});
  sector[500] = std::byte{1};
  base::Arena arena = base::Arena::create(4096).value();
  std::ranges::copy(sector, arena.bytes().begin());
  ASSERT_TRUE(block::write_all(**holder, (128 << 10) - 512, arena.bytes().first(512)).ok());
  EXPECT_EQ(create_error("mem:overwrite-me").code, Code::kExists);
  pack("mem:overwrite-me", {1, 2, 3}, {.chunk_bytes = 65536, .overwrite = true});
  const Error volume = create_error("mem:overwrite-me");
  EXPECT_EQ(volume.code, Code::kExists);
  EXPECT_NE(volume.message.find("a DLFS volume of 3 samples"), std::string::npos) << volume.message;
  expect_clean("mem:overwrite-me");
  EXPECT_EQ(Volume::mount("mem:overwrite-me").value()->superblock().generation, 1u);
  pack("mem:overwrite-me", {1, 2}, {.chunk_bytes = 65536, .overwrite = true});
  EXPECT_EQ(Volume::mount("mem:overwrite-me").value()->superblock().generation, 2u);
  expect_clean("mem:overwrite-me");
  {
    auto writer = Writer::create("mem:overwrite-me", one_field(), {.chunk_bytes = 65536, .overwrite = true});
    ASSERT_TRUE(writer.ok());
  }
  const auto incomplete = Volume::mount("mem:overwrite-me");
  ASSERT_FALSE(incomplete.ok());
  EXPECT_EQ(incomplete.error().code, Code::kIncomplete);
  EXPECT_NE(incomplete.error().message.find("incomplete"), std::string::npos);
}

TEST(Writer, says_what_a_small_device_lacks) {
  auto holder = block::open_device("mem:too-small?size=512KiB", {.write = true});
  auto writer = Writer::create("mem:too-small", one_field(), {.chunk_bytes = 65536, .pool_bytes = 1}).value();
  const auto bytes = bytes_of(1, 60'000);
  const layout::FieldValue field(bytes);
  Result<void> appended;
  for (int i = 0; i < 20 && appended.ok(); ++i) appended = writer->append("n" + std::to_string(i), {&field, 1});
  ASSERT_FALSE(appended.ok());
  EXPECT_EQ(appended.error().code, Code::kNoSpace);
  EXPECT_NE(appended.error().message.find("524288 are available"), std::string::npos) << appended.error().message;
  EXPECT_EQ(writer->append("again", {&field, 1}).error().code, Code::kNoSpace);
  EXPECT_EQ(writer->commit().error().code, Code::kNoSpace);
  auto tiny_holder = block::open_device("mem:tiny?size=64KiB", {.write = true});
  EXPECT_EQ(create_error("mem:tiny").code, Code::kNoSpace);
}

TEST(Writer, refuses_places_that_cannot_be_written) {
  TemporaryDirectory directory;
  EXPECT_EQ(create_error(directory.path()).code, Code::kInvalidArgument);
  EXPECT_NE(create_error(directory.path()).message.find("is a directory"), std::string::npos);
  EXPECT_EQ(create_error(directory.path(), {.overwrite = true}).code, Code::kInvalidArgument);
  EXPECT_EQ(create_error(directory / "no/such/v").code, Code::kNotFound);
  EXPECT_EQ(create_error("/proc/v").code == Code::kNotFound || create_error("/proc/v").code == Code::kReadOnly, true);
  EXPECT_EQ(create_error("/dev/null", {.overwrite = true}).code, Code::kInvalidArgument);
  EXPECT_EQ(create_error(directory / "v", {.chunk_bytes = 100'000}).code, Code::kInvalidArgument);
  EXPECT_EQ(create_error(directory / "v", {.chunk_bytes = 32 << 20}).code, Code::kInvalidArgument);
  if (geteuid() != 0) {  // root may write anywhere
    ASSERT_EQ(chmod(directory.path().c_str(), 0500), 0);
    EXPECT_EQ(create_error(directory / "v").code, Code::kReadOnly);
    ASSERT_EQ(chmod(directory.path().c_str(), 0700), 0);
  }
  EXPECT_TRUE(directory.list().empty());
}

TEST(Writer, lets_one_packer_in_at_a_time) {
  TemporaryDirectory directory;
  const std::string path = directory / "v";
  auto writer = Writer::create(path, one_field(), {}).value();
  const Error busy = create_error(path);
  EXPECT_EQ(busy.code, Code::kBusy);
  EXPECT_NE(busy.message.find("another process"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path + ".partial"));  // the other's file is left alone
  writer.reset();
  write_file(path + ".partial", bytes_of(1, 1 << 20));  // left by a pack that was killed
  pack(path, {1, 2, 3});
  expect_clean(path);
  EXPECT_EQ(directory.list(), std::vector<std::string>{"v"});
}

TEST(Writer, keeps_a_file_that_appeared_meanwhile) {
  TemporaryDirectory directory;
  auto writer = Writer::create(directory / "v", one_field(), {}).value();
  write_file(directory / "v", bytes_of(1, 10));
  EXPECT_EQ(writer->commit().error().code, Code::kExists);
  EXPECT_EQ(read_file(directory / "v"), bytes_of(1, 10));
  EXPECT_EQ(directory.list(), std::vector<std::string>{"v"});
}

TEST(Writer, in_a_forked_child_leaves_the_parents_pack_alone) {
  TemporaryDirectory directory;
  auto writer = Writer::create(directory / "v", one_field(), {.chunk_bytes = 65536}).value();
  const layout::FieldValue none;
  ASSERT_TRUE(writer->append("a", {&none, 1}).ok());
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = writer->append("b", {&none, 1}).error().code == Code::kForked;
    writer.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(writer->append("c", {&none, 1}).ok());
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_EQ(writer->commit().error().code, Code::kInvalidArgument);
  EXPECT_EQ(Volume::mount(directory / "v").value()->size(), 2u);
}

TEST(Writer, follows_symbolic_links) {
  TemporaryDirectory directory;
  write_file(directory / "target", {});
  std::filesystem::create_symlink(directory / "target", directory / "link");
  pack(directory / "link", {1, 2});
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_EQ(Volume::mount(directory / "target").value()->size(), 2u);
}

}  // namespace
}  // namespace dlfs::volume
