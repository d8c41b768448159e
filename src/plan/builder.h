// The host builder. What it writes, a device builder writes byte for byte.
#pragma once

#include "kpage/layout.h"

#include "plan/format.h"

namespace kpage::plan {

// Both take zeroed blobs. The layout must have passed kpage::validate().
void build_forward(const LayoutView& layout, const MutableForward& plan);
void build_backward(const ForwardView& forward, const MutableBackward& plan);

}  // namespace kpage::plan
