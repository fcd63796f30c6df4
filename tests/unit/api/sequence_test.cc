#include <algorithm>
#include <map>

#include "api_support.h"

namespace dlfs {
namespace {

using api_test::must;

constexpr std::uint32_t kSamples = 500;
using Ids = std::vector<std::uint32_t>;

class ApiSequence : public ::testing::TestWithParam<Mode> {
 protected:
  SequenceOptions options(std::uint32_t batch = 64) const {
    SequenceOptions o;
    o.mode = GetParam();
    o.seed = 42;
    o.batch = batch;
    o.window = 2;
    o.cache_bytes = 16u << 20;
    return o;
  }
  api_test::PackedVolume packed_{kSamples};
  Volume volume_ = packed_.mount();
};

// The ids of the batches that are left, each sample checked against what was packed.
std::vector<Ids> drain(Sequence& sequence, std::size_t most = ~std::size_t{0}) {
  std::vector<Ids> out;
  while (out.size() < most) {
    auto batch = must(sequence.next());
    if (!batch) break;
    for (std::size_t i = 0; i < batch->size(); ++i) EXPECT_TRUE(api_test::sample_is_right(*batch, i));
    out.emplace_back(batch->ids().begin(), batch->ids().end());
  }
  return out;
}

Ids flat_sorted(const std::vector<Ids>& batches) {
  Ids all;
  for (const Ids& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  std::ranges::sort(all);
  return all;
}

Ids every_id() {
  Ids all(kSamples);
  for (std::uint32_t i = 0; i < kSamples; ++i) all[i] = i;
  return all;
}

std::vector<Ids> order_of(const Volume& volume, const SequenceOptions& options) {
  std::vector<Ids> out;
  must(volume.order(options, [&](std::uint64_t batch, std::span<const std::uint32_t> ids) {
    EXPECT_EQ(batch, options.start_batch + out.size());
    out.emplace_back(ids.begin(), ids.end());
    return true;
  }));
  return out;
}

TEST_P(ApiSequence, an_epoch_holds_every_sample_once_in_the_order_foretold) {
  Sequence sequence = must(volume_.sequence(options()));
  EXPECT_EQ(sequence.batches_per_epoch(), 8u);
  EXPECT_EQ(sequence.batch(), 64u);
  const auto batches = drain(sequence);
  EXPECT_EQ(batches, order_of(volume_, options()));
  EXPECT_EQ(flat_sorted(batches), every_id());
  EXPECT_EQ(std::ranges::is_sorted(batches[3]), GetParam() == Mode::kSequential);
  EXPECT_FALSE(must(sequence.next()).has_value());
  const SequenceStatistics statistics = sequence.statistics();
  EXPECT_EQ(statistics.samples, kSamples);
  EXPECT_EQ(statistics.batches, 8u);
  EXPECT_EQ(statistics.payload_bytes, volume_.info().payload_bytes);
  EXPECT_GE(statistics.amplification, 1.0);
}

TEST_P(ApiSequence, epochs_follow_each_other_and_differ) {
  SequenceOptions o = options();
  o.epochs = 3;
  Sequence sequence = must(volume_.sequence(o));
  std::map<std::uint64_t, std::vector<Ids>> epochs;
  std::uint64_t number = 0;
  while (auto batch = must(sequence.next())) {
    EXPECT_EQ(batch->number(), number++ % 8);
    epochs[batch->epoch()].emplace_back(batch->ids().begin(), batch->ids().end());
  }
  ASSERT_EQ(epochs.size(), 3u);
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    o.epoch = epoch;
    EXPECT_EQ(epochs[epoch], order_of(volume_, o));
    EXPECT_EQ(flat_sorted(epochs[epoch]), every_id());
  }
  EXPECT_EQ(epochs[0] == epochs[1], GetParam() == Mode::kSequential);
}

TEST_P(ApiSequence, ranks_share_each_batch_that_one_rank_would_draw) {
  const auto whole = order_of(volume_, options());
  std::vector<Ids> together(whole.size());
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    SequenceOptions o = options();
    o.rank = rank;
    o.ranks = 4;
    Sequence sequence = must(volume_.sequence(o));
    const auto share = drain(sequence);
    ASSERT_EQ(share.size(), whole.size());
    for (std::size_t g = 0; g < share.size(); ++g)
      together[g].insert(together[g].end(), share[g].begin(), share[g].end());
  }
  for (std::size_t g = 0; g < whole.size(); ++g) {
    EXPECT_EQ(flat_sorted({together[g]}), flat_sorted({whole[g]})) << "batch " << g;
  }
}

TEST_P(ApiSequence, resumed_equals_uninterrupted_over_epochs) {
  SequenceOptions o = options();
  o.epochs = 3;
  Sequence uninterrupted = must(volume_.sequence(o));
  const auto all = drain(uninterrupted);
  for (const std::size_t cut : {0u, 1u, 7u, 8u, 13u, 23u, 24u}) {
    Sequence first = must(volume_.sequence(o));
    auto batches = drain(first, cut);
    const auto state = first.state();
    EXPECT_LE(state.size(), 64u);
    Sequence second = must(volume_.resume(state, o));
    const auto rest = drain(second);
    batches.insert(batches.end(), rest.begin(), rest.end());
    EXPECT_EQ(batches, all) << "cut in front of batch " << cut;
  }
}

TEST_P(ApiSequence, a_state_resumes_on_another_number_of_ranks) {
  Sequence first = must(volume_.sequence(options()));
  auto seen = drain(first, 3);
  const auto state = first.state();
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    SequenceOptions o;  // the order is the state's
    o.rank = rank;
    o.ranks = 2;
    Sequence half = must(volume_.resume(state, o));
    EXPECT_EQ(half.next_batch(), 3u);
    EXPECT_EQ(half.batch(), 64u);
    const auto rest = drain(half);
    EXPECT_EQ(rest.size(), 5u);
    seen.insert(seen.end(), rest.begin(), rest.end());
  }
  EXPECT_EQ(flat_sorted(seen), every_id());
}

