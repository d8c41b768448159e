// Every invariant of a plan, checked on the host. The message says which one does not hold, where.
#pragma once

#include "kpage/status.h"

#include "plan/format.h"

namespace kpage::plan {

// That the 32-bit counts and indices of the format hold a plan of this shape, and that the sizes
// computed from it can be trusted.
[[nodiscard]] Status check_shape(const Shape& shape);

[[nodiscard]] Status validate_forward(const ForwardView& plan);
// The forward part must be valid: the graph is read from it.
[[nodiscard]] Status validate_backward(const ForwardView& forward, const BackwardView& plan);

}  // namespace kpage::plan
