#include "oracle/accuracy.h"

#include "oracle/blocks.h"

namespace kpage::oracle {

std::int64_t shortest_list(const LayoutView& layout) {
  std::int64_t shortest = 0;
  for (std::int64_t batch = 0; batch < layout.batch; ++batch) {
    for (std::int64_t head = 0; head < layout.heads; ++head) {
      for (std::int64_t block = 0; block < layout.q.blocks; ++block) {
        if (q_block_rows(layout, batch, head, block).count == 0) {
          continue;
        }
        std::int64_t keys = 0;
        for (const std::int32_t kv_block : list_of(layout, batch, head, block)) {
          keys += kv_block_rows(layout, batch, head, kv_block).count;
        }
        shortest = keys > 0 && (shortest == 0 || keys < shortest) ? keys : shortest;
      }
    }
  }
  return shortest;
}

}  // namespace kpage::oracle
