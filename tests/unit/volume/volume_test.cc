#include "volume/volume.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "faulty_device.h"
#include "samples.h"
#include "volume/verify.h"

namespace dlfs::volume {
namespace {

using namespace test;

Error mount_error(const std::string& url) {
  const auto volume = Volume::mount(url);
  if (volume.ok()) return {Code::kInvalidArgument, "it was mounted", 0, 0};
  return volume.error();
}

TEST(Volume, gives_back_what_was_packed) {
  TemporaryDirectory directory;
  auto lengths = random_lengths(500, 3000);
  lengths[17] = 0;
  lengths[18] = 65536 - 8;  // fills a chunk exactly
  lengths[19] = 65536 - 7;  // the smallest large one
  lengths[20] = 1'000'000;
  const std::string path = directory / "v.dlfs";
  pack(path, lengths, {.chunk_bytes = 65536, .pool_bytes = 256 << 10});
  auto volume = Volume::mount(path);
  ASSERT_TRUE(volume.ok()) << volume.error().message;
  expect_samples(**volume, lengths);
  EXPECT_EQ((*volume)->report().warning, "");
  EXPECT_EQ((*volume)->superblock().payload_bytes, std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0}));
  const auto& superblock = (*volume)->superblock();
  EXPECT_EQ(superblock.payload_bytes + superblock.record_bytes + superblock.padding_bytes,
            superblock.data.length_bytes);
  EXPECT_EQ(std::filesystem::file_size(path), superblock.device_bytes);
  EXPECT_EQ(superblock.device_bytes % 4096, 0u);
  EXPECT_EQ(directory.list(), std::vector<std::string>{"v.dlfs"});
  const auto report = verify(**volume, [](const Finding& finding) { ADD_FAILURE() << finding.message; }, {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->samples, lengths.size());
  EXPECT_EQ(report->bytes, superblock.device_bytes);
}

TEST(Volume, works_on_memory_devices_and_without_direct_io) {
  auto holder = block::open_device("mem:volume-works?size=8MiB", {.write = true});
  ASSERT_TRUE(holder.ok()) << holder.error().message;
  const auto lengths = random_lengths(200, 5000);
  pack("mem:volume-works", lengths, {.chunk_bytes = 65536});
  const auto volume = Volume::mount("mem:volume-works", {.direct = false});
  ASSERT_TRUE(volume.ok()) << volume.error().message;
  expect_samples(**volume, lengths);
}

TEST(Volume, may_be_empty) {
  TemporaryDirectory directory;
  for (const bool names : {true, false}) {
    pack(directory / "v", {}, {.overwrite = true, .names = names});
    const auto volume = Volume::mount(directory / "v");
    ASSERT_TRUE(volume.ok()) << volume.error().message;
    EXPECT_EQ((*volume)->size(), 0u);
    EXPECT_EQ((*volume)->find("x").error().code, Code::kNotFound);
    EXPECT_EQ((*volume)->read(SampleId{0}).error().code, Code::kNotFound);
    const auto report = verify(**volume, [](const Finding& finding) { ADD_FAILURE() << finding.message; }, {});
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->findings, 0u);
  }
}

