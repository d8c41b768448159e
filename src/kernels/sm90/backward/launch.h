// Backward attention on Hopper (docs/backward.md).
#pragma once

#include <cstdint>

#include "kpage/attention_args.h"
#include "kpage/status.h"

namespace kpage::kernels::sm90 {

// Ok where backward() takes these arguments; else what is missing. The arguments must have passed
// the checks of the api.
[[nodiscard]] Status can_backward(const BackwardArgs& args);
// Row statistics and an fp32 dQ over the pages of valid rows; where query heads share K and V also
// fp32 sums of dK and dV, deterministic one of each for every query head. A function of shapes and
// of `deterministic` alone.
[[nodiscard]] std::int64_t backward_workspace_bytes(const BackwardArgs& args);
// Enqueues on args.stream; neither allocates nor synchronises.
[[nodiscard]] Status backward(const BackwardArgs& args);

}  // namespace kpage::kernels::sm90
