#include "layout_lists.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace kpage::cli {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The sizes that this head uses: [blocks].
std::span<const std::int32_t> sizes_of(const Layout& layout, bool kv, std::int64_t batch_head) {
  const bool of_q = !kv || layout.shared_partition;
  const std::vector<std::int32_t>& sizes = of_q ? layout.q_sizes : layout.kv_sizes;
  const PartitionScope scope = of_q ? layout.q_scope : layout.kv_scope;
  const std::int64_t blocks = kv ? layout.kv_blocks : layout.q_blocks;
  const std::int64_t set = batch_head % scope_count(scope, layout.batch, layout.heads);
  return std::span(sizes).subspan(at(set * blocks), at(blocks));
}

std::span<const std::int32_t> list_of(const Layout& layout, std::int64_t batch_head,
                                      std::int64_t block) {
  const std::int64_t list = batch_head * layout.q_blocks + block;
  return std::span(layout.q2k_block_index)
      .subspan(at(list * layout.max_list), at(layout.q2k_block_nums[at(list)]));
}

}  // namespace

double HeadLists::density() const {
  return all == 0 ? 0 : static_cast<double>(useful) / static_cast<double>(all);
}

std::vector<HeadLists> head_lists(const Layout& layout) {
  std::vector<HeadLists> heads(at(std::int64_t{layout.batch} * layout.heads));
  for (std::size_t i = 0; i < heads.size(); ++i) {
    HeadLists& head = heads[i];
    const auto batch_head = static_cast<std::int64_t>(i);
    const auto q_sizes = sizes_of(layout, false, batch_head);
    const auto kv_sizes = sizes_of(layout, true, batch_head);
    for (std::int32_t block = 0; block < layout.q_blocks; ++block) {
      const auto list = list_of(layout, batch_head, block);
      std::int64_t keys = 0;
      for (const std::int32_t id : list) {
        keys += kv_sizes[at(id)];
      }
      head.pairs += static_cast<std::int64_t>(list.size());
      head.useful += q_sizes[at(block)] * keys;
      head.without_keys += q_sizes[at(block)] > 0 && keys == 0 ? 1 : 0;
      head.longest_list = std::max(head.longest_list, static_cast<std::int32_t>(list.size()));
    }
    head.all = std::accumulate(q_sizes.begin(), q_sizes.end(), std::int64_t{0}) *
               std::accumulate(kv_sizes.begin(), kv_sizes.end(), std::int64_t{0});
  }
  return heads;
}

SelectionMap selection_map(const Layout& layout, std::int32_t batch_head, std::int32_t most_rows,
                           std::int32_t most_columns) {
  SelectionMap map;
  map.rows = std::min(layout.q_blocks, most_rows);
  map.columns = std::min(layout.kv_blocks, most_columns);
  // Cell c of n takes the blocks [c * blocks / n, (c + 1) * blocks / n), rounded up.
  const auto cell_of = [](std::int64_t block, std::int64_t cells, std::int64_t blocks) {
    return block * cells / blocks;
  };
  const auto blocks_in = [](std::int64_t cell, std::int64_t cells, std::int64_t blocks) {
    return ((cell + 1) * blocks + cells - 1) / cells - (cell * blocks + cells - 1) / cells;
  };
  map.share.resize(at(std::int64_t{map.rows} * map.columns));
  for (std::int32_t block = 0; block < layout.q_blocks; ++block) {
    const std::int64_t row = cell_of(block, map.rows, layout.q_blocks);
    for (const std::int32_t id : list_of(layout, batch_head, block)) {
      map.share[at(row * map.columns + cell_of(id, map.columns, layout.kv_blocks))] += 1;
    }
  }
  for (std::int64_t row = 0; row < map.rows; ++row) {
    for (std::int64_t column = 0; column < map.columns; ++column) {
      map.share[at(row * map.columns + column)] /=
          static_cast<double>(blocks_in(row, map.rows, layout.q_blocks) *
                              blocks_in(column, map.columns, layout.kv_blocks));
    }
  }
  return map;
}

}  // namespace kpage::cli
