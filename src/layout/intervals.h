// Which of some row ranges overlaps another.
#pragma once

#include <cstdint>

namespace kpage::layout {

// The smallest i whose rows [offsets[i], offsets[i] + sizes[i]) begin within those of another
// range, of equal beginnings the later one; -1 where there is none. Empty ranges count for nothing.
// offsets, sizes: [count], both non-negative.
[[nodiscard]] std::int64_t first_overlap(const std::int32_t* offsets, const std::int32_t* sizes,
                                         std::int64_t count);

}  // namespace kpage::layout