TEST_P(ApiSequence, tails_are_dropped_kept_or_padded) {
  SequenceOptions o = options();
  o.tail = Tail::kDrop;
  Sequence dropped = must(volume_.sequence(o));
  EXPECT_EQ(flat_sorted(drain(dropped)).size(), 7u * 64);
  o.tail = Tail::kPad;
  Sequence padded = must(volume_.sequence(o));
  std::size_t samples = 0, padding = 0;
  while (auto batch = must(padded.next())) {
    EXPECT_EQ(batch->size(), 64u);
    samples += batch->size();
    padding += batch->padding();
  }
  EXPECT_EQ(samples, 8u * 64);
  EXPECT_EQ(padding, 8u * 64 - kSamples);
}

TEST_P(ApiSequence, batches_outlive_sequence_and_volume) {
  std::vector<Batch> kept;
  {
    const Volume volume = packed_.mount();
    Sequence sequence = must(volume.sequence(options()));
    for (int i = 0; i < 3; ++i) kept.push_back(std::move(*must(sequence.next())));
  }
  for (const Batch& batch : kept) {
    for (std::size_t i = 0; i < batch.size(); ++i) EXPECT_TRUE(api_test::sample_is_right(batch, i));
  }
}

TEST_P(ApiSequence, start_batch_begins_in_the_middle) {
  SequenceOptions o = options();
  const auto all = order_of(volume_, o);
  o.start_batch = 5;
  Sequence sequence = must(volume_.sequence(o));
  EXPECT_EQ(sequence.next_batch(), 5u);
  EXPECT_EQ(drain(sequence), std::vector<Ids>(all.begin() + 5, all.end()));
  EXPECT_EQ(order_of(volume_, o), std::vector<Ids>(all.begin() + 5, all.end()));
}

INSTANTIATE_TEST_SUITE_P(, ApiSequence, ::testing::Values(Mode::kSequential, Mode::kFull, Mode::kChunk),
                         [](const auto& test) {
                           return test.param == Mode::kSequential ? "sequential"
                                  : test.param == Mode::kFull     ? "full"
                                                                  : "chunk";
                         });

TEST(ApiSequenceErrors, impossible_orders_say_what_would_do) {
  api_test::PackedVolume packed(50);
  const Volume volume = packed.mount();
  EXPECT_EQ(volume.sequence({.batch = 10, .rank = 0, .ranks = 3}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(volume.sequence({.batch = 10, .rank = 2, .ranks = 2}).error().code, Code::kInvalidArgument);
  const auto lanes = volume.sequence({.batch = 14, .rank = 0, .ranks = 7});
  ASSERT_FALSE(lanes.ok());
  EXPECT_TRUE(lanes.error().message.find("238") != std::string::npos ||
              lanes.error().message.find("245") != std::string::npos ||
              lanes.error().message.find("239") != std::string::npos)
      << lanes.error().message;
  EXPECT_EQ(volume.order({.batch = 10, .start_batch = 6}, [](auto, auto) { return true; }).error().code,
            Code::kInvalidArgument);
}

TEST(ApiSequenceErrors, a_bad_sample_is_raised_with_its_id_or_skipped_and_counted) {
  api_test::PackedVolume packed(100);
  packed.flip_byte(2 * 65536 + 100);  // in the first record of chunk 0
  const Volume volume = packed.mount();
  std::uint32_t bad = 0;
  must(volume.verify([&](const Volume::Finding& finding) { bad = finding.id.value(); }));
  SequenceOptions options;
  options.batch = 100;
  Sequence raising = must(volume.sequence(options));
  for (int i = 0; i < 2; ++i) {  // it stays
    const auto raised = raising.next();
    ASSERT_FALSE(raised.ok());
    EXPECT_EQ(raised.error().code, Code::kCorrupt);
    EXPECT_NE(raised.error().message.find("sample " + std::to_string(bad) + " "), std::string::npos)
        << raised.error().message;
  }
  options.on_error = OnError::kSkip;
  Sequence skipping = must(volume.sequence(options));
  const auto batches = drain(skipping);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].size(), 99u);
  EXPECT_EQ(std::ranges::count(batches[0], bad), 0);
  EXPECT_EQ(skipping.statistics().skipped, 1u);
}

TEST(ApiSequenceErrors, a_state_of_another_volume_or_no_state_is_refused) {
  api_test::PackedVolume one(50), other(50);
  const Sequence sequence = must(one.mount().sequence({.batch = 10}));
  auto state = sequence.state();
  const auto foreign = other.mount().resume(state, {});
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().code, Code::kInvalidArgument) << foreign.error().message;
  state[9] ^= std::byte{1};
  EXPECT_FALSE(one.mount().resume(state, {}).ok());
  EXPECT_FALSE(one.mount().resume({}, {}).ok());
}

}  // namespace
}  // namespace dlfs
