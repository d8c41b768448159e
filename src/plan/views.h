// Typed views of the blobs of a plan reference.
#pragma once

#include "kpage/plan.h"

#include "plan/format.h"

namespace kpage::plan {

inline ForwardView forward_view(const PlanRef& ref) {
  return ForwardView::at(ref.shape, ref.forward);
}
// Only where the backward part is built.
inline BackwardView backward_view(const PlanRef& ref) {
  return BackwardView::at(ref.shape, ref.backward);
}

}  // namespace kpage::plan
