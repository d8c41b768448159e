// Compares sampled rows of a run with the oracle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kpage/layout.h"

#include "attention_run.h"
#include "console.h"
#include "page.h"

namespace kpage::cli {

struct CheckedError {
  std::string name;  // o, lse, dq, dk, dv
  double error = 0;  // relative l2 over the sampled rows; of lse the largest absolute error
  double limit = 0;
  double cosine = 1;
  bool passed = false;
};

// What gradients are compared with.
enum class GradientReference {
  kExact,  // the oracle's own
  // The oracle's, from the run's O and LSE: the error of backward alone. Where scores are sharp, as
  // in real layers, delta of a rounded O outweighs every other error of a backward in half
  // precision, so that exact gradients judge nothing.
  kFromOutputs,
};

struct CheckResult {
  std::vector<CheckedError> errors;
  std::int64_t query_rows = 0;
  std::int64_t key_rows = 0;
  double time_ms = 0;
  GradientReference reference = GradientReference::kExact;

  [[nodiscard]] bool passed() const;
};

// Draws up to `rows` valid query rows, and where backward ran a few key rows.
[[nodiscard]] CheckResult check_against_oracle(const LayoutView& layout, const RunInputs& inputs,
                                               RunOutputs& outputs, std::int64_t rows,
                                               std::uint64_t seed, GradientReference reference,
                                               const Console& console);

// Rows and JSON: `error` is that of o.
void add_errors(Page& page, const CheckResult& result);

}  // namespace kpage::cli
