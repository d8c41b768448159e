#include "oracle/blocks.h"

#include <cstddef>

namespace kpage::oracle {
namespace {

RowRange block_rows(const PartitionView& side, const LayoutView& layout, std::int64_t batch,
                    std::int64_t head, std::int64_t block) {
  const std::int64_t scope = side.scope == PartitionScope::kShared    ? 0
                             : side.scope == PartitionScope::kPerHead ? head
                                                                      : batch * layout.heads + head;
  const std::int64_t i = scope * side.blocks + block;
  if (side.sizes[i] == 0) {
    return {};  // whatever its offset
  }
  return {side.offsets != nullptr ? side.offsets[i] : kBlockRows * block, side.sizes[i]};
}

std::int64_t block_at(const PartitionView& side, const LayoutView& layout, std::int64_t batch,
                      std::int64_t head, std::int64_t row) {
  for (std::int64_t block = 0; block < side.blocks; ++block) {
    if (block_rows(side, layout, batch, head, block).contains(row)) {
      return block;
    }
  }
  return -1;
}

}  // namespace

RowRange q_block_rows(const LayoutView& layout, std::int64_t batch, std::int64_t head,
                      std::int64_t block) {
  return block_rows(layout.q, layout, batch, head, block);
}

RowRange kv_block_rows(const LayoutView& layout, std::int64_t batch, std::int64_t head,
                       std::int64_t block) {
  return block_rows(layout.kv, layout, batch, head, block);
}

std::span<const std::int32_t> list_of(const LayoutView& layout, std::int64_t batch,
                                      std::int64_t head, std::int64_t block) {
  const std::int64_t i = (batch * layout.heads + head) * layout.q.blocks + block;
  return {layout.q2k_block_index + i * layout.max_list,
          static_cast<std::size_t>(layout.q2k_block_nums[i])};
}

std::int64_t q_block_at(const LayoutView& layout, std::int64_t batch, std::int64_t head,
                        std::int64_t row) {
  return block_at(layout.q, layout, batch, head, row);
}

std::int64_t kv_block_at(const LayoutView& layout, std::int64_t batch, std::int64_t head,
                         std::int64_t row) {
  return block_at(layout.kv, layout, batch, head, row);
}

}  // namespace kpage::oracle