TEST(Volume, reads_parts_of_fields) {
  TemporaryDirectory directory;
  const auto schema = layout::parse_schema("label: int64, caption: text, image: bytes").value();
  auto writer = Writer::create(directory / "v", schema, {.chunk_bytes = 65536}).value();
  const std::string caption = "ein Kätzchen";
  for (std::uint32_t id = 0; id < 3; ++id) {
    const std::int64_t label = id;
    const auto image = bytes_of(id, id == 1 ? 700'001 : 100);
    const layout::FieldValue fields[] = {std::as_bytes(std::span(&label, 1)), std::as_bytes(std::span(caption)), image};
    ASSERT_TRUE(writer->append("n" + std::to_string(id), fields).ok());
  }
  ASSERT_TRUE(writer->commit().ok());
  const auto volume = Volume::mount(directory / "v").value();
  base::Prng prng(3);
  for (std::uint32_t id = 0; id < 3; ++id) {
    const std::uint64_t length = id == 1 ? 700'001 : 100;
    EXPECT_EQ(volume->field_lengths(SampleId{id}).value(), (std::vector<std::uint64_t>{8, caption.size(), length}));
    const auto image = bytes_of(id, length);
    for (int i = 0; i < 50; ++i) {
      const std::uint64_t offset = prng.below(length + 10);
      std::vector<std::byte> into(prng.below(200'000));
      const std::uint64_t count = volume->read_field(SampleId{id}, 2, offset, into).value();
      ASSERT_EQ(count, offset >= length ? 0 : std::min<std::uint64_t>(into.size(), length - offset));
      ASSERT_TRUE(std::equal(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(count),
                             image.begin() + static_cast<std::ptrdiff_t>(std::min(offset, length))));
    }
    std::vector<std::byte> text(100);
    ASSERT_EQ(volume->read_field(SampleId{id}, 1, 0, text).value(), caption.size());
    EXPECT_TRUE(std::equal(text.begin(), text.begin() + caption.size(), std::as_bytes(std::span(caption)).begin()));
    EXPECT_EQ(volume->read_field(SampleId{id}, 3, 0, text).error().code, Code::kInvalidArgument);
  }
}

TEST(Volume, small_parts_in_a_row_read_each_chunk_once) {
  TemporaryDirectory directory;
  const auto content = bytes_of(0, 5 * (64u << 10));
  auto writer = Writer::create(directory / "v", one_field(), {.chunk_bytes = 64u << 10}).value();
  const auto field = std::span<const std::byte>(content);
  ASSERT_TRUE(writer->append("a", {&field, 1}).ok());
  ASSERT_TRUE(writer->commit().ok());
  std::uint64_t requests = 0;
  const auto counted = [&](std::string_view url,
                           const block::OpenOptions& options) -> Result<std::unique_ptr<block::BlockDevice>> {
    auto inner = block::open_device(url, options);
    if (!inner.ok()) return inner;
    return std::unique_ptr<block::BlockDevice>(
        std::make_unique<JudgedDevice>(std::move(inner).value(), [&](const block::Request&) { return ++requests, 0; }));
  };
  const auto volume = Volume::mount(directory / "v", {.open_device = counted}).value();
  KeptPiece kept;
  std::vector<std::byte> part(1000);
  requests = 0;
  for (std::uint64_t at = 0; at < content.size(); at += part.size()) {
    const std::uint64_t count = volume->read_field(SampleId{0}, 0, at, part, &kept).value();
    ASSERT_EQ(count, std::min<std::uint64_t>(part.size(), content.size() - at));
    ASSERT_TRUE(std::equal(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count),
                           content.begin() + static_cast<std::ptrdiff_t>(at)));
  }
  EXPECT_LE(requests, 10u);                  // 6 chunks, head and table
  const std::scoped_lock taken(kept.mutex);  // by another thread
  ASSERT_EQ(volume->read_field(SampleId{0}, 0, 70'000, part, &kept).value(), part.size());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), content.begin() + 70'000));
}

TEST(Volume, keeps_any_name) {
  TemporaryDirectory directory;
  const std::vector<std::string> names = {
      "a", std::string(4095, 'x'), "with space", "with\nnewline", "\xff\xfe", "猫/1.jpg", "a.b.c", " ", "\\", "'"};
  auto writer = Writer::create(directory / "v", one_field(), {}).value();
  for (const auto& name : names) {
    const auto field = std::as_bytes(std::span(name));
    ASSERT_TRUE(writer->append(name, {&field, 1}).ok());
  }
  const layout::FieldValue none;
  EXPECT_EQ(writer->append("", {&none, 1}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(writer->append(std::string(4096, 'x'), {&none, 1}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(writer->append(std::string_view("a\0b", 3), {&none, 1}).error().code, Code::kInvalidArgument);
  ASSERT_TRUE(writer->commit().ok());
  const auto volume = Volume::mount(directory / "v").value();
  for (std::uint32_t id = 0; id < names.size(); ++id) {
    EXPECT_EQ(volume->find(names[id]).value().value, id);
    EXPECT_EQ(volume->name(SampleId{id}).value(), names[id]);
  }
  EXPECT_EQ(volume->find("b").error().code, Code::kNotFound);
  EXPECT_EQ(volume->find("").error().code, Code::kNotFound);
  EXPECT_NE(volume->describe(SampleId{3}).find("with\\x0anewline"), std::string::npos);
  EXPECT_NE(volume->describe(SampleId{3}).find("at byte"), std::string::npos);
}

TEST(Volume, lists_names_from_any_id) {
  TemporaryDirectory directory;
  const std::vector<std::uint64_t> lengths(5000, 3);
  pack(directory / "v", lengths);
  const auto volume = Volume::mount(directory / "v").value();
  for (const std::uint32_t first : {0u, 1u, 777u, 4999u, 5000u}) {
    std::uint32_t next = first;
    const auto listed = volume->names(SampleId{first}, [&](SampleId id, std::span<const std::string_view> names) {
      EXPECT_EQ(id.value, next);
      for (const auto name : names) EXPECT_EQ(name, name_of(next++));
      return true;
    });
    ASSERT_TRUE(listed.ok()) << listed.error().message;
    EXPECT_EQ(next, 5000u);
  }
  int visits = 0;
  ASSERT_TRUE(volume->names(SampleId{0}, [&](SampleId, auto) { return ++visits < 2; }).ok());
  EXPECT_EQ(visits, 2);
}

TEST(Volume, without_names_has_numbers_only) {
  TemporaryDirectory directory;
  const auto lengths = random_lengths(100, 100);
  pack(directory / "v", lengths, {.names = false});
  const auto volume = Volume::mount(directory / "v").value();
  expect_samples(*volume, lengths, false);
  EXPECT_EQ(volume->name(SampleId{5}).value(), "");
  EXPECT_EQ(volume->find("x").error().code, Code::kNotFound);
  std::size_t seen = 0;
  ASSERT_TRUE(volume
                  ->names(SampleId{40},
                          [&](SampleId, auto names) {
                            seen += names.size();
                            return true;
                          })
                  .ok());
  EXPECT_EQ(seen, 60u);
}

TEST(Volume, refuses_what_is_no_volume_with_a_sentence) {
  TemporaryDirectory directory;
  EXPECT_EQ(mount_error(directory / "absent").code, Code::kNotFound);
  write_file(directory / "empty", {});
  EXPECT_EQ(mount_error(directory / "empty").code, Code::kForeign);
  EXPECT_EQ(mount_error(directory.path()).code, Code::kForeign);
  EXPECT_NE(mount_error(directory.path()).message.find("directory"), std::string::npos);
  write_file(directory / "ten", bytes_of(1, 10));
  EXPECT_EQ(mount_error(directory / "ten").code, Code::kForeign);
  EXPECT_NE(mount_error(directory / "ten").message.find("10 bytes"), std::string::npos);
  for (const std::uint64_t length : {4095u, 4096u, 70000u, 1u << 20}) {
    write_file(directory / "random", bytes_of(2, length));
    EXPECT_EQ(mount_error(directory / "random").code, Code::kForeign) << length;
  }
  std::vector<std::byte> tar(10240);
  std::memcpy(tar.data(), "file.txt", 8);
  std::memcpy(tar.data() + 257, "ustar", 5);
  write_file(directory / "x.tar", tar);
  EXPECT_EQ(mount_error(directory / "x.tar").code, Code::kForeign);
  EXPECT_NE(mount_error(directory / "x.tar").message.find("tar archive"), std::string::npos);
  EXPECT_EQ(mount_error("mem:nobody-made-this").code, Code::kNotFound);
  EXPECT_EQ(mount_error("s3:bucket/x").code, Code::kInvalidArgument);
}

TEST(Volume, refuses_truncated_volumes_with_both_lengths) {
  TemporaryDirectory directory;
  pack(directory / "v", random_lengths(100, 3000), {.chunk_bytes = 65536});
  const auto bytes = read_file(directory / "v");
  for (const std::uint64_t length :
       {std::uint64_t{4096}, std::uint64_t{70000}, std::uint64_t{200000}, bytes.size() - 4096, bytes.size() - 1}) {
    write_file(directory / "cut", std::span(bytes).first(length));
    const Error error = mount_error(directory / "cut");
    EXPECT_EQ(error.code, Code::kTruncated) << length << error.message;
    EXPECT_NE(error.message.find(std::to_string(bytes.size())), std::string::npos) << error.message;
    EXPECT_NE(error.message.find(std::to_string(length)), std::string::npos) << error.message;
  }
  write_file(directory / "long", bytes);
  std::filesystem::resize_file(directory / "long", bytes.size() + 12345);
  EXPECT_TRUE(Volume::mount(directory / "long").ok());
}

TEST(Volume, survives_one_bad_superblock_and_says_so) {
  TemporaryDirectory directory;
  const auto lengths = random_lengths(100, 3000);
  pack(directory / "v", lengths, {.chunk_bytes = 65536});
  const auto bytes = read_file(directory / "v");
  for (const std::uint64_t slot : layout::kSuperblockOffsets) {
    auto damaged = bytes;
    damaged[slot + 100] ^= std::byte{1};
    write_file(directory / "d", damaged);
    const auto volume = Volume::mount(directory / "d");
    ASSERT_TRUE(volume.ok()) << volume.error().message;
    EXPECT_NE((*volume)->report().warning.find(std::to_string(slot)), std::string::npos);
    expect_samples(**volume, lengths);
    std::vector<Finding> findings;
    ASSERT_TRUE(verify(**volume, [&](const Finding& finding) { findings.push_back(finding); }, {}).ok());
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].what, Finding::What::kSuperblock);
    EXPECT_EQ(findings[0].device_offset, slot);
  }
  auto damaged = bytes;
  for (const std::uint64_t slot : layout::kSuperblockOffsets) damaged[slot + 100] ^= std::byte{1};
  write_file(directory / "d", damaged);
  EXPECT_EQ(mount_error(directory / "d").code, Code::kCorrupt);
}

TEST(Volume, says_that_a_pack_is_incomplete) {
  TemporaryDirectory directory;
  const std::string path = directory / "v";
  auto writer = Writer::create(path, one_field(), {}).value();
  EXPECT_EQ(mount_error(path).code, Code::kNotFound);
  EXPECT_NE(mount_error(path).message.find("incomplete"), std::string::npos);
  EXPECT_EQ(mount_error(path + ".partial").code, Code::kIncomplete);
  EXPECT_NE(mount_error(path + ".partial").message.find("incomplete"), std::string::npos);
  writer.reset();
  EXPECT_EQ(mount_error(path).message.find("incomplete"), std::string::npos);
  EXPECT_TRUE(directory.list().empty());
}

TEST(Volume, is_usable_in_a_forked_child) {
  TemporaryDirectory directory;
  auto lengths = random_lengths(50, 3000);
  lengths[7] = 300'000;
  pack(directory / "v", lengths, {.chunk_bytes = 65536});
  const auto volume = Volume::mount(directory / "v").value();
  expect_samples(*volume, lengths);
  const pid_t child = fork();
  if (child == 0) {
    expect_samples(*volume, lengths);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  expect_samples(*volume, lengths);
}

TEST(Volume, is_read_by_many_threads) {
  TemporaryDirectory directory;
  auto lengths = random_lengths(100, 3000);
  lengths[7] = 300'000;
  pack(directory / "v", lengths, {.chunk_bytes = 65536});
  const auto volume = Volume::mount(directory / "v").value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { expect_samples(*volume, lengths); });
  for (auto& thread : threads) thread.join();
}

TEST(Volume, notices_that_its_file_was_replaced) {
  TemporaryDirectory directory;
  pack(directory / "v", {1, 2, 3});
  const auto volume = Volume::mount(directory / "v").value();
  pack(directory / "v", {4, 5, 6}, {.overwrite = true});
  EXPECT_TRUE(volume->read(SampleId{0}).ok());  // its handle still reads the old file
  const auto device = volume->open_device(4);
  ASSERT_FALSE(device.ok());
  EXPECT_NE(device.error().message.find("replaced"), std::string::npos);
}

TEST(Volume, has_a_fingerprint_of_its_own) {
  TemporaryDirectory directory;
  pack(directory / "a", {1});
  pack(directory / "b", {1});
  const auto a = Volume::mount(directory / "a").value();
  EXPECT_EQ(a->fingerprint(), Volume::mount(directory / "a").value()->fingerprint());
  EXPECT_NE(a->fingerprint(), Volume::mount(directory / "b").value()->fingerprint());
}

}  // namespace
}  // namespace dlfs::volume
