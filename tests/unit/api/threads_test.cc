#include <atomic>
#include <thread>

#include "api_support.h"

namespace dlfs {
namespace {

using api_test::must;

TEST(ApiThreads, many_read_by_name_and_by_list_while_one_draws) {
  constexpr std::uint32_t kSamples = 200;
  api_test::PackedVolume packed(kSamples);
  const Volume volume = packed.mount();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t n = 0; n < 60; ++n) {
        const std::uint32_t id = (n * 37 + t * 51) % kSamples;
        const auto file = volume.open(api_test::name_of(id));
        if (!file.ok()) {
          ++wrong;
          continue;
        }
        std::vector<std::byte> got(file->size());
        const auto read = file->read(got, 0);
        if (!read.ok() || *read != got.size() || got != api_test::image_of(id)) ++wrong;
        const std::uint32_t ids[] = {id, (id + 1) % kSamples};
        const auto batch = volume.read(ids);
        if (!batch.ok() || !api_test::sample_is_right(*batch, 0) || !api_test::sample_is_right(*batch, 1)) ++wrong;
      }
    });
  }
  Sequence sequence = must(volume.sequence({.seed = 3, .epochs = 2, .batch = 32}));
  std::vector<std::thread> releasers;
  std::size_t samples = 0;
  while (auto batch = must(sequence.next())) {
    samples += batch->size();
    releasers.emplace_back([kept = std::move(*batch)] {});  // destroyed on another thread
  }
  for (auto& thread : threads) thread.join();
  for (auto& thread : releasers) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(samples, 2u * kSamples);
}

}  // namespace
}  // namespace dlfs
