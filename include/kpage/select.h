// Steps of the systems' selectors: what they choose blocks by, and lists of what they chose.
//
// Calls neither allocate device memory nor synchronise, and CUDA work goes to the stream passed in.
// Values are never looked at on the host, so none is an error on a CUDA device.
#pragma once

#include "kpage/export.h"
#include "kpage/select_args.h"
#include "kpage/status.h"

namespace KPAGE_EXPORT kpage {

// The columns of the `keep` highest scores of each row, in ascending order. Of equal scores the
// lower column is higher; NaN is as low as -inf. The same on every device.
[[nodiscard]] Status top_k(const TopKArgs& args);

// The lists that a map holds.
[[nodiscard]] Status lists_of_map(const ListsArgs& args);

// Sums over the valid rows of each block, in fp32 and in a fixed order. What lies outside of blocks
// is not read.
[[nodiscard]] Status block_sums(const BlockSumsArgs& args);

// The nearest centroid of each row by Euclidean distance, the lower one where several are: the
// label step of k-means. Products are summed in fp32. CUDA devices of compute capability 8.0 or
// newer, bf16 or fp16, head_dim 64 or 128: others are unsupported.
[[nodiscard]] Status nearest_centroids(const NearestArgs& args);

}  // namespace kpage
