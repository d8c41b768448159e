// Steps of selectors on the CPU. Arguments are those that api has checked.
#pragma once

#include "kpage/select_args.h"

namespace kpage::cpu {

void top_k(const TopKArgs& args);
void leading_map(const LeadingArgs& args);
void lists_of_map(const ListsArgs& args);
void block_sums(const BlockSumsArgs& args);
void cluster_order(const ClusterOrderArgs& args);
void cluster_means(const ClusterMeansArgs& args);
void cluster_blocks(const ClusterBlocksArgs& args);

}  // namespace kpage::cpu
