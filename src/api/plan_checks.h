// What a plan must satisfy before a backend walks it. A plan on a device cannot be read here: of
// that, only what its reference says is checked.
#pragma once

#include <cstdint>

#include "kpage/plan.h"
#include "kpage/status.h"

namespace kpage::api {

[[nodiscard]] Status check_plan(const PlanRef& ref, const Device& device, bool needs_backward);
// That q and k reach to the last valid row of every block.
[[nodiscard]] Status check_plan_rows(const PlanRef& ref, std::int64_t q_rows, std::int64_t kv_rows);

}  // namespace kpage::api
