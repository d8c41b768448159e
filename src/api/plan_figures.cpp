#include "kpage/plan_figures.h"

namespace kpage {

std::vector<PlanFigure> plan_figures(const PlanStats& s) {
  return {
      {"q_blocks", s.q_blocks},
      {"q_blocks_empty", s.q_blocks_empty},
      {"q_blocks_without_keys", s.q_blocks_without_keys},
      {"kv_blocks", s.kv_blocks},
      {"kv_blocks_empty", s.kv_blocks_empty},
      {"q_rows", s.q_rows},
      {"kv_rows", s.kv_rows},
      {"edges", s.edges},
      {"useful_pairs", s.useful_pairs},
      {"whole_block_pairs", s.whole_block_pairs},
      {"paged_pairs", s.paged_pairs},
      {"routed_pairs", s.routed_pairs},
      {"paged_tail_pairs", s.paged_tail_pairs},
      {"routed_tail_pairs", s.routed_tail_pairs},
      {"paper_tail_pairs", s.paper_tail_pairs},
      {"q128_blocks", s.q128_blocks},
      {"q64_blocks", s.q64_blocks},
      {"q128_tiles", s.q128_tiles},
      {"q64_tiles", s.q64_tiles},
      {"q128_longest_walk", s.q128_longest_walk},
      {"q64_longest_walk", s.q64_longest_walk},
      {"owners8", s.owners8},
      {"owners4", s.owners4},
      {"mixed_owners", s.mixed_owners},
      {"backward_items", s.backward_items},
      {"backward_pairs", s.backward_pairs},
      {"backward_tail_pairs", s.backward_tail_pairs},
      {"backward_union_pairs", s.backward_union_pairs},
  };
}

}  // namespace kpage
