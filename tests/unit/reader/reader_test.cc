// What a reader delivers: exactly the order, every byte right, within its memory.
#include <algorithm>
#include <cstring>

#include "support.h"

namespace dlfs::reader::test {
namespace {

using order::Mode;
using order::Tail;

class ReaderTest : public testing::Test {
 protected:
  // 3,000 samples of 0 to 3,000 bytes in chunks of 64 KiB: about 70 chunks.
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    lengths_ = new std::vector<std::uint64_t>(random_lengths(3000, 3000));
    (*lengths_)[0] = (*lengths_)[1234] = (*lengths_)[2999] = 0;
    pack(*directory_ / "a.dlfs", *lengths_);
  }
  static void TearDownTestSuite() {
    delete directory_;
    delete lengths_;
  }
  void SetUp() override {
    volume_ = mount(*directory_ / "a.dlfs");
    ASSERT_NE(volume_, nullptr);
  }

  Options options(Mode mode) const {
    Options o;
    o.order.mode = mode;
    o.order.seed = 5;
    o.order.batch = 64;
    o.order.lanes = 12;
    o.order.window = 2;
    return o;
  }

  static inline TemporaryDirectory* directory_ = nullptr;
  static inline std::vector<std::uint64_t>* lengths_ = nullptr;
  std::shared_ptr<const volume::Volume> volume_;
};

constexpr Mode kModes[] = {Mode::kSequential, Mode::kFull, Mode::kChunk};

TEST_F(ReaderTest, delivers_the_order_in_every_mode_with_every_tail) {
  for (const Mode mode : kModes) {
    for (const Tail tail : {Tail::kDrop, Tail::kShort, Tail::kPad}) {
      SCOPED_TRACE(static_cast<int>(mode) * 10 + static_cast<int>(tail));
      Options o = options(mode);
      o.order.tail = tail;
      o.epochs = 2;
      const Statistics s = expect_run(volume_, o, *lengths_);
      EXPECT_EQ(s.batches, tail == Tail::kDrop ? 92u : 94u);
    }
  }
}

TEST_F(ReaderTest, ranks_together_deliver_every_sample_once) {
  for (const Mode mode : kModes) {
    std::vector<int> seen(lengths_->size());
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      Options o = options(mode);
      o.order.ranks = 4;
      o.order.rank = rank;
      expect_run(volume_, o, *lengths_);
      for (const auto& ids : expected_batches(volume_, o.order)) {
        for (const std::uint32_t id : ids) ++seen[id];
      }
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](int n) { return n == 1; }));
  }
}

TEST_F(ReaderTest, padding_is_counted) {
  Options o = options(Mode::kFull);
  o.order.tail = Tail::kPad;
  auto reader = Reader::open(volume_, o);
  ASSERT_TRUE(reader.ok());
  std::uint32_t padding = 0;
  while (true) {
    auto batch = (*reader)->next(kLong);
    ASSERT_TRUE(batch.ok());
    if (*batch == nullptr) break;
    EXPECT_EQ((*batch)->size(), 64u);
    padding += (*batch)->padding();
  }
  EXPECT_EQ(padding, 47 * 64 - 3000u);
}

TEST_F(ReaderTest, never_takes_more_memory_than_it_was_given) {
  for (const Mode mode : kModes) {
    for (const std::uint64_t cache : {1u << 20, 1536u << 10, 2u << 20, 3u << 20, 5u << 20, 8u << 20, 64u << 20}) {
      SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << " cache " << cache);
      Options o = options(mode);
      o.cache_bytes = cache;
      o.epochs = 2;
      const Statistics s = expect_run(volume_, o, *lengths_);
      EXPECT_LE(s.memory_peak_bytes, cache);
      EXPECT_GT(s.memory_peak_bytes, 0u);
    }
  }
}

TEST_F(ReaderTest, a_data_set_that_fits_is_read_once) {
  const std::uint64_t data = volume_->superblock().data.length_bytes;
  for (const Mode mode : kModes) {
    Options o = options(mode);
    o.cache_bytes = 64u << 20;
    o.epochs = 3;
    const Statistics s = expect_run(volume_, o, *lengths_);
    EXPECT_LE(s.device_bytes, data) << static_cast<int>(mode);
    EXPECT_GE(s.cache_hits, 6000u) << static_cast<int>(mode);
  }
}

TEST_F(ReaderTest, chunk_mode_reads_every_chunk_about_once_an_epoch) {
  Options o = options(Mode::kChunk);
  o.order.window = 1;
  o.cache_bytes = 3u << 20;
  const Statistics s = expect_run(volume_, o, *lengths_);
  EXPECT_LT(s.amplification(), 1.25);
  std::uint64_t payload = 0;
  for (const std::uint64_t length : *lengths_) payload += length + 8;
  EXPECT_EQ(s.payload_bytes, payload);
}

