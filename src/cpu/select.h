// Steps of selectors on the CPU. Arguments are those that api has checked.
#pragma once

#include "kpage/select_args.h"

namespace kpage::cpu {

void top_k(const TopKArgs& args);
void lists_of_map(const ListsArgs& args);
void block_sums(const BlockSumsArgs& args);

}  // namespace kpage::cpu
