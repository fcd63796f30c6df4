#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "order/order.h"
#include "unit_placement.h"

namespace dlfs::order {
namespace {

using testing::draw_all;
using testing::place;
using testing::Share;

// Everything that a property draws at random: parameters that are valid for every number of ranks in `rank_counts`.
struct Case {
  Parameters parameters;
  std::vector<std::uint64_t> sizes;
  std::shared_ptr<const Placement> placement;
  std::uint64_t samples = 0;
  std::vector<std::uint32_t> rank_counts;

  std::shared_ptr<const Epoch> epoch(std::uint32_t rank, std::uint32_t ranks, std::uint64_t number = 0) const {
    Parameters p = parameters;
    p.rank = rank;
    p.ranks = ranks;
    p.epoch += number;
    auto made = Epoch::create(p, samples, placement);
    RC_ASSERT(made.ok());
    return *made;
  }
};

bool divides(std::uint32_t ranks, const Case& c) {
  if (c.parameters.batch % ranks != 0) return false;
  if (c.parameters.mode == Mode::kChunk && c.parameters.lanes % ranks != 0) return false;
  return c.parameters.tail != Tail::kShort || c.samples >= ranks;
}

Case random_case() {
  Case c;
  Parameters& p = c.parameters;
  p.mode = static_cast<Mode>(*rc::gen::weightedElement<int>({{1, 0}, {2, 1}, {5, 2}}));
  p.tail = static_cast<Tail>(*rc::gen::inRange(0, 3));
  p.seed = *rc::gen::arbitrary<std::uint64_t>();
  p.epoch = *rc::gen::inRange<std::uint64_t>(0, 1000);
  p.batch = *rc::gen::element<std::uint32_t>(1, 2, 3, 4, 6, 8, 12, 24, 30, 60, 64);
  p.lanes = *rc::gen::element<std::uint32_t>(1, 2, 3, 6, 12, 24, 60, 240);
  p.window = *rc::gen::element<std::uint32_t>(1, 2, 3, 4, 8, 100, std::numeric_limits<std::uint32_t>::max());
  const int largest = *rc::gen::element(1, 2, 5, 20, 300);
  const int units = *rc::gen::inRange(1, 150);  // so that checkpoints matter
  for (int u = 0; u < units; ++u) c.sizes.push_back(*rc::gen::inRange<std::uint64_t>(1, largest + 1));
  if (*rc::gen::inRange(0, 4) == 0) c.sizes[c.sizes.size() / 2] = 0;  // a unit without samples changes nothing
  if (std::accumulate(c.sizes.begin(), c.sizes.end(), std::uint64_t{0}) == 0) c.sizes.front() = 1;
  c.placement = place(c.sizes);
  c.samples = c.placement->sample_count();
  if (p.tail == Tail::kDrop && c.samples < p.batch) p.batch = 1;
  for (std::uint32_t ranks = 1; ranks <= p.batch; ++ranks) {
    if (divides(ranks, c)) c.rank_counts.push_back(ranks);
  }
  return c;
}

std::vector<std::vector<Share>> draw_ranks(const Case& c, std::uint32_t ranks) {
  std::vector<std::vector<Share>> drawn;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) drawn.push_back(draw_all(c.epoch(rank, ranks)));
  return drawn;
}

// The global order: position p of batch g is draw p / R of rank p % R.
std::vector<std::uint64_t> interleave(const std::vector<std::vector<Share>>& ranks) {
  std::vector<std::uint64_t> order;
  for (std::size_t g = 0; g < ranks[0].size(); ++g) {
    std::size_t batch_size = 0;
    for (const auto& rank : ranks) batch_size += rank.at(g).size();
    for (std::size_t i = 0; i < batch_size; ++i) order.push_back(ranks[i % ranks.size()][g].at(i / ranks.size()).index);
  }
  return order;
}

bool same(const Draw& a, const Draw& b) {
  return a.index == b.index && a.piece_begin == b.piece_begin && a.piece_end == b.piece_end && a.unit == b.unit;
}

bool same(const std::vector<Share>& a, const std::vector<Share>& b) {
  return std::ranges::equal(a, b, [](const Share& x, const Share& y) {
    return std::ranges::equal(x, y, [](const Draw& p, const Draw& q) { return same(p, q); });
  });
}

void property(const char* name, const std::function<void()>& body) { EXPECT_TRUE(rc::check(name, body)); }

TEST(Epoch, draws_every_sample_once_and_repeats_the_beginning_as_padding) {
  property("a permutation", [] {
    const Case c = random_case();
    auto order = interleave(draw_ranks(c, 1));
    const std::uint64_t rest = c.samples % c.parameters.batch;
    if (c.parameters.tail == Tail::kPad && rest != 0) {
      RC_ASSERT(order.size() == c.samples + c.parameters.batch - rest);
      for (std::size_t i = c.samples; i < order.size(); ++i) RC_ASSERT(order[i] == order[i - c.samples]);
      order.resize(c.samples);
    }
    RC_ASSERT(order.size() == c.samples - (c.parameters.tail == Tail::kDrop ? rest : 0));
    RC_ASSERT(*std::ranges::max_element(order) < c.samples);
    std::ranges::sort(order);
    RC_ASSERT(std::ranges::adjacent_find(order) == order.end());
  });
}

TEST(Epoch, gives_the_same_global_order_for_every_number_of_ranks) {
  property("rank counts", [] {
    const Case c = random_case();
    const auto alone = interleave(draw_ranks(c, 1));
    const auto ranks = *rc::gen::elementOf(c.rank_counts);
    RC_ASSERT(interleave(draw_ranks(c, ranks)) == alone);
  });
}

TEST(Epoch, gives_ranks_equal_shares) {
  property("shares", [] {
    const Case c = random_case();
    const auto ranks = *rc::gen::elementOf(c.rank_counts);
    const auto drawn = draw_ranks(c, ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto epoch = c.epoch(rank, ranks);
      RC_ASSERT(drawn[rank].size() == epoch->batches());
      RC_ASSERT(drawn[rank].size() == drawn[0].size());
      std::size_t total = 0;
      for (std::size_t g = 0; g < drawn[rank].size(); ++g) {
        const std::size_t size = drawn[rank][g].size();
        total += size;
        RC_ASSERT(size == epoch->share_size(g));
        RC_ASSERT(drawn[0][g].size() >= size && drawn[0][g].size() - size <= 1);
        const bool last_short = c.parameters.tail == Tail::kShort && g + 1 == epoch->batches();
        if (!last_short) RC_ASSERT(size == c.parameters.batch / ranks);
      }
      RC_ASSERT(total > 0u);
      RC_ASSERT(epoch->share_size(epoch->batches()) == 0u);
    }
  });
}

TEST(Epoch, counts_its_padding) {
  property("padding", [] {
    Case c = random_case();
    c.parameters.tail = Tail::kPad;
    const auto ranks = *rc::gen::elementOf(c.rank_counts);
    std::uint64_t repeats = 0, drawn = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto epoch = c.epoch(rank, ranks);
      for (std::uint64_t g = 0; g < epoch->batches(); ++g) {
        repeats += epoch->padding(g);
        drawn += epoch->share_size(g);
      }
    }
    RC_ASSERT(drawn - repeats == c.samples);
    RC_ASSERT(drawn % c.parameters.batch == 0u);
  });
}

