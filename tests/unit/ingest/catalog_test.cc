#include "ingest/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/mix.h"

namespace dlfs::ingest {
namespace {

std::string random_name(base::Prng& prng) {
  std::string name(1 + prng.below(prng.below(8) == 0 ? 4000 : 40), '\0');
  for (char& c : name) c = static_cast<char>(1 + prng.below(255));
  return name;
}

// Every run count from one to many, against a sorted map.
TEST(catalog, sorts_bytewise_however_many_runs_it_takes) {
  for (const std::size_t memory_bytes : {std::size_t{64} << 10, std::size_t{200} << 10, std::size_t{32} << 20}) {
    base::Prng prng(memory_bytes);
    auto builder = CatalogBuilder::create("", memory_bytes).value();
    std::map<std::string, SourceFile> expected;
    std::uint64_t total_bytes = 0;
    for (int i = 0; i < 5000; ++i) {
      const SourceFile file{random_name(prng), prng.next() >> 20, static_cast<std::int64_t>(prng.next()),
                            static_cast<std::uint32_t>(prng.below(1000))};
      if (!expected.emplace(file.name, file).second) continue;
      total_bytes += file.size_bytes;
      ASSERT_TRUE(builder.add(file.name, file.size_bytes, file.modified_ns, file.label).ok());
    }
    const Catalog catalog = std::move(builder).finish().value();
    ASSERT_EQ(catalog.count(), expected.size());
    EXPECT_EQ(catalog.total_bytes(), total_bytes);
    std::uint64_t index = 0;
    for (const auto& [name, file] : expected) {
      const SourceFile got = catalog.at(index++).value();
      ASSERT_EQ(got.name, name);
      ASSERT_EQ(got.size_bytes, file.size_bytes);
      ASSERT_EQ(got.modified_ns, file.modified_ns);
      ASSERT_EQ(got.label, file.label);
    }
  }
}

TEST(catalog, keeps_a_name_that_comes_twice_once) {
  auto builder = CatalogBuilder::create("", 64 << 10).value();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3000; ++i) ASSERT_TRUE(builder.add(std::to_string(i), 1, 0, 0).ok());
  }
  EXPECT_EQ(std::move(builder).finish().value().count(), 3000u);
}

TEST(catalog, takes_less_than_a_byte_of_memory_a_file) {
  auto builder = CatalogBuilder::create("", 64 << 10).value();
  constexpr int kFiles = 200'000;
  for (int i = 0; i < kFiles; ++i) ASSERT_TRUE(builder.add("class/" + std::to_string(i) + ".jpg", 921, 0, 0).ok());
  const Catalog catalog = std::move(builder).finish().value();
  EXPECT_EQ(catalog.count(), std::uint64_t{kFiles});
  EXPECT_LE(catalog.memory_bytes(), std::uint64_t{kFiles});
}

TEST(catalog, of_nothing_is_empty) {
  EXPECT_EQ(std::move(CatalogBuilder::create("", 64 << 10).value()).finish().value().count(), 0u);
}

}  // namespace
}  // namespace dlfs::ingest
