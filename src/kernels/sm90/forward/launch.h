// The forward pass on Hopper. Calls neither allocate nor synchronise, and can be captured.
#pragma once

#include <cstdint>

#include "kpage/attention_args.h"
#include "kpage/status.h"

namespace kpage::kernels::sm90 {

// Ok, or what is supported and what came instead.
[[nodiscard]] Status can_forward(const ForwardArgs& args);
[[nodiscard]] std::int64_t forward_workspace_bytes(const ForwardArgs& args);
// Takes arguments that can_forward() accepts and whose shapes agree. What a plan built on the
// device says of rows past the end of a tensor is ignored: nothing is read or written there.
[[nodiscard]] Status forward(const ForwardArgs& args);
// The same on this many CTAs instead of one for each multiprocessor. For tests: the number decides
// which blocks are cut in two, and with it their last bits.
[[nodiscard]] Status forward_on(const ForwardArgs& args, std::int32_t ctas);

}  // namespace kpage::kernels::sm90
