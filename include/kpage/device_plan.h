// Plans built on a CUDA device, in stream order: no allocation, no synchronisation, nothing that a
// CUDA graph cannot capture. The bytes equal those of Plan::build() and Plan::build_backward().
#pragma once

#include <cstddef>
#include <cstdint>

#include "kpage/export.h"
#include "kpage/layout.h"
#include "kpage/plan.h"
#include "kpage/status.h"
#include "kpage/types.h"

namespace KPAGE_EXPORT kpage {

// Writes a forward blob of forward_plan_bytes(plan_shape(layout)), aligned to 128, from a layout of
// device pointers. Values out of range and duplicate ids are dropped from the plan, so that it
// never leads to a bad access, and told in its header: see plan_fault().
[[nodiscard]] Status build_device_plan(const LayoutView& layout, std::byte* forward, Stream stream);

// Writes a backward blob of backward_plan_bytes(plan.shape) from the forward part of a plan. The
// scratch is free again when the stream has come past this work.
[[nodiscard]] std::int64_t backward_plan_scratch_bytes(const PlanShape& shape);
[[nodiscard]] Status build_device_backward_plan(const PlanRef& plan, std::byte* backward,
                                                std::byte* scratch, std::int64_t scratch_bytes,
                                                Stream stream);

}  // namespace kpage
