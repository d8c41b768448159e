// The figures of a plan as rows and JSON, shared by the commands.
#pragma once

#include "kpage/plan.h"

#include "page.h"

namespace kpage::cli {

// Pairs that each way of executing a layout has to compute, with what share of them is useful, and
// the tiles by route; JSON has the names of plan.stats().
void add_plan_figures(Page& page, const PlanStats& stats);

}  // namespace kpage::cli
