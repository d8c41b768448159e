// Steps of selectors on a CUDA device, in stream order. Arguments are those that api has checked.
#pragma once

#include "kpage/select_args.h"
#include "kpage/status.h"

namespace kpage::kernels {

[[nodiscard]] Status top_k(const TopKArgs& args);
[[nodiscard]] Status leading_map(const LeadingArgs& args);
[[nodiscard]] Status lists_of_map(const ListsArgs& args);
[[nodiscard]] Status block_sums(const BlockSumsArgs& args);
[[nodiscard]] Status cluster_order(const ClusterOrderArgs& args);
[[nodiscard]] Status cluster_means(const ClusterMeansArgs& args);
[[nodiscard]] Status cluster_blocks(const ClusterBlocksArgs& args);
[[nodiscard]] Status nearest_centroids(const NearestArgs& args);

}  // namespace kpage::kernels
