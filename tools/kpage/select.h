// Picks key tiles for each query tile by the scores of their means, as VSA does.
#pragma once

#include <cstdint>

#include "kpage/geometry.h"
#include "kpage/types.h"

namespace kpage::cli {

// q [B, H, S, D], k [B, Hkv, S, D] in the model's order of tokens. Means of a tile's valid rows are
// summed in fp32 and rounded to the dtype, as are the scores; of the cubes of the grid each list
// keeps the `keep` best, lower numbers first where scores are equal. Lists are ascending.
// Rows of the result: [B * H * cubes]. Throws Failure where a mean is not finite.
[[nodiscard]] ClusterGraph select_by_means(const TensorRef& q, const TensorRef& k,
                                           const Tiling& tiling, std::int32_t keep);

}  // namespace kpage::cli
