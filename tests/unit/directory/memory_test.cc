// The builder's promise of 40 bytes a sample at its peak, measured by counting every allocation of this program.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "base/mix.h"
#include "directory/directory.h"

namespace {

std::atomic<std::size_t> in_use{0}, peak{0};

void* counted(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  const std::size_t now = in_use += malloc_usable_size(memory);
  for (std::size_t seen = peak; seen < now && !peak.compare_exchange_weak(seen, now);) {
  }
  return memory;
}

void uncounted(void* memory) noexcept {
  if (memory != nullptr) in_use -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { uncounted(memory); }
void operator delete[](void* memory) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncounted(memory); }
void operator delete[](void* memory, std::size_t) noexcept { uncounted(memory); }

namespace dlfs::directory {
namespace {

TEST(Builder, needs_at_most_forty_bytes_a_sample_at_its_peak) {
  constexpr std::uint32_t kSamples = 1u << 20;
  constexpr std::uint64_t kStride = 32u << 20;  // far apart: wide addresses make a large index
  const std::size_t before = in_use;
  peak = before;
  base::Prng prng(1);
  Builder builder(layout::kDefaultChunkBytes, true);
  for (std::uint32_t i = 0; i < kSamples; ++i) {
    const std::uint32_t id = i ^ 0x55555;  // in an order of its own
    builder.add(SampleId{id}, {i * kStride + 8 * prng.below(60), 8 + prng.below(65'000), false}, prng.next());
  }
  for (std::uint32_t id = 0; id < kSamples; id += 400) builder.add_name_block(SampleId{id});
  layout::Superblock superblock;
  superblock.data.length_bytes = kSamples * kStride;
  const auto index = builder.finish(superblock);
  ASSERT_TRUE(index.ok());
  EXPECT_GT(index->size(), 14u * kSamples);
  EXPECT_GT(peak - before, index->size());  // it does count
  EXPECT_LE(static_cast<double>(peak - before) / kSamples, 40.0);
  std::printf("peak %.2f bytes a sample\n", static_cast<double>(peak - before) / kSamples);
}

}  // namespace
}  // namespace dlfs::directory
