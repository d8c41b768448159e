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

// What the inputs are. Limits are for random ones. Real layers have sharp scores:
// there delta of a rounded O outweighs every other error of a backward in half precision, so that
// gradients are compared with those that follow from the run's own O and LSE; LSE may be off by
// what fp32 sums of such scores are; and a few large terms carry a gradient, so that its roundings
// do not average out and twice the limit, with the cosine that goes with it, is allowed.
enum class InputKind { kRandom, kReal };

struct CheckResult {
  std::vector<CheckedError> errors;
  std::int64_t query_rows = 0;
  std::int64_t key_rows = 0;
  double time_ms = 0;
  InputKind kind = InputKind::kRandom;

  [[nodiscard]] bool passed() const;
};

// Draws up to `rows` valid query rows, and where backward ran a few key rows.
[[nodiscard]] CheckResult check_against_oracle(const LayoutView& layout, const RunInputs& inputs,
                                               RunOutputs& outputs, std::int64_t rows,
                                               std::uint64_t seed, InputKind kind,
                                               const Console& console);

// Of a row with this error: its limit, of a gradient the cosine, and whether it failed.
[[nodiscard]] std::string limit_note(const CheckedError& error);

// Rows and JSON: `error` is that of o.
void add_errors(Page& page, const CheckResult& result);

}  // namespace kpage::cli
