// The pairs of a query row and a key row that a plan executes, against those of its layout.
#pragma once

#include <string>

#include "kpage/layout.h"
#include "kpage/plan.h"

namespace kpage::test {

// Walks the plan as the backends do and counts every pair of rows that no mask hides. Returns what
// differs from the layout, where each pair of a list counts once: empty where nothing does.
[[nodiscard]] std::string forward_pairs_difference(const LayoutView& layout, const Plan& plan);
// The same for the reverse walks of the owners.
[[nodiscard]] std::string backward_pairs_difference(const LayoutView& layout, const Plan& plan);

}  // namespace kpage::test
