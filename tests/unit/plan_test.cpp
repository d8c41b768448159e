// The plan's format on small layouts whose walks, masks, queues and owners are known.
#include "kpage/plan.h"

#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plan/format.h"
#include "plan/views.h"

namespace kpage {
namespace {

using namespace plan;

// One head; both sides have the same blocks; lists as given.
Layout make_layout(std::vector<std::int32_t> sizes, std::vector<std::vector<std::int32_t>> lists,
                   std::vector<std::int32_t> offsets = {}) {
  Layout layout;
  layout.q_blocks = layout.kv_blocks = static_cast<std::int32_t>(sizes.size());
  layout.q_sizes = std::move(sizes);
  layout.q_offsets = std::move(offsets);
  std::size_t longest = 0;
  for (const auto& list : lists) {
    longest = std::max(longest, list.size());
  }
  layout.max_list = static_cast<std::int32_t>(longest);
  for (const auto& list : lists) {
    layout.q2k_block_nums.push_back(static_cast<std::int32_t>(list.size()));
    for (std::size_t i = 0; i < longest; ++i) {
      layout.q2k_block_index.push_back(i < list.size() ? list[i] : -1);
    }
  }
  return layout;
}

Plan build(const Layout& layout) {
  Result<Plan> plan = Plan::build(layout.view());
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(plan.value().build_backward().ok());
  const Status valid = plan.value().validate();
  EXPECT_TRUE(valid.ok()) << valid.message();
  return std::move(plan).value();
}

TEST(Plan, FullBlocksLeadAndTailsAreASuffix) {
  const Plan plan =
      build(make_layout({40, 128, 0, 7, 64, 127}, {{0, 1, 2, 3, 4, 5}, {}, {}, {}, {}, {}}));
  const ForwardView view = forward_view(plan.ref());
  const Walk& walk = view.walks[0];
  EXPECT_EQ(walk.entries, 5);
  EXPECT_EQ(walk.runs, 4);
  EXPECT_EQ(walk.tails, 3);
  EXPECT_EQ(walk.full_pages, 8 + 4 + 7 + 2);
  const std::vector<std::int32_t> entries(view.walk_entries(0), view.walk_entries(0) + 6);
  EXPECT_EQ(entries, (std::vector<std::int32_t>{1, 4, 5, 0, 3, 0}));
  EXPECT_EQ(walk_tiles(walk), 3);
  EXPECT_EQ(first_masked_tile(walk), 2);
  // Tile 2: pages 16..20 full, then the tails of blocks 5 (15 rows), 0 (8), 3 (7).
  const std::vector<std::uint32_t> masks(view.walk_masks(0), view.walk_masks(0) + 4);
  EXPECT_EQ(masks, (std::vector<std::uint32_t>{0xffffffff, 0xffffffff, 0x7fffffff, 0x007f00ff}));

  Cursor cursor;
  const auto run_at = [&](std::int32_t i) {
    return run_of(walk, i, view.kv_blocks(0)[view.walk_entries(0)[entry_of_run(walk, i)]]);
  };
  const auto first = next_tile<kTilePages>(cursor, walk_runs(walk), run_at);
  EXPECT_EQ(first.count, 1);
  EXPECT_EQ(first.segment[0].row, 128);
  EXPECT_EQ(first.segment[0].pages, 8);
  const auto second = next_tile<kTilePages>(cursor, walk_runs(walk), run_at);
  ASSERT_EQ(second.count, 2);
  EXPECT_EQ(second.segment[1].slot, 4);
  EXPECT_EQ(second.segment[1].row, 5 * 128);
  EXPECT_EQ(second.segment[1].pages, 4);
  const auto third = next_tile<kTilePages>(cursor, walk_runs(walk), run_at);
  ASSERT_EQ(third.count, 5);
  EXPECT_EQ(third.segment[0].row, 5 * 128 + 64);
  EXPECT_EQ(third.segment[0].pages, 3);
  EXPECT_EQ(third.segment[2].row, 5 * 128 + 112);
  EXPECT_EQ(third.segment[2].rows, 15);
  EXPECT_EQ(third.segment[4].rows, 7);
  EXPECT_EQ(third.pages, 8);
}

TEST(Plan, RoutesByValidRows) {
  const Plan plan = build(make_layout({64, 65, 0, 1, 128}, {{0}, {0}, {0}, {0}, {0}}));
  const ForwardView view = forward_view(plan.ref());
  EXPECT_EQ(view.header->q128, 2);
  EXPECT_EQ(view.header->q64, 2);
  EXPECT_EQ(view.queue[0], 1u);
  EXPECT_EQ(view.queue[1], 4u);
  EXPECT_EQ(view.queue[2], 0u);
  EXPECT_EQ(view.queue[3], 3u);
}

TEST(Plan, LongWalksFirstWithinAHead) {
  const Plan plan = build(make_layout({128, 128, 128, 128}, {{0}, {0, 1, 2, 3}, {1}, {3, 2, 1}}));
  const ForwardView view = forward_view(plan.ref());
  EXPECT_EQ(std::vector<std::uint32_t>(view.queue, view.queue + 4),
            (std::vector<std::uint32_t>{1, 3, 0, 2}));
}

TEST(Plan, GapsFollowTheOrderOfRows) {
  const Plan plan = build(make_layout({16, 0, 20, 5}, {{}, {}, {}, {}}, {100, 3, 10, 30}));
  const ForwardView view = forward_view(plan.ref());
  EXPECT_EQ(view.q_scopes[0].first_row, 10);
  EXPECT_EQ(view.q_scopes[0].end_row, 116);
  EXPECT_EQ(view.q_extents[2].gap_end, 30);
  EXPECT_EQ(view.q_extents[3].gap_end, 100);
  EXPECT_EQ(view.q_extents[0].gap_end, kToTheEnd);
  EXPECT_EQ(view.q_extents[3].page, 3);
}

TEST(Plan, BlocksWithSharedListsShareAnOwner) {
  // Blocks 1 and 2 hold two pages each and have the same list; block 3 has another.
  const Plan plan = build(make_layout({128, 32, 20, 32}, {{0, 1, 2}, {1, 2}, {0, 3}, {3}}));
  const BackwardView view = backward_view(plan.ref());
  ASSERT_EQ(view.header->owners, 3);
  EXPECT_EQ(view.header->items8, 1);
  EXPECT_EQ(view.header->items4, 2);
  EXPECT_EQ(view.owners[0].flags, kOwnerFull);
  EXPECT_EQ(view.owners[1].flags, kOwnerMixed);
  EXPECT_EQ(view.owners[1].blocks, 2);
  EXPECT_EQ(view.owners[1].pages, 4);
  EXPECT_EQ(view.owners[1].entries, 2);
  EXPECT_EQ(view.owners[2].blocks, 1);
  for (std::int32_t i = 0; i < view.owners[1].entries; ++i) {
    EXPECT_EQ(entry_slots(view.q_entries[view.owners[1].entry_begin + std::uint32_t(i)]),
              kAllValid);
  }
}

TEST(Plan, MixedOwnersCarryTheGraph) {
  // Blocks 0 and 1 (two pages each): 20 common query blocks of 24, so they share an owner.
  std::vector<std::int32_t> sizes(24, 32);
  std::vector<std::vector<std::int32_t>> lists(24);
  for (std::size_t q = 0; q < 24; ++q) {
    lists[q] = q < 22 ? (q < 2 ? std::vector<std::int32_t>{0} : std::vector<std::int32_t>{0, 1})
                      : std::vector<std::int32_t>{1};
  }
  const Plan plan = build(make_layout(sizes, lists));
  const BackwardView view = backward_view(plan.ref());
  const Owner& owner = view.owners[0];
  ASSERT_EQ(owner.blocks, 2);
  ASSERT_EQ(owner.entries, 24);
  EXPECT_EQ(entry_slots(view.q_entries[0]), 0xf3u);
  EXPECT_EQ(entry_slots(view.q_entries[2]), 0xffu);
  EXPECT_EQ(entry_slots(view.q_entries[23]), 0xfcu);
  EXPECT_EQ(plan.stats().backward_union_pairs, 4 * 2 * 2 * 256);
}

TEST(Plan, AdjacencyWordsAreWholeWhereNothingIsMasked) {
  std::uint64_t eight = 0;
  std::uint64_t sixteen = 0;
  for (std::int32_t page = 0; page < 8; ++page) {
    eight |= adjacency_bits(page, 8, make_q_entry(5, kAllValid));
  }
  for (std::int32_t page = 0; page < 16; ++page) {
    sixteen |= adjacency_bits(page, 4, make_q_entry(5, kAllValid));
  }
  EXPECT_EQ(eight, ~std::uint64_t{0});
  EXPECT_EQ(sixteen, ~std::uint64_t{0});
  EXPECT_EQ(adjacency_bits(3, 8, make_q_entry(5, 0x21)), std::uint64_t{0x21} << 24);
}

TEST(Plan, LongReverseWalksAreSplitIntoGroups) {
  const std::int32_t blocks = kGroupPages / kBlockPages + 3;
  Layout layout;
  layout.shared_partition = false;
  layout.q_blocks = blocks;
  layout.kv_blocks = 1;
  layout.q_sizes.assign(static_cast<std::size_t>(blocks), 128);
  layout.kv_sizes = {50};
  layout.max_list = 1;
  layout.q2k_block_index.assign(static_cast<std::size_t>(blocks), 0);
  layout.q2k_block_nums.assign(static_cast<std::size_t>(blocks), 1);
  const Plan plan = build(layout);
  const BackwardView view = backward_view(plan.ref());
  ASSERT_EQ(view.header->items4, 2);
  EXPECT_EQ(view.items[0].pages, kGroupPages);
  EXPECT_EQ(view.items[1].pages, 3 * kBlockPages);
  EXPECT_EQ(view.items[1].group, 1);
  EXPECT_EQ(view.items[1].groups, 2);
}

TEST(Plan, AccountsForPairs) {
  const PlanStats stats = build(make_layout({128, 40}, {{0, 1}, {1}})).stats();
  EXPECT_EQ(stats.edges, 3);
  EXPECT_EQ(stats.useful_pairs, 128 * 168 + 40 * 40);
  EXPECT_EQ(stats.whole_block_pairs, 3 * 128 * 128);
  EXPECT_EQ(stats.paged_pairs, 128 * 16 * (8 + 3) + 128 * 16 * 3);
  EXPECT_EQ(stats.routed_pairs, 128 * 16 * (8 + 3) + 64 * 16 * 3);
  EXPECT_EQ(stats.paged_tail_pairs, 128 * 256 + 128 * 128);
  EXPECT_EQ(stats.routed_tail_pairs, 128 * 256 + 64 * 256);
  EXPECT_EQ(stats.paper_tail_pairs, 128 * 256 + 64 * 512);
}

TEST(Plan, CountsQueryBlocksThatSeeNoKey) {
  // Block 1 selects nothing, block 2 an empty block, block 3 has no rows.
  const PlanStats stats = build(make_layout({128, 40, 17, 0}, {{0, 3}, {}, {3}, {}})).stats();
  EXPECT_EQ(stats.q_blocks_without_keys, 2);
  EXPECT_EQ(stats.q_blocks_empty, 1);
}

TEST(Plan, SurvivesAFile) {
  const Plan plan = build(make_layout({128, 40, 3}, {{0, 1}, {1, 2}, {}}));
  const std::string path =
      (std::filesystem::temp_directory_path() / "kpage_plan_test.plan").string();
  ASSERT_TRUE(plan.save(path).ok());
  const Result<Plan> again = Plan::load(path);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(difference(plan, again.value()), "");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(Plan::load(path).status().code(), ErrorCode::kIo);
  std::filesystem::remove(path);
  EXPECT_EQ(Plan::load(path).status().code(), ErrorCode::kIo);
}

// Every word of a plan matters: no single flipped bit passes for a valid plan. Words that a
// builder leaves alone (padding between sections, places past a count) are not covered.
TEST(Plan, ValidateFindsFlippedBits) {
  const Plan plan = build(make_layout({128, 40, 3, 64}, {{0, 1}, {1, 2, 3}, {0}, {3}}));
  const ForwardSections at = forward_sections(plan.shape());
  const auto flips = [&](std::int64_t begin, std::int64_t bytes) {
    for (std::int64_t byte = begin; byte < begin + bytes; ++byte) {
      std::vector<std::byte> blob(plan.forward().begin(), plan.forward().end());
      blob[static_cast<std::size_t>(byte)] ^= std::byte{4};
      EXPECT_FALSE(Plan::adopt(plan.shape(), blob, {}).ok()) << "byte " << byte;
    }
  };
  flips(at.q_scopes, sizeof(ScopeInfo));
  flips(at.kv_extents, 4 * sizeof(Extent));
  flips(at.walks, 4 * sizeof(Walk));
  flips(at.queue, 4 * 4);
  flips(at.entries, 4 * 3 * 4);
  flips(at.masks, 4 * mask_words_per_walk(plan.shape()) * 4);
}

TEST(Plan, DumpsWhatItHolds) {
  const std::string text = build(make_layout({128, 40}, {{0, 1}, {1}})).dump();
  EXPECT_NE(text.find("walk of query block 0: 128 rows, Q128, 2 entries, 10 full pages + 1 tails"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("160+8 (block 1), masks"), std::string::npos) << text;
  EXPECT_NE(text.find("owner 0: 8 pages in 8 slots, full, K/V blocks 0; query blocks 0"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace kpage
