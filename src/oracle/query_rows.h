// Some rows of one query block: their attention, and what they pass back to each block of keys.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "oracle/oracle.h"
#include "oracle/problem.h"

namespace kpage::oracle {

// Rows of one query block of one head, with everything that gradients need of them.
struct Queries {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t block = 0;
  Matrix q;      // [rows, D]
  Matrix o;      // [rows, D]
  Vector lse;    // [rows]
  Matrix d_o;    // [rows, D]; empty without gradients
  Vector shift;  // [rows]: delta - d_lse
};

// Reads the rows and runs forward for them. With `outputs`, their LSE and O are taken instead.
[[nodiscard]] Queries load_queries(const Problem& problem, std::int64_t batch, std::int64_t head,
                                   std::int64_t block, std::span<const std::int64_t> rows,
                                   const std::optional<OutputGradients>& gradients,
                                   const std::optional<ForwardOutputs>& outputs);

// P and dS of these rows against some keys: P = exp(scale q k^T - lse), dS = P (dO v^T - shift).
struct PairGradients {
  Matrix p;   // [rows, keys]
  Matrix ds;  // [rows, keys]
};
[[nodiscard]] PairGradients pair_gradients(const Queries& queries, double scale, const Matrix& k,
                                           const Matrix& v);

}  // namespace kpage::oracle
