// Exact attention over a plan, forward and backward, on the CPU and on CUDA devices.
//
// Calls neither allocate device memory nor synchronise: outputs and workspace are the caller's, and
// CUDA work goes to the stream passed in.
#pragma once

#include <cstdint>

#include "kpage/attention_args.h"
#include "kpage/status.h"

namespace kpage {

[[nodiscard]] Status attention_forward(const ForwardArgs& args);
[[nodiscard]] Status attention_backward(const BackwardArgs& args);
// 0 on the CPU.
[[nodiscard]] std::int64_t backward_workspace_bytes(const BackwardArgs& args);

}  // namespace kpage
