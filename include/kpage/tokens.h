// Token movement: from a model's order of tokens to the rows of a layout and back, on the CPU and
// on CUDA devices. docs/token-movement.md says when tokens need not move at all.
//
// Calls neither allocate nor synchronise, and CUDA work goes to the stream passed in.
#pragma once

#include "kpage/export.h"
#include "kpage/status.h"
#include "kpage/token_args.h"

namespace KPAGE_EXPORT kpage {

// Row r of a head of `out` becomes row index[r] of that head of `x`. With a tiling's token_of_row
// this tiles, with its row_of_token it restores the model's order. Values are copied bit by bit.
[[nodiscard]] Status gather_rows(const GatherArgs& args);

// The index that undoes a gather, which is also that of its gradient. A row that `index` has twice
// is an error on the CPU; on a CUDA device, where values are not looked at, the later place counts.
[[nodiscard]] Status invert_index(const InvertArgs& args);

}  // namespace kpage
