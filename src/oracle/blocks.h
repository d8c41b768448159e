// A layout's blocks and lists by (batch, head).
#pragma once

#include <cstdint>
#include <span>

#include "kpage/layout.h"

namespace kpage::oracle {

// Rows [first, first + count) of a head.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  [[nodiscard]] bool contains(std::int64_t row) const {
    return row >= first && row < first + count;
  }
};

[[nodiscard]] RowRange q_block_rows(const LayoutView& layout, std::int64_t batch, std::int64_t head,
                                    std::int64_t block);
[[nodiscard]] RowRange kv_block_rows(const LayoutView& layout, std::int64_t batch,
                                     std::int64_t head, std::int64_t block);
// The key/value blocks that a query block attends to.
[[nodiscard]] std::span<const std::int32_t> list_of(const LayoutView& layout, std::int64_t batch,
                                                    std::int64_t head, std::int64_t block);
// The block that holds a row; -1 where the row is padding.
[[nodiscard]] std::int64_t q_block_at(const LayoutView& layout, std::int64_t batch,
                                      std::int64_t head, std::int64_t row);
[[nodiscard]] std::int64_t kv_block_at(const LayoutView& layout, std::int64_t batch,
                                       std::int64_t head, std::int64_t row);

}  // namespace kpage::oracle