TEST(Epoch, pieces_partition_the_units_and_no_record_is_in_the_pieces_of_two_ranks) {
  property("pieces", [] {
    Case c = random_case();
    c.parameters.mode = Mode::kChunk;
    c.parameters.tail = Tail::kShort;
    c.parameters.lanes = c.rank_counts.back() * *rc::gen::element(1u, 2u, 5u, 40u);
    const auto ranks = c.rank_counts.back();
    RC_PRE(c.samples >= ranks);
    std::map<std::uint64_t, std::uint64_t> pieces;  // begin -> end
    std::map<std::uint64_t, std::uint32_t> owner;
    std::uint64_t draws_in_pieces = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      for (const Share& share : draw_all(c.epoch(rank, ranks))) {
        for (const Draw& draw : share) {
          RC_ASSERT(draw.piece_begin <= draw.index && draw.index < draw.piece_end);
          RC_ASSERT(draw.unit < c.sizes.size());
          RC_ASSERT(c.placement->first_slot(draw.unit) <= draw.piece_begin);
          RC_ASSERT(draw.piece_end <= c.placement->first_slot(draw.unit + 1));
          const auto [at, fresh] = pieces.emplace(draw.piece_begin, draw.piece_end);
          RC_ASSERT(at->second == draw.piece_end);
          const auto [who, first_time] = owner.emplace(draw.piece_begin, rank);
          RC_ASSERT(who->second == rank);
          ++draws_in_pieces;
        }
      }
    }
    RC_ASSERT(draws_in_pieces == c.samples);
    std::uint64_t expected = 0;  // the pieces tile the slots without gap or overlap
    for (const auto& [begin, end] : pieces) {
      RC_ASSERT(begin == expected);
      expected = end;
    }
    RC_ASSERT(expected == c.samples);
  });
}

