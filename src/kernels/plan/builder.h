// Plans built on the device, in stream order: no allocation, no host read, nothing that a graph
// cannot capture. The bytes are those of the host builder (plan/builder.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kpage/layout.h"
#include "kpage/plan_shape.h"
#include "kpage/status.h"
#include "kpage/types.h"

namespace kpage::kernels {

// Writes a forward blob (forward_plan_bytes(shape), aligned to 128, on the device). `layout` holds
// device pointers. Faults of its values are dropped from the plan and told in its header.
[[nodiscard]] Status build_forward_plan(const LayoutView& layout, std::byte* blob, Stream stream);

// Bytes of scratch for build_backward_plan: two bits for every pair of a query and a K/V block, and
// a record for every window of K/V blocks.
[[nodiscard]] std::int64_t backward_plan_scratch_bytes(const PlanShape& shape);

// Writes a backward blob from a forward blob on the same device.
[[nodiscard]] Status build_backward_plan(const PlanShape& shape, const std::byte* forward,
                                         std::byte* blob, std::byte* scratch, Stream stream);

}  // namespace kpage::kernels
