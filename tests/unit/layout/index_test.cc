#include "layout/index.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

namespace dlfs::layout {
namespace {

TEST(PackedArray, holds_any_values_of_any_width) {
  const bool ok = rc::check("array[i] is what was set", [] {
    const auto width = *rc::gen::inRange(0u, 65u);
    const auto values = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::arbitrary<std::uint64_t>());
    const std::uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
    std::vector<std::byte> bytes(PackedArray::bytes_for(values.size(), width));
    for (std::size_t i = values.size(); i > 0; --i) packed_set(bytes, width, i - 1, values[i - 1] & mask);
    const PackedArray array(bytes, width);
    for (std::size_t i = 0; i < values.size(); ++i) RC_ASSERT(array[i] == (values[i] & mask));
    for (std::size_t i = bytes.size() - 16; i < bytes.size(); ++i) RC_ASSERT(bytes[i] == std::byte{0});
  });
  EXPECT_TRUE(ok);
}

TEST(PackedArray, bits_are_little_endian) {
  std::vector<std::byte> bytes(PackedArray::bytes_for(3, 5));
  for (std::uint64_t i = 0; i < 3; ++i) packed_set(bytes, 5, i, 0b10110 + i);
  EXPECT_EQ(bytes[0], std::byte{0b111'10110});
  EXPECT_EQ(bytes[1], std::byte{0b0'11000'10});
  EXPECT_EQ(bytes.size(), 18u);
}

TEST(LocationArray, holds_locations_of_every_width) {
  const bool ok = rc::check("locations come back", [] {
    IndexFacts facts;
    facts.chunk_bytes = *rc::gen::element(kMinChunkBytes, kDefaultChunkBytes, kMaxChunkBytes);
    facts.data_bytes = kMaxDeviceBytes / 2;
    const std::uint64_t address_limit = std::uint64_t{1} << *rc::gen::inRange(4, 46);
    std::vector<Location> locations(*rc::gen::inRange<std::size_t>(1, 60));
    for (Location& at : locations) {
      at.large = *rc::gen::arbitrary<bool>();
      at.address_bytes = *rc::gen::inRange<std::uint64_t>(0, address_limit) / 8 * 8;
      if (at.large) at.address_bytes = at.address_bytes / facts.chunk_bytes * facts.chunk_bytes;
      at.length_bytes = at.large ? *rc::gen::inRange<std::uint64_t>(facts.chunk_bytes + 1, kMaxSampleBytes)
                                 : *rc::gen::inRange<std::uint64_t>(8, facts.chunk_bytes + 1);
      facts.address_bits_used |= at.address_bytes;
      std::uint64_t& longest = at.large ? facts.longest_large_bytes : facts.longest_ordinary_bytes;
      longest = std::max(longest, at.length_bytes);
    }
    facts.sample_count = locations.size();
    const IndexHeader header = plan_index(facts);
    RC_ASSERT(header.large_shift >= 12);
    RC_ASSERT(std::uint64_t{1} << header.large_shift <= facts.chunk_bytes);
    std::vector<std::byte> bytes(header.section(IndexSection::kLocations).length_bytes);
    for (std::size_t i = 0; i < locations.size(); ++i) set_location(bytes, header, i, locations[i]);
    const LocationArray array(bytes, header);
    for (std::size_t i = 0; i < locations.size(); ++i) {
      const Location got = array[i];
      RC_ASSERT(got.address_bytes == locations[i].address_bytes);
      RC_ASSERT(array.address_bytes(i) == got.address_bytes);
      RC_ASSERT(got.large == locations[i].large);
      RC_ASSERT(array.valid(i));
      const std::uint64_t unit = got.large ? std::uint64_t{1} << header.large_shift : 1;
      RC_ASSERT(got.length_bytes == (locations[i].length_bytes + unit - 1) / unit * unit);
    }
  });
  EXPECT_TRUE(ok);
}

// The table of docs/format.md. Names average 32 bytes, so that a name block holds about 480.
struct Case {
  const char* what;
  std::uint64_t samples, mean_bytes, longest_bytes, data_bytes;
  unsigned fingerprint_bits;
  double bytes_per_sample;
};

IndexHeader plan(const Case& c) {
  IndexFacts facts;
  facts.sample_count = c.samples;
  facts.data_bytes = c.data_bytes;
  const bool large = c.longest_bytes > facts.chunk_bytes;
  facts.address_bits_used = c.data_bytes - (large ? facts.chunk_bytes : 8);
  (large ? facts.longest_large_bytes : facts.longest_ordinary_bytes) = c.longest_bytes;
  facts.names = true;
  facts.name_block_count = c.samples / 480 + 1;
  return plan_index(facts);
}

TEST(PlanIndex, keeps_the_documented_bytes_per_sample) {
  constexpr std::uint64_t kGiB = 1ull << 30, kTiB = 1ull << 40;
  const Case cases[] = {
      {"60k x 921 B", 60'000, 921, 2'800, 57ull << 20, 16, 10.60},
      {"10M x 921 B", 10'000'000, 921, 4'096, 9 * kGiB, 16, 13.68},
      {"10M x 110 KB", 10'000'000, 110'000, 262'144, 1'250 * kGiB, 16, 15.30},
      {"10M x 3 MB", 10'000'000, 3'000'000, 12'000'000, 29 * kTiB, 16, 13.18},
      {"2^32 x 4 KB", 1ull << 32, 4'096, 8'192, 17 * kTiB, 5, 15.91},
      {"2^32 on 64 TiB", 1ull << 32, 16'000, 65'536, 64 * kTiB, 1, 15.91},
  };
  for (const Case& c : cases) {
    const IndexHeader header = plan(c);
    const double bytes = static_cast<double>(header.resident_bytes_bound()) / static_cast<double>(c.samples);
    EXPECT_EQ(header.fingerprint_bits, c.fingerprint_bits) << c.what;
    EXPECT_NEAR(bytes, c.bytes_per_sample, 0.01) << c.what;
    EXPECT_LE(bytes, 16.0) << c.what;
  }
}

TEST(PlanIndex, stays_within_sixteen_bytes_at_the_limits_with_default_chunks) {
  for (const std::uint64_t longest_large : {0ull, 1ull << 20, 64ull << 30}) {
    IndexFacts facts;
    facts.sample_count = kMaxSamples;
    facts.data_bytes = kMaxDeviceBytes - (1 << 20);
    facts.address_bits_used = facts.data_bytes - 8;
    facts.longest_ordinary_bytes = kDefaultChunkBytes;
    facts.longest_large_bytes = longest_large;
    facts.names = true;
    facts.name_block_count = kMaxSamples / 480;
    EXPECT_LE(plan_index(facts).resident_bytes_bound(), 16 * kMaxSamples) << longest_large;
  }
}

IndexHeader small_header() {
  IndexFacts facts;
  facts.sample_count = 300;
  facts.unit_count = 9;
  facts.data_bytes = 9 * kDefaultChunkBytes;
  facts.address_bits_used = 8 * kDefaultChunkBytes + 1016;
  facts.longest_ordinary_bytes = 5000;
  facts.longest_large_bytes = 300'000;
  facts.names = true;
  facts.name_block_count = 2;
  IndexHeader header = plan_index(facts);
  header.section_crcs = {1, 2, 3, 4, 5, 6};
  return header;
}

TEST(IndexHeader, comes_back) {
  const IndexHeader header = small_header();
  const auto decoded = decode_index_header(encode(header), header.index_bytes());
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, header);
}

TEST(IndexHeader, every_truncation_and_every_flipped_bit_is_found) {
  const IndexHeader header = small_header();
  auto bytes = encode(header);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    ASSERT_FALSE(decode_index_header(std::span(bytes).first(length), header.index_bytes()).ok());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1u << bit % 8);
    ASSERT_FALSE(decode_index_header(bytes, header.index_bytes()).ok()) << bit;
    bytes[bit / 8] ^= std::byte(1u << bit % 8);
  }
}

TEST(IndexHeader, impossible_values_under_a_right_sum_are_refused) {
  const auto refused = [](auto change) {
    IndexHeader header = small_header();
    change(header);
    return !decode_index_header(encode(header), small_header().index_bytes()).ok();
  };
  EXPECT_FALSE(refused([](IndexHeader&) {}));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.sample_count = kMaxSamples + 1; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.sample_count = kMaxSamples; }));  // the index is too short for it
  EXPECT_TRUE(refused([](IndexHeader& h) { h.sample_count = ~0ull; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.unit_count = 301; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.name_block_count = ~0ull; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.align_shift = 2; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.align_shift = 19; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.large_shift = 19; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.address_bits = 47; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.length_bits = 0; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.id_bits = 10; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.fingerprint_bits = 17; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.bucket_bits = 63; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.bucket_start_bits = 8; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.ordinary_codes = kDefaultChunkBytes; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.chunk_bytes = 12345; }));
  EXPECT_TRUE(refused([](IndexHeader& h) { h.names = false; }));
}

}  // namespace
}  // namespace dlfs::layout
