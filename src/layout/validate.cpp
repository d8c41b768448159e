#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kpage/layout.h"

#include "base/message.h"
#include "layout/faults.h"
#include "layout/intervals.h"

namespace kpage {
namespace {

using layout::GraphShape;
using layout::Side;
using layout::SideShape;

Status check_dimensions(const LayoutView& view) {
  if (Status status = layout::check_batch_heads(view.batch, view.heads); !status.ok()) {
    return status;
  }
  if (view.max_list < 0) {
    return invalid_argument("q2k_block_index", "a last dimension of at least 0", view.max_list);
  }
  for (const auto& [name, blocks] :
       {std::pair{"q_block_sizes", view.q.blocks}, std::pair{"kv_block_sizes", view.kv.blocks}}) {
    if (blocks < 0 || blocks > kMaxBlocks) {
      return invalid_argument(name, text("0 to ", kMaxBlocks, " blocks"), blocks);
    }
  }
  // Element numbers of every tensor, and of what is derived from them, stay far inside 63 bits.
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  const std::int64_t graph = std::int64_t{view.q.blocks} * std::max(view.max_list, 1);
  const std::int64_t pair = std::max<std::int64_t>({1, graph, view.kv.blocks});
  if (kMost / pair / view.batch / view.heads == 0) {
    return invalid_argument("q2k_block_index", text("at most ", kMost, " elements"),
                            shape_text({view.batch, view.heads, view.q.blocks, view.max_list}));
  }
  return {};
}

Status check_pointer(std::string_view name, const void* data, std::int64_t elements) {
  if (data == nullptr && elements > 0) {
    return invalid_argument(name, text("a tensor of ", elements, " elements"), "null");
  }
  return {};
}

Status check_scope(const PartitionView& part, const SideShape& side) {
  switch (part.scope) {
    case PartitionScope::kShared:
    case PartitionScope::kPerHead:
    case PartitionScope::kPerBatchHead:
      return {};
  }
  return invalid_argument(side.sizes_name(),
                          "a scope of 0 (shared), 1 (per head) or 2 (per batch element and head)",
                          static_cast<std::int32_t>(part.scope));
}

Status check_sizes(const PartitionView& part, const SideShape& side, std::int64_t sets) {
  const std::int64_t count = sets * part.blocks;
  for (std::int64_t i = 0; i < count; ++i) {
    if (part.sizes[i] < 0 || part.sizes[i] > kBlockRows) {
      return size_out_of_range(side, i, part.sizes[i]);
    }
  }
  return {};
}

Status check_offsets(const PartitionView& part, const SideShape& side, std::int64_t sets) {
  const std::int64_t count = sets * part.blocks;
  if (part.offsets == nullptr) {  // blocks 128 rows apart; the last ones may end past kMaxRows
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = i % part.blocks * kBlockRows;
      if (part.sizes[i] > 0 && row + part.sizes[i] > kMaxRows) {
        return offset_out_of_range(side, i, row);
      }
    }
    return {};
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = part.offsets[i];
    if (part.sizes[i] > 0 && (row < 0 || row + part.sizes[i] > kMaxRows)) {
      return offset_out_of_range(side, i, row);
    }
  }
  for (std::int64_t set = 0; set < sets; ++set) {
    const std::int64_t begin = set * part.blocks;
    const std::int64_t at =
        layout::first_overlap(part.offsets + begin, part.sizes + begin, part.blocks);
    if (at >= 0) {
      return blocks_overlap(side, begin + at, part.offsets[begin + at]);
    }
  }
  return {};
}

Status check_partition(const PartitionView& part, const SideShape& side) {
  if (Status status = check_scope(part, side); !status.ok()) {
    return status;
  }
  const std::int64_t sets = scope_count(part.scope, side.batch, side.heads);
  if (Status status = check_pointer(side.sizes_name(), part.sizes, sets * part.blocks);
      !status.ok()) {
    return status;
  }
  if (Status status = check_sizes(part, side, sets); !status.ok()) {
    return status;
  }
  return check_offsets(part, side, sets);
}

bool same(const PartitionView& a, const PartitionView& b) {
  return a.sizes == b.sizes && a.offsets == b.offsets && a.blocks == b.blocks && a.scope == b.scope;
}

Status check_lists(const LayoutView& view, const GraphShape& graph) {
  const std::int64_t lists = graph.batch * graph.heads * graph.q_blocks;
  for (const auto& [name, data, elements] :
       {std::tuple{"q2k_block_nums", view.q2k_block_nums, lists},
        std::tuple{"q2k_block_index", view.q2k_block_index, lists * graph.max_list}}) {
    if (Status status = check_pointer(name, data, elements); !status.ok()) {
      return status;
    }
  }
  for (std::int64_t list = 0; list < lists; ++list) {
    if (view.q2k_block_nums[list] < 0 || view.q2k_block_nums[list] > view.max_list) {
      return count_out_of_range(graph, list, view.q2k_block_nums[list]);
    }
  }
  // The list that a block was last seen in; numbers of lists start again where they overflow.
  std::vector<std::uint32_t> seen(static_cast<std::size_t>(graph.kv_blocks), 0);
  std::uint32_t stamp = 0;
  for (std::int64_t list = 0; list < lists; ++list) {
    if (++stamp == 0) {
      seen.assign(seen.size(), 0);
      stamp = 1;
    }
    const std::int32_t* ids = view.q2k_block_index + list * graph.max_list;
    for (std::int32_t i = 0; i < view.q2k_block_nums[list]; ++i) {
      if (ids[i] < 0 || ids[i] >= graph.kv_blocks) {
        return id_out_of_range(graph, list * graph.max_list + i, ids[i]);
      }
      std::uint32_t& last = seen[static_cast<std::size_t>(ids[i])];
      if (last == stamp) {
        return id_repeated(graph, list * graph.max_list + i, ids[i]);
      }
      last = stamp;
    }
  }
  return {};
}

}  // namespace

Status validate(const LayoutView& view) {
  if (Status status = check_dimensions(view); !status.ok()) {
    return status;
  }
  const SideShape q{Side::kQ, view.q.scope, view.batch, view.heads, view.q.blocks};
  if (Status status = check_partition(view.q, q); !status.ok()) {
    return status;
  }
  if (!same(view.kv, view.q)) {
    const SideShape kv{Side::kKv, view.kv.scope, view.batch, view.heads, view.kv.blocks};
    if (Status status = check_partition(view.kv, kv); !status.ok()) {
      return status;
    }
  }
  return check_lists(view, {view.batch, view.heads, view.q.blocks, view.kv.blocks, view.max_list});
}

}  // namespace kpage