TEST_F(ReaderTest, memory_beyond_the_working_set_serves_the_next_epoch) {
  Options o = options(Mode::kChunk);
  o.order.window = 1;
  o.cache_bytes = 4u << 20;
  o.epochs = 4;
  const Statistics s = expect_run(volume_, o, *lengths_);
  EXPECT_GT(s.cache_hits, 1000u);
}

TEST_F(ReaderTest, the_cache_is_as_good_in_the_ninth_epoch_as_in_the_third) {
  Options o = options(Mode::kChunk);
  o.order.window = 1;
  o.order.tail = Tail::kDrop;
  o.cache_bytes = 4u << 20;
  o.epochs = 9;
  o.start_batch = 20;
  o.prefetch_batches = 4;  // hits are counted when a batch is planned
  auto reader = Reader::open(volume_, o);
  ASSERT_TRUE(reader.ok());
  std::uint64_t hits[9] = {};
  for (auto batch = (*reader)->next(kLong); batch.ok() && *batch != nullptr; batch = (*reader)->next(kLong)) {
    hits[(*batch)->epoch()] = (*reader)->statistics().cache_hits;
  }
  EXPECT_GT(hits[2], 200u);
  EXPECT_GT(hits[8] - hits[5], (hits[5] - hits[2]) / 2);
  EXPECT_GT(hits[5] - hits[2], 300u);
}

TEST_F(ReaderTest, too_little_memory_for_chunk_mode_falls_back_and_says_so) {
  Options o = options(Mode::kChunk);
  o.cache_bytes = 1u << 20;
  auto reader = Reader::open(volume_, o);
  ASSERT_TRUE(reader.ok());
  EXPECT_NE((*reader)->notes().find("set cache_bytes to"), std::string::npos) << (*reader)->notes();
}

TEST_F(ReaderTest, the_memory_that_an_error_names_is_enough) {
  for (const Mode mode : kModes) {
    Options o = options(mode);
    o.order.batch = 600;
    o.cache_bytes = 16u << 10;
    const auto refused = Reader::open(volume_, o);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kOutOfMemory);
    const std::size_t at = refused.error().message.find("set cache_bytes to ");
    ASSERT_NE(at, std::string::npos) << refused.error().message;
    o.cache_bytes = std::stoull(refused.error().message.substr(at + 19));
    expect_run(volume_, o, *lengths_);
  }
}

TEST_F(ReaderTest, starting_in_the_middle_equals_having_come_there) {
  for (const Mode mode : kModes) {
    for (const std::uint64_t start : {1u, 17u, 46u, 47u}) {
      Options o = options(mode);
      o.start_batch = start;
      o.epochs = 2;
      o.cache_bytes = 3u << 20;
      expect_run(volume_, o, *lengths_);
    }
  }
  Options o = options(Mode::kFull);
  o.start_batch = 48;
  EXPECT_FALSE(Reader::open(volume_, o).ok());
}

TEST_F(ReaderTest, a_position_resumes_where_it_was_taken) {
  for (const Mode mode : kModes) {
    Options o = options(mode);
    o.epochs = 3;
    auto reader = Reader::open(volume_, o);
    ASSERT_TRUE(reader.ok());
    for (int i = 0; i < 60; ++i) ASSERT_TRUE((*reader)->next(kLong).ok());
    const order::Position position = (*reader)->position();
    EXPECT_EQ(position.parameters.epoch, 1u);
    EXPECT_EQ(position.next_batch, 13u);
    EXPECT_EQ(position.volume, volume_->fingerprint());
    Options resumed = o;
    resumed.order = position.parameters;
    resumed.start_batch = position.next_batch;
    resumed.epochs = 2;
    auto other = Reader::open(volume_, resumed);
    ASSERT_TRUE(other.ok());
    for (int i = 60; i < 3 * 47; ++i) {
      auto a = (*reader)->next(kLong), b = (*other)->next(kLong);
      ASSERT_TRUE(a.ok() && b.ok() && *a != nullptr && *b != nullptr);
      ASSERT_TRUE(std::ranges::equal((*a)->ids(), (*b)->ids()));
      ASSERT_EQ((*a)->epoch(), (*b)->epoch());
    }
  }
}

TEST_F(ReaderTest, gather_copies_a_field_and_its_offsets) {
  auto reader = Reader::open(volume_, options(Mode::kFull));
  ASSERT_TRUE(reader.ok());
  auto batch = (*reader)->next(kLong);
  ASSERT_TRUE(batch.ok());
  std::vector<std::uint64_t> offsets((*batch)->size() + 1);
  const std::uint64_t need = (*batch)->gather(0, {}, offsets);
  std::vector<std::byte> bytes(need);
  EXPECT_EQ((*batch)->gather(0, bytes, {}), need);
  EXPECT_EQ(offsets.back(), need);
  for (std::size_t i = 0; i < (*batch)->size(); ++i) {
    const std::uint32_t id = (*batch)->ids()[i];
    ASSERT_EQ(offsets[i + 1] - offsets[i], (*lengths_)[id]);
    for (std::uint64_t b = offsets[i]; b < offsets[i + 1]; ++b) ASSERT_EQ(bytes[b], byte_of(id, b - offsets[i]));
  }
  EXPECT_GT((*reader)->statistics().copy.total_s, 0);
}

