// Plans as the commands build them: under a progress bar, timed.
#pragma once

#include <string>

#include "kpage/layout.h"
#include "kpage/plan.h"

#include "console.h"

namespace kpage::cli {

struct TimedPlan {
  Plan plan;
  double forward_ms = 0;
  double backward_ms = 0;
};

// With its backward part where that is asked for. `source`, what the layout comes from, is named
// where it is at fault.
[[nodiscard]] TimedPlan build_plan(const LayoutView& layout, const std::string& source,
                                   bool backward, const Console& console);
// Milliseconds that the backward part took.
double build_backward(Plan& plan, const std::string& source, const Console& console);

}  // namespace kpage::cli