TEST(Cursor, seek_equals_skipping) {
  property("seek", [] {
    const Case c = random_case();
    const auto ranks = *rc::gen::elementOf(c.rank_counts);
    const auto epoch = c.epoch(*rc::gen::inRange(0u, ranks), ranks);
    const auto all = draw_all(epoch);
    Cursor cursor(epoch);
    Share share;
    for (int hop = 0; hop < 5; ++hop) {  // forwards and backwards on one cursor, some batches after each seek
      const auto to = *rc::gen::inRange<std::uint64_t>(0, epoch->batches() + 1);
      cursor.seek(to);
      RC_ASSERT(cursor.batch() == to);
      for (std::uint64_t g = to; g < std::min<std::uint64_t>(to + 3, all.size()); ++g) {
        RC_ASSERT(cursor.next(share));
        RC_ASSERT(same({share}, {all[g]}));
      }
    }
    cursor.seek(epoch->batches());
    RC_ASSERT(!cursor.next(share));
    RC_ASSERT(share.empty());
  });
}

TEST(Cursor, resumed_from_saved_positions_equals_uninterrupted_over_epochs_and_rank_counts) {
  property("resume", [] {
    const Case c = random_case();
    std::vector<std::uint64_t> whole, pieced;
    for (std::uint64_t e = 0; e < 3; ++e) {
      for (const Share& share : draw_all(c.epoch(0, 1, e))) {
        for (const Draw& draw : share) whole.push_back(draw.index);
      }
    }
    Position at{.volume = 7, .parameters = c.parameters, .next_batch = 0};
    while (at.parameters.epoch < c.parameters.epoch + 3) {
      const auto decoded = decode_position(encode(at));
      RC_ASSERT(decoded.ok());
      Case now = c;
      now.parameters = decoded->parameters;
      const auto ranks = *rc::gen::elementOf(c.rank_counts);  // another job size after every interruption
      std::vector<std::vector<Share>> drawn(ranks);
      const auto stop = at.next_batch + *rc::gen::inRange<std::uint64_t>(1, 20);
      std::uint64_t batches = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto epoch = now.epoch(rank, ranks);
        batches = epoch->batches();
        Cursor cursor(epoch);
        cursor.seek(decoded->next_batch);
        for (Share share; cursor.batch() < stop && cursor.next(share);) drawn[rank].push_back(share);
      }
      const auto order = interleave(drawn);
      pieced.insert(pieced.end(), order.begin(), order.end());
      at.next_batch = std::min(stop, batches);
      if (at.next_batch == batches) {
        at.next_batch = 0;
        ++at.parameters.epoch;
      }
    }
    RC_ASSERT(pieced == whole);
  });
}

