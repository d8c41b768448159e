// Token movement on a CUDA device, in stream order. Arguments are those that api has checked.
#pragma once

#include "kpage/status.h"
#include "kpage/token_args.h"

namespace kpage::kernels {

[[nodiscard]] Status gather_rows(const GatherArgs& args);
[[nodiscard]] Status invert_index(const InvertArgs& args);

}  // namespace kpage::kernels
