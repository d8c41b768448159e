#include "timed_plan.h"

#include "failure.h"
#include "progress.h"

namespace kpage::cli {

TimedPlan build_plan(const LayoutView& layout, const std::string& source, bool backward,
                     const Console& console) {
  TimedPlan made;
  {
    const Progress progress(console, "plan");
    made.forward_ms = time_of([&] { made.plan = value_of(Plan::build(layout), source); });
  }
  if (backward) {
    made.backward_ms = build_backward(made.plan, source, console);
  }
  return made;
}

double build_backward(Plan& plan, const std::string& source, const Console& console) {
  const Progress progress(console, "backward part of the plan");
  return time_of([&] { check(plan.build_backward(), source); });
}

}  // namespace kpage::cli
