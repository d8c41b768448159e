#include "kpage/layout.h"

namespace kpage {

LayoutView Layout::view() const {
  LayoutView view;
  view.batch = batch;
  view.heads = heads;
  view.q = {q_sizes.data(), q_offsets.empty() ? nullptr : q_offsets.data(), q_blocks, q_scope};
  view.kv = shared_partition
                ? view.q
                : PartitionView{kv_sizes.data(), kv_offsets.empty() ? nullptr : kv_offsets.data(),
                                kv_blocks, kv_scope};
  view.q2k_block_index = q2k_block_index.data();
  view.q2k_block_nums = q2k_block_nums.data();
  view.max_list = max_list;
  return view;
}

}  // namespace kpage