TEST_F(ReaderTest, wrong_options_are_refused_with_a_sentence) {
  Options o = options(Mode::kChunk);
  o.depth = 0;
  EXPECT_EQ(Reader::open(volume_, o).error().code, Code::kInvalidArgument);
  o = options(Mode::kChunk);
  o.order.ranks = 7;
  EXPECT_EQ(Reader::open(volume_, o).error().code, Code::kInvalidArgument);
  o = options(Mode::kChunk);
  o.cache_bytes = 4095;
  EXPECT_EQ(Reader::open(volume_, o).error().code, Code::kOutOfMemory);
}

TEST_F(ReaderTest, prefetch_and_depth_of_one_work) {
  for (const Mode mode : kModes) {
    Options o = options(mode);
    o.depth = 1;
    o.prefetch_batches = 1;
    expect_run(volume_, o, *lengths_);
  }
}

TEST_F(ReaderTest, an_idle_reader_costs_no_processor_time) {
  Options o = options(Mode::kChunk);
  o.epochs = 0;
  auto reader = Reader::open(volume_, o);
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE((*reader)->next(kLong).ok());
  usleep(300'000);  // it fills its memory meanwhile
  const double before = (*reader)->statistics().poller_cpu_s;
  usleep(500'000);
  EXPECT_LT((*reader)->statistics().poller_cpu_s - before, 0.01);
}

TEST(ReaderVolumes, large_and_tiny_samples_mixed) {
  TemporaryDirectory directory;
  std::vector<std::uint64_t> lengths = random_lengths(400, 2000, 3);
  for (std::size_t i = 0; i < lengths.size(); i += 20) lengths[i] = 60'000 + i * 1000;  // up to 440 KB: several chunks
  pack(directory / "v", lengths);
  const auto volume = mount(directory / "v");
  ASSERT_NE(volume, nullptr);
  for (const order::Mode mode : kModes) {
    for (const std::uint64_t cache : {2u << 20, 4u << 20, 64u << 20}) {
      SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << " cache " << cache);
      Options o;
      o.order.mode = mode;
      o.order.batch = 8;
      o.order.lanes = 4;
      o.cache_bytes = cache;
      o.epochs = 2;
      expect_run(volume, o, lengths);
    }
  }
}

TEST(ReaderVolumes, a_sample_larger_than_the_memory_has_memory_of_its_own) {
  TemporaryDirectory directory;
  std::vector<std::uint64_t> lengths(40, 1000);
  lengths[7] = lengths[31] = 3u << 20;
  pack(directory / "v", lengths);
  const auto volume = mount(directory / "v");
  ASSERT_NE(volume, nullptr);
  for (const order::Mode mode : kModes) {
    Options o;
    o.order.mode = mode;
    o.order.batch = 1;
    o.order.lanes = 1;
    o.cache_bytes = 256u << 10;
    auto reader = Reader::open(volume, o);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      auto batch = (*reader)->next(kLong);
      ASSERT_TRUE(batch.ok()) << batch.error().message;
      ASSERT_NE(*batch, nullptr);
      expect_contents(**batch, lengths);
      EXPECT_LE((*reader)->statistics().memory_bytes, (256u << 10) + (4u << 20));
    }
  }
}

TEST(ReaderVolumes, volumes_of_one_sample_and_of_empty_samples) {
  TemporaryDirectory directory;
  for (const std::vector<std::uint64_t>& lengths :
       {std::vector<std::uint64_t>{5}, std::vector<std::uint64_t>(100, 0)}) {
    const std::string path = directory / std::to_string(lengths.size());
    pack(path, lengths);
    const auto volume = mount(path);
    ASSERT_NE(volume, nullptr);
    for (const order::Mode mode : kModes) {
      Options o;
      o.order.mode = mode;
      o.order.batch = 16;
      o.epochs = 3;
      expect_run(volume, o, lengths);
    }
  }
}

TEST(ReaderVolumes, reads_from_a_memory_device) {
  const std::string url = "mem:reader-test-" + std::to_string(getpid()) + "?size=8MiB";
  const auto keep = block::open_device(url, {.write = true, .create = true, .direct = true, .queue_depth = 8});
  ASSERT_TRUE(keep.ok()) << keep.error().message;
  const auto lengths = random_lengths(1000, 2000, 9);
  pack(url, lengths);
  const auto volume = mount(url);
  ASSERT_NE(volume, nullptr);
  for (const order::Mode mode : kModes) {
    Options o;
    o.order.mode = mode;
    o.order.batch = 50;
    o.order.lanes = 10;
    expect_run(volume, o, lengths);
  }
}

}  // namespace
}  // namespace dlfs::reader::test