TEST(Cursor, seeks_among_many_units_and_large_samples) {
  std::vector<std::uint64_t> sizes;  // every fifth unit is one large sample
  for (std::uint64_t u = 0; u < 20000; ++u) sizes.push_back(u % 5 == 0 ? 1 : u % 7);
  const auto placement = place(sizes);
  const auto epoch = *Epoch::create({.seed = 9, .batch = 120, .rank = 3, .ranks = 12, .window = 3}, 0, placement);
  const auto all = draw_all(epoch);
  Cursor cursor(epoch);
  Share share;
  for (std::uint64_t g = all.size(); g-- > 0;) {  // backwards, so that every batch is a seek
    cursor.seek(g);
    ASSERT_TRUE(cursor.next(share));
    ASSERT_TRUE(same({share}, {all[g]})) << g;
  }
}

TEST(Cursor, may_be_moved_in_the_middle_of_an_epoch) {
  const auto epoch = *Epoch::create({.batch = 4, .lanes = 4, .window = 2}, 0, place({5, 6, 7, 8}));
  const auto all = draw_all(epoch);
  Cursor first(epoch);
  Share share;
  ASSERT_TRUE(first.next(share));
  Cursor second(std::move(first));
  ASSERT_TRUE(second.next(share));
  EXPECT_TRUE(same({share}, {all[1]}));
}

TEST(NextUse, is_a_tight_lower_bound_of_the_first_draw) {
  property("next use", [] {
    const Case c = random_case();
    const auto ranks = *rc::gen::elementOf(c.rank_counts);
    const auto rank = *rc::gen::inRange(0u, ranks);
    const auto epoch = c.epoch(rank, ranks);
    const bool chunk = c.parameters.mode == Mode::kChunk;
    std::map<std::uint64_t, std::uint64_t> first;  // unit (or sample) -> the position of its first draw
    const auto note = [&](std::uint64_t from_rank) {
      const auto shares = draw_all(c.epoch(from_rank, ranks));
      for (std::uint64_t g = 0; g < shares.size(); ++g) {
        for (std::uint64_t i = 0; i < shares[g].size(); ++i) {
          const std::uint64_t position = g * c.parameters.batch + i * ranks + from_rank;
          if (position < c.samples) first.emplace(chunk ? shares[g][i].unit : shares[g][i].index, position);
        }
      }
    };
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (!chunk || r == rank) note(r);
    }
    const std::uint64_t things = chunk ? c.sizes.size() : c.samples;
    const std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
    for (std::uint64_t thing = 0; thing < things; ++thing) {
      const std::uint64_t hint = next_use(*epoch, thing);
      const auto at = first.find(thing);
      if (!chunk || c.parameters.tail != Tail::kDrop) RC_ASSERT((hint == never) == (at == first.end()));
      if (at == first.end()) continue;
      RC_ASSERT(hint <= at->second);
      if (!chunk) RC_ASSERT(hint == at->second);
      if (chunk) RC_ASSERT(hint % ranks == rank);
    }
    RC_ASSERT(next_use(*epoch, things) == never);
  });
}

TEST(NextUse, is_where_the_window_of_the_unit_begins) {
  const Parameters p{.batch = 8, .lanes = 8, .window = 4};
  const auto epoch = *Epoch::create(p, 0, place(std::vector<std::uint64_t>(200, 10)));
  std::map<std::uint64_t, std::uint64_t> first;
  std::uint64_t position = 0;
  for (const Share& share : draw_all(epoch)) {
    for (const Draw& draw : share) first.emplace(draw.unit, position++);
  }
  for (std::uint64_t unit = 0; unit < 200; ++unit) {
    EXPECT_LE(next_use(*epoch, unit), first.at(unit));
    EXPECT_LT(first.at(unit) - next_use(*epoch, unit), 8u * 4 * 10);  // within the window
  }
}

TEST(Lanes, position_p_belongs_to_lane_p_mod_l) {
  // With one unit a lane and sizes that fit exactly, the unit of a draw tells its lane.
  const Parameters p{.batch = 5, .lanes = 5, .window = 1};
  const auto epoch = *Epoch::create(p, 0, place(std::vector<std::uint64_t>(5, 7)));
  const auto all = draw_all(epoch);
  ASSERT_EQ(all.size(), 7u);
  for (const Share& share : all) {
    for (std::size_t lane = 0; lane < 5; ++lane) EXPECT_EQ(share[lane].unit, all[0][lane].unit);
  }
}

