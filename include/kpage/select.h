// Steps of the systems' selectors: what they choose blocks by, and lists of what they chose.
//
// Calls neither allocate device memory nor synchronise, and CUDA work goes to the stream passed in.
// Values are never looked at on the host, so none is an error on a CUDA device. What a CUDA device
// has no room for, which the CPU has, is ErrorCode::kUnsupported.
#pragma once

#include "kpage/export.h"
#include "kpage/select_args.h"
#include "kpage/status.h"

namespace KPAGE_EXPORT kpage {

// The columns of the `keep` highest scores of each row, in ascending order. Of equal scores the
// lower column is higher; NaN is as low as -inf. The same on every device; a CUDA device takes up
// to 32,768 columns.
[[nodiscard]] Status top_k(const TopKArgs& args);

// Which columns of each row lead: in descending order of weight, of equal ones the lower column
// first, those whose weights up to and with them sum up to no more than `limit`; with `crosses` one
// more; and `least` in any case. Weights are rounded to `dtype`, where they come from scores; sums
// are exact in units of 2^-30, the same in any order. A CUDA device takes up to 16,384 columns.
[[nodiscard]] Status leading_map(const LeadingArgs& args);

// The lists that a map holds. A map of coarser things than blocks serves, by the row of each list
// and the column of each id.
[[nodiscard]] Status lists_of_map(const ListsArgs& args);

// Sums over the valid rows of each block, in fp32 and in a fixed order. What lies outside of blocks
// is not read. A CUDA device takes rows of up to 256 elements, or of 2,048 bytes where all are
// aligned to 16.
[[nodiscard]] Status block_sums(const BlockSumsArgs& args);

// Rows by cluster, in their own order within one. A label outside of [0, clusters) counts as the
// nearest that is inside. A CUDA device takes up to 19,370 clusters.
[[nodiscard]] Status cluster_order(const ClusterOrderArgs& args);

// The mean of the rows of each cluster, or its centroid where it has none. Sums are fp32, in a
// fixed order; means are rounded to the dtype of x. Rows as in block_sums().
[[nodiscard]] Status cluster_means(const ClusterMeansArgs& args);

// Clusters end to end, each as blocks of 128 rows and one of the remainder. A CUDA device takes up
// to 29,055 clusters.
[[nodiscard]] Status cluster_blocks(const ClusterBlocksArgs& args);

// The nearest centroid of each row by Euclidean distance, the lower one where several are: the
// label step of k-means. Products are summed in fp32. CUDA devices of compute capability 9.0, bf16
// or fp16, head_dim 64 or 128: others are unsupported.
[[nodiscard]] Status nearest_centroids(const NearestArgs& args);

}  // namespace kpage
