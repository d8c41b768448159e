// Every invariant of a plan, checked on the host. The message says which one does not hold, where.
#pragma once

#include "kpage/status.h"

#include "plan/format.h"

namespace kpage::plan {

[[nodiscard]] Status validate_forward(const ForwardView& plan);
// The forward part must be valid: the graph is read from it.
[[nodiscard]] Status validate_backward(const ForwardView& forward, const BackwardView& plan);

}  // namespace kpage::plan
