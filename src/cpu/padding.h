// Padding rows of outputs, as the plan lists them: rows before the first block, and the gap after
// each block.
#pragma once

#include <cstdint>

#include "plan/format.h"

namespace kpage::cpu {

// Calls fill(begin, end) for every range of rows below `rows` that no block covers.
template <class Fill>
void for_each_gap(const plan::ScopeInfo& scope, const plan::Extent* blocks,
                  std::int32_t block_count, std::int64_t rows, const Fill& fill) {
  const auto range = [&](std::int64_t begin, std::int64_t end) {
    if (begin < min_of(end, rows)) {
      fill(begin, min_of(end, rows));
    }
  };
  range(0, scope.first_row);
  for (std::int32_t b = 0; b < block_count; ++b) {
    if (blocks[b].rows > 0) {
      range(blocks[b].row + blocks[b].rows, blocks[b].gap_end);
    }
  }
}

}  // namespace kpage::cpu
