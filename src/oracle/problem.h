// A problem's parts by (batch, head), and the checks that make reading them safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "kpage/layout.h"
#include "kpage/status.h"

#include "oracle/blocks.h"
#include "oracle/oracle.h"

namespace kpage::oracle {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;

// The layout is valid, and every row of it lies in the tensors, which are in host memory.
[[nodiscard]] Status check(const Problem& problem);
[[nodiscard]] Status check(const Problem& problem, const OutputGradients& gradients);
[[nodiscard]] Status check(const Problem& problem, const ForwardOutputs& outputs);

[[nodiscard]] double scale_of(const Problem& problem);
// Which key/value head a query head reads.
[[nodiscard]] std::int64_t kv_head_of(const Problem& problem, std::int64_t head);

// [rows, D]
[[nodiscard]] Matrix read_rows(const TensorRef& tensor, std::int64_t batch, std::int64_t head,
                               std::span<const std::int64_t> rows);
// [rows]
[[nodiscard]] Vector read_rows(const RowsRef& numbers, std::int64_t batch, std::int64_t head,
                               std::span<const std::int64_t> rows);
// first, first + 1, ...
[[nodiscard]] std::vector<std::int64_t> rows_of(const RowRange& range);

}  // namespace kpage::oracle
