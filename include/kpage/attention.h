// Exact attention over a plan, forward and backward, on the CPU and on CUDA devices.
//
// Calls neither allocate device memory nor synchronise: outputs and workspace are the caller's, and
// CUDA work goes to the stream passed in.
#pragma once

#include <cstdint>

#include "kpage/attention_args.h"
#include "kpage/export.h"
#include "kpage/status.h"

namespace KPAGE_EXPORT kpage {

[[nodiscard]] Status attention_forward(const ForwardArgs& args);
[[nodiscard]] Status attention_backward(const BackwardArgs& args);
// 0 on the CPU. Forward needs no more than the counters of its scheduler; backward an fp32 dQ over
// the pages of valid rows, LSE and delta. Nothing grows with the graph.
[[nodiscard]] std::int64_t forward_workspace_bytes(const ForwardArgs& args);
[[nodiscard]] std::int64_t backward_workspace_bytes(const BackwardArgs& args);

}  // namespace kpage
