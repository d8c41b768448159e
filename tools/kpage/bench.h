// Timed runs in the form of bench/results/*.json.
#pragma once

#include <string>

#include "console.h"
#include "page.h"

namespace kpage::cli {

// What `kpage bench --compare` finds of two files of results: a row for each layout, pass and
// kernel that either has. Times are taken relative to dense attention in the same file where both
// files have it, since a chip's clock moves between runs.
struct Comparison {
  Page page;
  bool regressed = false;  // a row of `a` is slower in `b` by more than the tolerance, or missing
};
[[nodiscard]] Comparison compare_results(const std::string& a, const std::string& b,
                                         double tolerance);

}  // namespace kpage::cli
