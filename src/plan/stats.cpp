// Accounting (paper 4.4): what a layout asks for, and what each packing of it would execute.
#include <bit>
#include <cstdint>

#include "kpage/plan.h"

#include "plan/format.h"
#include "plan/views.h"

namespace kpage {
namespace {

using namespace plan;

constexpr std::int64_t kPagePairs = std::int64_t{kPageRows} * kPageRows;

void count_blocks(const ForwardView& forward, PlanStats& stats) {
  const Shape& shape = forward.shape;
  for (std::int64_t bh = 0; bh < batch_heads(shape); ++bh) {
    for (std::int32_t b = 0; b < shape.q_blocks; ++b) {
      const std::int32_t rows = forward.q_blocks(bh)[b].rows;
      stats.q_rows += rows;
      stats.q_blocks_empty += rows == 0 ? 1 : 0;
    }
    for (std::int32_t b = 0; b < shape.kv_blocks; ++b) {
      const std::int32_t rows = forward.kv_blocks(bh)[b].rows;
      stats.kv_rows += rows;
      stats.kv_blocks_empty += rows == 0 ? 1 : 0;
    }
  }
  stats.q_blocks = batch_heads(shape) * shape.q_blocks;
  stats.kv_blocks = batch_heads(shape) * shape.kv_blocks;
}

void count_walk(std::int64_t q_rows, const Walk& walk, std::int64_t kv_rows, PlanStats& stats) {
  const std::int64_t pages = walk_pages(walk);
  const std::int64_t tiles = walk_tiles(walk);
  const bool q64 = takes_q64(static_cast<std::int32_t>(q_rows));
  const std::int64_t m = q64 ? kQ64Rows : kBlockRows;
  const std::int64_t step = q64 ? kQ64Tiles : 1;
  stats.q_blocks_without_keys += pages == 0 ? 1 : 0;
  stats.edges += walk.entries;
  stats.useful_pairs += q_rows * kv_rows;
  stats.whole_block_pairs += walk.entries * std::int64_t{kBlockRows} * kBlockRows;
  stats.paged_pairs += kBlockRows * pages * kPageRows;
  stats.routed_pairs += m * pages * kPageRows;
  stats.paged_tail_pairs += kBlockRows * tiles * kTileColumns;
  stats.routed_tail_pairs += m * round_up(tiles, step) * kTileColumns;
  stats.paper_tail_pairs += m * round_up(tiles, 2 * step) * kTileColumns;
  std::int64_t& blocks = q64 ? stats.q64_blocks : stats.q128_blocks;
  std::int64_t& route_tiles = q64 ? stats.q64_tiles : stats.q128_tiles;
  std::int64_t& longest = q64 ? stats.q64_longest_walk : stats.q128_longest_walk;
  ++blocks;
  route_tiles += tiles;
  longest = max_of(longest, tiles);
}

void count_walks(const ForwardView& forward, PlanStats& stats) {
  const std::int32_t q_blocks = forward.shape.q_blocks;
  for (std::int64_t walk = 0; walk < walk_count(forward.shape); ++walk) {
    const std::int64_t bh = walk / q_blocks;
    const std::int32_t q_rows = forward.q_blocks(bh)[walk % q_blocks].rows;
    if (q_rows == 0) {
      continue;
    }
    const std::int32_t* entries = forward.walk_entries(walk);
    const Extent* kv_blocks = forward.kv_blocks(bh);
    std::int64_t kv_rows = 0;
    for (std::int32_t i = 0; i < forward.walks[walk].entries; ++i) {
      kv_rows += kv_blocks[entries[i]].rows;
    }
    count_walk(q_rows, forward.walks[walk], kv_rows, stats);
  }
}

void count_owners(const ForwardView& forward, const BackwardView& backward, PlanStats& stats) {
  for (std::int32_t o = 0; o < backward.header->owners; ++o) {
    const Owner& owner = backward.owners[o];
    (owner.slots == kOwnerSlots ? stats.owners8 : stats.owners4) += 1;
    if ((owner.flags & kOwnerMixed) == 0) {
      continue;
    }
    ++stats.mixed_owners;
    const Extent* q_blocks = forward.q_blocks(owner.batch_head);
    for (std::int32_t i = 0; i < owner.entries; ++i) {
      const std::uint32_t entry =
          backward.q_entries[owner.entry_begin + static_cast<std::uint32_t>(i)];
      stats.backward_union_pairs += std::int64_t{pages_of(q_blocks[entry_block(entry)].rows)} *
                                    std::popcount(entry_slots(entry) ^ kAllValid) * kPagePairs;
    }
  }
  stats.backward_items = backward.header->items8 + backward.header->items4;
  for (std::int64_t i = 0; i < stats.backward_items; ++i) {
    const OwnerItem& item = backward.items[i];
    const std::int64_t slots = backward.owners[item.owner].slots;
    stats.backward_pairs += slots * item.pages * kPagePairs;
    stats.backward_tail_pairs +=
        round_up(slots * item.pages, std::int64_t{kStepPairs}) * kPagePairs;
  }
}

}  // namespace

PlanStats Plan::stats() const {
  PlanStats stats;
  const ForwardView forward = forward_view(ref());
  count_blocks(forward, stats);
  count_walks(forward, stats);
  if (has_backward()) {
    count_owners(forward, backward_view(ref()), stats);
  }
  return stats;
}

}  // namespace kpage
