#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/crc32c.h"
#include "base/endian.h"
#include "order/order.h"

namespace dlfs::order {
namespace {

Position example() {
  return {
      .volume = 0x1122334455667788u,
      .parameters =
          {.mode = Mode::kChunk, .tail = Tail::kPad, .seed = 1, .epoch = 2, .batch = 256, .lanes = 240, .window = 4},
      .next_batch = 99};
}

TEST(Position, survives_encoding) {
  EXPECT_TRUE(rc::check("position", [] {
    Position p;
    p.volume = *rc::gen::arbitrary<std::uint64_t>();
    p.next_batch = *rc::gen::arbitrary<std::uint64_t>();
    p.parameters.mode = static_cast<Mode>(*rc::gen::inRange(0, 3));
    p.parameters.tail = static_cast<Tail>(*rc::gen::inRange(0, 3));
    p.parameters.seed = *rc::gen::arbitrary<std::uint64_t>();
    p.parameters.epoch = *rc::gen::arbitrary<std::uint64_t>();
    p.parameters.batch = *rc::gen::nonZero<std::uint32_t>();
    p.parameters.lanes = *rc::gen::nonZero<std::uint32_t>();
    p.parameters.window = *rc::gen::nonZero<std::uint32_t>();
    p.parameters.rank = 3;
    p.parameters.ranks = 5;
    const auto back = decode_position(encode(p));
    RC_ASSERT(back.ok());
    RC_ASSERT(back->volume == p.volume);
    RC_ASSERT(back->next_batch == p.next_batch);
    RC_ASSERT(back->parameters.mode == p.parameters.mode);
    RC_ASSERT(back->parameters.tail == p.parameters.tail);
    RC_ASSERT(back->parameters.seed == p.parameters.seed);
    RC_ASSERT(back->parameters.epoch == p.parameters.epoch);
    RC_ASSERT(back->parameters.batch == p.parameters.batch);
    RC_ASSERT(back->parameters.lanes == p.parameters.lanes);
    RC_ASSERT(back->parameters.window == p.parameters.window);
    RC_ASSERT(back->parameters.rank == 0u && back->parameters.ranks == 1u);  // left out: any number of ranks may resume
  }));
}

TEST(Position, notices_every_flipped_bit_and_every_length) {
  const auto good = encode(example());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bad = good;
    bad[bit / 8] ^= std::byte(1u << (bit % 8));
    EXPECT_FALSE(decode_position(bad).ok()) << bit;
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(decode_position(std::span(good).first(size)).error().code, Code::kInvalidArgument);
  }
}

std::array<std::byte, kPositionBytes> changed(std::size_t at, std::uint8_t value) {
  auto bytes = encode(example());
  bytes[at] = std::byte(value);
  base::store_le(bytes.data() + 60, base::crc32c(std::span(bytes).first(60)));
  return bytes;
}

TEST(Position, refuses_other_versions_and_values_that_no_run_has) {
  EXPECT_EQ(decode_position(changed(4, 2)).error().code, Code::kUnsupportedVersion);
  EXPECT_EQ(decode_position(changed(6, 3)).error().code, Code::kCorrupt);   // mode
  EXPECT_EQ(decode_position(changed(7, 3)).error().code, Code::kCorrupt);   // tail
  EXPECT_EQ(decode_position(changed(44, 0)).error().code, Code::kCorrupt);  // lanes
  EXPECT_EQ(decode_position(changed(52, 1)).error().code, Code::kCorrupt);  // a byte that is always zero
  EXPECT_EQ(decode_position(changed(0, 'X')).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace dlfs::order
