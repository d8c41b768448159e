// The figures of PlanStats under the names that Python's plan.stats() and the command line show.
#pragma once

#include <cstdint>
#include <vector>

#include "kpage/export.h"
#include "kpage/plan.h"

namespace KPAGE_EXPORT kpage {

struct PlanFigure {
  const char* name;
  std::int64_t value;
};

// In the order of PlanStats. Efficiency, the only one that is no integer, is
// PlanStats::efficiency().
[[nodiscard]] std::vector<PlanFigure> plan_figures(const PlanStats& stats);

}  // namespace kpage
