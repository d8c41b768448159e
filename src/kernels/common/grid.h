// Sizes of grids.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kpage::kernels {

// How many CTAs of a dimension start on `count` slices; each goes on until all are done. As the
// second dimension of a grid it is never too large.
[[nodiscard]] inline unsigned slice_ctas(std::int64_t count) {
  constexpr std::int64_t kMost = 65535;
  return static_cast<unsigned>(std::min(count, kMost));
}

}  // namespace kpage::kernels
