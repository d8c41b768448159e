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
// 0 on the CPU. Functions of shapes alone, whatever the graph is. Forward needs the counters of its
// scheduler. Backward: an fp32 dQ and two numbers a row for as many pages of 16 query rows as
// blocks can have (min(8 NQ, Sq / 16 + NQ) for each head); with shared K/V heads fp32 sums of dK
// and dV, [B, Hkv, Sk, D], or [B, H, Sk, D] where deterministic; deterministic, two bytes a query
// row and the bounds of heads.
[[nodiscard]] std::int64_t forward_workspace_bytes(const ForwardArgs& args);
[[nodiscard]] std::int64_t backward_workspace_bytes(const BackwardArgs& args);

}  // namespace kpage
