// The page of a run as one HTML file with pictures, which needs nothing but itself.
#pragma once

#include <iosfwd>
#include <string>

#include "kpage/geometry.h"
#include "kpage/layout.h"
#include "kpage/plan.h"

#include "checks.h"
#include "page.h"

namespace kpage::cli {

struct RunFigures {
  double select_ms = 0;
  double plan_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double density = 0;       // useful pairs among all pairs of tokens
  double forward_flop = 0;  // 4 D for each useful pair
};

struct ReportInput {
  const std::string& title;
  const Json& figures;  // as kpage run --json prints them
  const Tiling& tiling;
  const Layout& layout;
  const Plan& plan;
  const CheckResult& checked;
  const RunFigures& run;
};

void write_report(std::ostream& file, const ReportInput& input);

}  // namespace kpage::cli
