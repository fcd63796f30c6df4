#include "volume/verify.h"

#include <algorithm>
#include <map>
#include <set>

#include "samples.h"
#include "volume/device_io.h"

namespace dlfs::volume {
namespace {

using namespace test;

constexpr std::uint32_t kChunk = 65536;

std::vector<std::uint64_t> sample_lengths() {
  auto lengths = random_lengths(60, 4000, 8);
  lengths[3] = 0;
  lengths[5] = 3 * kChunk - 30;  // its table crosses the edge of a chunk
  lengths[9] = 100'000;
  return lengths;
}

// A memory device whose bytes are flipped one at a time.
class Flipper {
 public:
  explicit Flipper(const std::string& name) : url_("mem:" + name) {
    device_ = block::open_device(url_ + "?size=2MiB", {.write = true}).value();
    pack(url_, sample_lengths(), {.chunk_bytes = kChunk, .pool_bytes = 4 * kChunk});
    block_ = base::Arena::create(4096).value();
  }
  const std::string& url() const { return url_; }
  void flip(std::uint64_t offset, unsigned bit) {
    const auto block = block_.bytes().first(512);
    const std::uint64_t begin = round_down(offset, 512);
    ASSERT_TRUE(block::read_all(*device_, begin, block).ok());
    block[offset - begin] ^= static_cast<std::byte>(1u << bit);
    ASSERT_TRUE(block::write_all(*device_, begin, block).ok());
  }

 private:
  std::string url_;
  std::unique_ptr<block::BlockDevice> device_;
  base::Arena block_;
};

// Offsets where something begins or ends, and random ones between.
std::set<std::uint64_t> interesting_offsets(const Volume& volume, std::size_t random) {
  const layout::Superblock& superblock = volume.superblock();
  std::set<std::uint64_t> offsets;
  const auto around = [&](std::uint64_t offset) {
    for (std::int64_t d : {-9, -8, -2, -1, 0, 1, 4, 7, 8, 15, 16, 20}) {
      const auto at = static_cast<std::int64_t>(offset) + d;
      if (at >= 0 && static_cast<std::uint64_t>(at) < superblock.device_bytes)
        offsets.insert(static_cast<std::uint64_t>(at));
    }
  };
  for (const layout::Extent* extent : {&superblock.data, &superblock.names, &superblock.index, &superblock.schema}) {
    around(extent->offset_bytes);
    around(extent->offset_bytes + extent->length_bytes);
  }
  for (std::uint64_t offset = 0; offset < 300; offset += 3) offsets.insert({offset, 65536 + offset});
  for (const std::uint64_t offset : {4096u, 65536u, 65536u + 4096u, 131072u}) around(offset);
  for (std::uint64_t chunk = 0; chunk < superblock.data.length_bytes; chunk += kChunk)
    around(superblock.data.offset_bytes + chunk);
  for (std::uint32_t id = 0; id < volume.size(); ++id) {
    const auto location = volume.directory().location(SampleId{id});
    around(volume.device_offset(location.address_bytes));
    around(volume.device_offset(location.address_bytes + location.length_bytes));
  }
  base::Prng prng(4);
  while (random-- > 0) offsets.insert(prng.below(superblock.device_bytes));
  offsets.insert(superblock.device_bytes - 1);
  return offsets;
}

// Which sample's record holds this byte of the device.
std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> record_map(const Volume& volume) {
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> records;  // begin -> (end, id)
  for (std::uint32_t id = 0; id < volume.size(); ++id) {
    const auto location = volume.directory().location(SampleId{id});
    const std::uint64_t begin = volume.device_offset(location.address_bytes);
    records[begin] = {begin + location.length_bytes, id};
  }
  return records;
}

TEST(Verify, finds_every_flipped_byte) {
  Flipper flipper("verify-flips");
  const auto lengths = sample_lengths();
  const auto good = Volume::mount(flipper.url()).value();
  const auto records = record_map(*good);
  base::Prng prng(11);
  std::size_t refused = 0, in_records = 0;
  for (const std::uint64_t offset : interesting_offsets(*good, 500)) {
    SCOPED_TRACE(offset);
    const auto bit = static_cast<unsigned>(prng.below(8));
    flipper.flip(offset, bit);
    const auto volume = Volume::mount(flipper.url());
    std::vector<Finding> findings;
    if (volume.ok()) {
      const auto report = verify(**volume, [&](const Finding& finding) { findings.push_back(finding); }, {});
      ASSERT_TRUE(report.ok()) << report.error().message;
      ASSERT_EQ(report->findings, findings.size());
      ASSERT_GE(findings.size(), 1u);
      auto record = records.upper_bound(offset);
      if (record != records.begin() && offset < (--record)->second.first &&
          !good->directory().location(SampleId{record->second.second}).large) {
        ++in_records;
        const std::uint32_t id = record->second.second;
        ASSERT_EQ(findings.size(), 1u);
        EXPECT_EQ(findings[0].what, Finding::What::kRecord);
        EXPECT_TRUE(findings[0].has_id);
        EXPECT_EQ(findings[0].id.value, id);
        EXPECT_EQ(findings[0].name, name_of(id));
        EXPECT_EQ(findings[0].device_offset, record->first);
        EXPECT_EQ(findings[0].chunk, (offset - good->superblock().data.offset_bytes) / kChunk);
        EXPECT_EQ(report->bad_samples, 1u);
        EXPECT_EQ(report->bad_chunks, 1u);
        EXPECT_EQ((*volume)->read(SampleId{id}).error().code, Code::kCorrupt);
      }
    } else {
      ++refused;
      EXPECT_TRUE(volume.error().code == Code::kCorrupt) << volume.error().message;
    }
    flipper.flip(offset, bit);
  }
  EXPECT_GT(refused, 10u);  // index and schema
  EXPECT_GT(in_records, 100u);
  expect_samples(*good, lengths);
}

TEST(Verify, names_a_damaged_large_sample_once) {
  Flipper flipper("verify-large");
  const auto volume = Volume::mount(flipper.url()).value();
  const std::uint64_t begin = volume->device_offset(volume->directory().location(SampleId{5}).address_bytes);
  for (const std::uint64_t at :
       {std::uint64_t{0}, std::uint64_t{9}, std::uint64_t{100}, std::uint64_t{kChunk} + 5, std::uint64_t{2} * kChunk,
        std::uint64_t{3} * kChunk - 8, std::uint64_t{3} * kChunk + 1}) {
    SCOPED_TRACE(at);
    flipper.flip(begin + at, 0);
    std::vector<Finding> findings;
    const auto report = verify(*volume, [&](const Finding& finding) { findings.push_back(finding); }, {});
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->bad_samples, 1u);
    EXPECT_EQ(report->samples, volume->size());
    ASSERT_GE(findings.size(), 1u);
    EXPECT_EQ(findings[0].what, Finding::What::kLargeRecord);
    EXPECT_EQ(findings[0].id.value, 5u);
    EXPECT_EQ(findings[0].name, name_of(5));
    EXPECT_EQ(Volume::mount(flipper.url()).value()->read(SampleId{5}).error().code, Code::kCorrupt);
    flipper.flip(begin + at, 0);
  }
  // A part that is intact is still readable.
  flipper.flip(begin + 2 * kChunk + 5, 0);
  const auto again = Volume::mount(flipper.url()).value();
  std::vector<std::byte> part(1000);
  EXPECT_TRUE(again->read_field(SampleId{5}, 0, 500, part).ok());
  EXPECT_TRUE(std::ranges::equal(part, std::span<const std::byte>(bytes_of(5, 1500)).subspan(500)));
  const auto bad = again->read_field(SampleId{5}, 0, 2 * kChunk, part);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Code::kCorrupt);
  EXPECT_NE(bad.error().message.find(name_of(5)), std::string::npos);
}

