#include "oracle/query_rows.h"

#include <limits>

namespace kpage::oracle {
namespace {

// Softmax over one block of keys at a time, so that lists of any length fit in memory.
void attend(const Problem& problem, Queries& queries) {
  const double scale = scale_of(problem);
  const std::int64_t kv_head = kv_head_of(problem, queries.head);
  const Eigen::Index rows = queries.q.rows();
  queries.o = Matrix::Zero(rows, queries.q.cols());
  queries.lse = Vector::Constant(rows, -std::numeric_limits<double>::infinity());
  Vector maximum = queries.lse;
  Vector sum = Vector::Zero(rows);
  for (const std::int32_t block :
       list_of(problem.layout, queries.batch, queries.head, queries.block)) {
    const RowRange keys = kv_block_rows(problem.layout, queries.batch, queries.head, block);
    if (keys.count == 0) {
      continue;
    }
    const Matrix k = read_rows(problem.k, queries.batch, kv_head, rows_of(keys));
    const Matrix v = read_rows(problem.v, queries.batch, kv_head, rows_of(keys));
    Matrix p = scale * (queries.q * k.transpose());
    const Vector before = maximum;
    maximum = maximum.cwiseMax(p.rowwise().maxCoeff());
    const Vector factor = (before - maximum).array().exp();
    p = (p.colwise() - maximum).array().exp();
    sum = sum.cwiseProduct(factor) + p.rowwise().sum();
    queries.o = factor.asDiagonal() * queries.o;
    queries.o.noalias() += p * v;
  }
  for (Eigen::Index i = 0; i < rows; ++i) {
    if (sum[i] > 0) {
      queries.o.row(i) /= sum[i];
      queries.lse[i] = maximum[i] + std::log(sum[i]);
    }
  }
}

}  // namespace

Queries load_queries(const Problem& problem, std::int64_t batch, std::int64_t head,
                     std::int64_t block, std::span<const std::int64_t> rows,
                     const std::optional<OutputGradients>& gradients,
                     const std::optional<ForwardOutputs>& outputs) {
  Queries queries;
  queries.batch = batch;
  queries.head = head;
  queries.block = block;
  queries.q = read_rows(problem.q, batch, head, rows);
  if (outputs) {
    queries.o = read_rows(outputs->o, batch, head, rows);
    queries.lse = read_rows(outputs->lse, batch, head, rows);
  } else {
    attend(problem, queries);
  }
  if (gradients) {
    queries.d_o = read_rows(gradients->d_o, batch, head, rows);
    queries.shift = queries.o.cwiseProduct(queries.d_o).rowwise().sum();
    if (gradients->d_lse.data != nullptr) {
      queries.shift -= read_rows(gradients->d_lse, batch, head, rows);
    }
  }
  return queries;
}

PairGradients pair_gradients(const Queries& queries, double scale, const Matrix& k,
                             const Matrix& v) {
  PairGradients out;
  out.p = scale * (queries.q * k.transpose());
  out.p = (out.p.colwise() - queries.lse).array().exp();
  out.ds = queries.d_o * v.transpose();
  out.ds = out.p.cwiseProduct(out.ds.colwise() - queries.shift);
  return out;
}

}  // namespace kpage::oracle