TEST(Lanes, serve_fewer_units_than_lanes_and_a_single_sample) {
  for (const auto& sizes : std::vector<std::vector<std::uint64_t>>{{1}, {3}, {1, 1}, {1000}, {5, 1000, 1}}) {
    const auto epoch = *Epoch::create({.batch = 4, .lanes = 240, .window = 3}, 0, place(sizes));
    std::set<std::uint64_t> seen;
    for (const Share& share : draw_all(epoch)) {
      for (const Draw& draw : share) EXPECT_TRUE(seen.insert(draw.index).second);
    }
    EXPECT_EQ(seen.size(), epoch->samples());
  }
}

TEST(Lanes, that_share_a_unit_are_not_neighbours_in_the_batch) {
  // 100 units for 240 lanes: each unit is cut among two or three lanes. By chance neighbours share a unit in 1 of 100
  // cases.
  const auto epoch = *Epoch::create({.batch = 24000}, 0, place(std::vector<std::uint64_t>(100, 240)));
  const auto all = draw_all(epoch);
  std::size_t shared = 0;
  for (std::size_t i = 1; i < all.at(0).size(); ++i) shared += all[0][i].unit == all[0][i - 1].unit ? 1 : 0;
  EXPECT_LT(shared, 24000u / 25);
}

TEST(Windows, of_one_ranks_lanes_end_at_different_times) {
  // 16 lanes of 64 equal units each, windows of 8: count how many windows begin in each stretch of one unit.
  const Parameters p{.batch = 16, .ranks = 8, .lanes = 128, .window = 8};
  const auto epoch = *Epoch::create(p, 0, place(std::vector<std::uint64_t>(128 * 64, 10)));
  std::map<std::uint64_t, int> starts;
  for (std::uint64_t unit = 0; unit < 128 * 64; ++unit) {
    const auto hint = next_use(*epoch, unit);
    if (hint != std::numeric_limits<std::uint64_t>::max()) ++starts[hint / 128];  // the step
  }
  for (const auto& [step, units] : starts) {
    if (step == 0) continue;
    EXPECT_LE(units, 4 * 8) << step;  // at most 4 of the rank's 16 lanes open a window at the same step
  }
}

TEST(Epoch, of_another_seed_or_number_differs) {
  const auto place_units = place(std::vector<std::uint64_t>(40, 25));
  std::set<std::vector<std::uint64_t>> orders;
  for (const Mode mode : {Mode::kFull, Mode::kChunk}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      for (std::uint64_t e = 0; e < 4; ++e) {
        const auto epoch = *Epoch::create({.mode = mode, .seed = seed, .epoch = e, .batch = 1000}, 1000, place_units);
        std::vector<std::uint64_t> order;
        for (const Share& share : draw_all(epoch)) {
          for (const Draw& draw : share) order.push_back(draw.index);
        }
        EXPECT_TRUE(orders.insert(order).second);
      }
    }
  }
  EXPECT_EQ(orders.size(), 32u);
}

TEST(Epoch, full_at_the_limit_needs_no_memory_for_its_samples) {
  const std::uint64_t n = std::uint64_t{1} << 32;
  const auto epoch = *Epoch::create({.mode = Mode::kFull, .batch = 1024, .ranks = 4}, n, nullptr);
  EXPECT_EQ(epoch->batches(), n / 1024);
  Cursor cursor(epoch);
  cursor.seek(epoch->batches() - 1);
  Share share;
  ASSERT_TRUE(cursor.next(share));
  ASSERT_EQ(share.size(), 256u);
  for (std::size_t i = 0; i < share.size(); ++i) {
    EXPECT_EQ(next_use(*epoch, share[i].index), n - 1024 + i * 4);
  }
  EXPECT_FALSE(cursor.next(share));
}

}  // namespace
}  // namespace dlfs::order
