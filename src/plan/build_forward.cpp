#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/builder.h"
#include "plan/order.h"

namespace kpage::plan {
namespace {

// Extents of one scope's blocks, and what they add up to. Padding is found from the order of rows.
void write_extents(const std::int32_t* sizes, const std::int32_t* offsets, std::int32_t count,
                   Extent* extents, ScopeInfo* info) {
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(count));
  *info = {kToTheEnd, 0, 0, 0};
  for (std::int32_t b = 0; b < count; ++b) {
    const std::int32_t row = offsets != nullptr ? offsets[b] : b * kBlockRows;
    extents[b] = {0, sizes[b], info->pages, 0};
    if (sizes[b] > 0) {
      extents[b].row = row;
      order.push_back(b);
    }
    info->pages += pages_of(sizes[b]);
    info->valid_rows += sizes[b];
  }
  const auto row_less = [extents](std::int32_t a, std::int32_t b) {
    return extents[a].row < extents[b].row;
  };
  if (!std::is_sorted(order.begin(), order.end(), row_less)) {
    std::sort(order.begin(), order.end(), row_less);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    extents[order[i]].gap_end = i + 1 < order.size() ? extents[order[i + 1]].row : kToTheEnd;
  }
  if (!order.empty()) {
    info->first_row = extents[order.front()].row;
    info->end_row = extents[order.back()].row + extents[order.back()].rows;
  }
}

void write_partition(const PartitionView& view, std::int64_t scope_count, Extent* extents,
                     ScopeInfo* infos) {
  for (std::int64_t scope = 0; scope < scope_count; ++scope) {
    const std::int64_t at = scope * view.blocks;
    write_extents(view.sizes + at, view.offsets != nullptr ? view.offsets + at : nullptr,
                  view.blocks, extents + at, infos + scope);
  }
}

// The walk of one query block. `listed` is scratch for max_list ids.
Walk write_walk(const std::int32_t* list, std::int32_t length, const Extent* blocks,
                std::int32_t* entries, std::uint32_t* masks, std::int32_t* listed) {
  Walk walk{};
  for (std::int32_t i = 0; i < length; ++i) {
    const std::int32_t rows = blocks[list[i]].rows;
    if (rows == 0) {
      continue;
    }
    listed[walk.entries++] = list[i];
    const std::int32_t full = full_pages_of(rows);
    walk.full_pages += full;
    walk.runs += full > 0 ? 1 : 0;
    walk.tails += tail_rows_of(rows) > 0 ? 1 : 0;
  }
  counting_sort<kEntryClasses>(
      walk.entries, [&](std::int32_t i) { return entry_class(blocks[listed[i]].rows); },
      [&](std::int32_t at, std::int32_t i) { entries[at] = listed[i]; });
  const auto block_at = [&](std::int32_t i) { return blocks[entries[i]]; };
  const std::int32_t words = mask_words(walk);
  for (std::int32_t word = 0; word < words; ++word) {
    masks[word] = mask_word(walk, word, block_at);
  }
  return walk;
}

// Appends the walks of one head and route to the queue.
std::int32_t queue_head(const MutableForward& plan, std::int64_t batch_head, bool q64,
                        std::int32_t at, std::vector<std::uint32_t>& picked) {
  const Extent* q_blocks = plan.q_blocks(batch_head);
  const std::int64_t first = batch_head * plan.shape.q_blocks;
  picked.clear();
  for (std::int32_t b = 0; b < plan.shape.q_blocks; ++b) {
    if (q_blocks[b].rows > 0 && takes_q64(q_blocks[b].rows) == q64) {
      picked.push_back(static_cast<std::uint32_t>(first + b));
    }
  }
  const auto count = static_cast<std::int32_t>(picked.size());
  counting_sort<kLengthBuckets>(
      count,
      [&](std::int32_t i) {
        return length_bucket(walk_tiles(plan.walks[picked[static_cast<std::size_t>(i)]]));
      },
      [&](std::int32_t to, std::int32_t i) {
        plan.queue[at + to] = picked[static_cast<std::size_t>(i)];
      });
  return at + count;
}

}  // namespace

void build_forward(const LayoutView& layout, const MutableForward& plan) {
  const Shape& shape = plan.shape;
  plan.header->magic = kForwardMagic;
  plan.header->version = kPlanVersion;
  plan.header->shape = shape;
  write_partition(layout.q, scopes(shape.q_scope, shape), plan.q_extents, plan.q_scopes);
  write_partition(layout.kv, scopes(shape.kv_scope, shape), plan.kv_extents, plan.kv_scopes);

  std::vector<std::int32_t> listed(static_cast<std::size_t>(shape.max_list));
  for (std::int64_t bh = 0; bh < batch_heads(shape); ++bh) {
    const Extent* q_blocks = plan.q_blocks(bh);
    const Extent* kv_blocks = plan.kv_blocks(bh);
    for (std::int32_t b = 0; b < shape.q_blocks; ++b) {
      if (q_blocks[b].rows == 0) {
        continue;
      }
      const std::int64_t walk = bh * shape.q_blocks + b;
      plan.walks[walk] =
          write_walk(layout.q2k_block_index + walk * shape.max_list, layout.q2k_block_nums[walk],
                     kv_blocks, plan.walk_entries(walk), plan.walk_masks(walk), listed.data());
    }
  }

  std::vector<std::uint32_t> picked;
  std::int32_t at = 0;
  for (std::int64_t bh = 0; bh < batch_heads(shape); ++bh) {
    at = queue_head(plan, bh, false, at, picked);
  }
  plan.header->q128 = at;
  for (std::int64_t bh = 0; bh < batch_heads(shape); ++bh) {
    at = queue_head(plan, bh, true, at, picked);
  }
  plan.header->q64 = at - plan.header->q128;
}

}  // namespace kpage::plan
