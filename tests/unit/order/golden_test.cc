// Against tests/golden/order_vectors.txt, which an independent program computed from docs/shuffling.md.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "order/keys.h"
#include "order/order.h"
#include "unit_placement.h"

namespace dlfs::order {
namespace {

std::vector<std::string> lines() {
  std::ifstream file(DLFS_GOLDEN_DIR "/order_vectors.txt");
  std::vector<std::string> all;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) all.push_back(line);
  }
  return all;
}

std::vector<std::uint64_t> numbers(std::istringstream& in) {
  std::vector<std::uint64_t> all;
  for (std::string word; in >> word && word != ":";) all.push_back(std::stoull(word));
  return all;
}

TEST(Golden, keys) {
  int seen = 0;
  for (const auto& line : lines()) {
    if (!line.starts_with("key ")) continue;
    std::istringstream in(line.substr(4));
    const auto words = numbers(in), key = numbers(in);
    EXPECT_EQ(derive_key(words.at(0), words.at(1), static_cast<Purpose>(words.at(2)), words.at(3), words.at(4)),
              key.at(0))
        << line;
    ++seen;
  }
  EXPECT_GE(seen, 7);
}

TEST(Golden, permutations) {
  int seen = 0;
  for (const auto& line : lines()) {
    if (!line.starts_with("permutation ")) continue;
    std::istringstream in(line.substr(12));
    const auto words = numbers(in), expected = numbers(in);
    const Permutation permutation(words.at(0), words.at(1));
    std::vector<std::uint64_t> got(expected.size());
    permutation.map(words.at(2), words.at(3), got);
    EXPECT_EQ(got, expected) << line;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(permutation.inverse(expected[i]), words[2] + i * words[3]);
    }
    ++seen;
  }
  EXPECT_GE(seen, 60);
}

std::shared_ptr<const Epoch> parse_epoch(std::istringstream& in) {
  std::string mode, tail, word;
  Parameters p;
  in >> mode >> tail >> p.seed >> p.epoch >> p.batch >> p.rank >> p.ranks >> p.lanes >> p.window >> word;
  p.mode = mode == "sequential" ? Mode::kSequential : mode == "full" ? Mode::kFull : Mode::kChunk;
  p.tail = tail == "drop" ? Tail::kDrop : tail == "short" ? Tail::kShort : Tail::kPad;
  const auto placement = testing::place(numbers(in));
  return *Epoch::create(p, placement->sample_count(), placement);
}

std::string print(const std::vector<Draw>& share, bool pieces) {
  std::ostringstream out;
  out << "batch ";
  for (std::size_t i = 0; i < share.size(); ++i) {
    out << (i > 0 ? " " : "") << share[i].index;
    if (pieces) out << '/' << share[i].piece_begin << '-' << share[i].piece_end << '@' << share[i].unit;
  }
  return out.str();
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    for (const int shift : {4, 0}) text += "0123456789abcdef"[(std::to_integer<int>(byte) >> shift) & 15];
  }
  return text;
}

TEST(Golden, epochs_and_positions) {
  std::shared_ptr<const Epoch> epoch;
  std::vector<std::vector<Draw>> batches;
  std::size_t seen = 0, next = 0;
  for (const auto& line : lines()) {
    if (line.starts_with("epoch ")) {
      EXPECT_EQ(next, batches.size());
      std::istringstream in(line.substr(6));
      epoch = parse_epoch(in);
      batches = testing::draw_all(epoch);
      next = 0;
      ++seen;
    } else if (line.starts_with("batch")) {
      ASSERT_LT(next, batches.size());
      EXPECT_EQ(print(batches[next++], epoch->parameters().mode == Mode::kChunk), line);
    } else if (line.starts_with("position ")) {
      std::istringstream in(line.substr(9));
      const auto words = numbers(in);
      std::string expected;
      in >> expected;
      const Position position{.volume = words.at(0), .parameters = epoch->parameters(), .next_batch = words.at(1)};
      EXPECT_EQ(hexadecimal(encode(position)), expected);
    }
  }
  EXPECT_EQ(next, batches.size());
  EXPECT_GE(seen, 30u);
}

}  // namespace
}  // namespace dlfs::order