TEST(Verify, reports_progress_and_stops_when_told) {
  Flipper flipper("verify-progress");
  const auto volume = Volume::mount(flipper.url()).value();
  std::uint64_t last = 0, total = 0;
  ASSERT_TRUE(verify(*volume, {}, [&](std::uint64_t done, std::uint64_t all) {
                EXPECT_GE(done, last);
                last = done;
                total = all;
                return true;
              }).ok());
  EXPECT_EQ(last, total);
  const auto stopped = verify(*volume, {}, [](std::uint64_t, std::uint64_t) { return false; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, Code::kInterrupted);
}

TEST(Verify, goes_on_behind_what_cannot_be_read) {
  TemporaryDirectory directory;
  const auto lengths = random_lengths(1000, 3000);
  pack(directory / "v", lengths, {.chunk_bytes = kChunk});
  const auto volume = Volume::mount(directory / "v").value();
  const std::uint64_t cut =
      volume->superblock().data.offset_bytes + 3 * kChunk;  // the file loses its end while it is mounted
  std::filesystem::resize_file(directory / "v", cut);
  std::set<std::uint32_t> lost;
  bool index_lost = false;
  const auto report = verify(*volume,
                             [&](const Finding& finding) {
                               EXPECT_EQ(finding.what, Finding::What::kRead) << finding.message;
                               if (finding.has_id) lost.insert(finding.id.value);
                               index_lost =
                                   index_lost || finding.device_offset >= volume->superblock().index.offset_bytes;
                             },
                             {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (std::uint32_t id = 0; id < lengths.size(); ++id) {
    EXPECT_EQ(lost.contains(id), volume->device_offset(volume->directory().location(SampleId{id}).address_bytes) >= cut)
        << id;
  }
  EXPECT_EQ(report->bad_samples, lost.size());
  EXPECT_TRUE(index_lost);
}

}  // namespace
}  // namespace dlfs::volume
