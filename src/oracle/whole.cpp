#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/parallel.h"
#include "oracle/oracle.h"
#include "oracle/problem.h"
#include "oracle/query_rows.h"

namespace kpage::oracle {
namespace {

using MatrixMap = Eigen::Map<Matrix>;

std::size_t elements(const std::array<std::int64_t, 4>& shape) {
  return static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
}

// A range of rows of a contiguous result of the shape of `like`.
MatrixMap rows_in(std::vector<double>& result, const TensorRef& like, std::int64_t batch,
                  std::int64_t head, const RowRange& rows) {
  const std::int64_t first = (batch * like.shape[1] + head) * like.shape[2] + rows.first;
  return {result.data() + first * like.shape[3], rows.count, like.shape[3]};
}

}  // namespace

Result<Forward> forward(const Problem& problem) {
  if (Status status = check(problem); !status.ok()) {
    return status;
  }
  const LayoutView& layout = problem.layout;
  const TensorRef& q = problem.q;
  Forward out;
  out.o.assign(elements(q.shape), 0.0);
  out.lse.assign(static_cast<std::size_t>(q.shape[0] * q.shape[1] * q.shape[2]),
                 -std::numeric_limits<double>::infinity());
  const std::int64_t heads = layout.heads;
  const std::int64_t blocks = layout.q.blocks;
  parallel_for(layout.batch * heads * blocks, problem.threads, [&](std::int64_t i, std::int32_t) {
    const std::int64_t batch = i / blocks / heads;
    const std::int64_t head = i / blocks % heads;
    const std::int64_t block = i % blocks;
    const RowRange rows = q_block_rows(layout, batch, head, block);
    const Queries queries =
        load_queries(problem, batch, head, block, rows_of(rows), std::nullopt, std::nullopt);
    rows_in(out.o, q, batch, head, rows) = queries.o;
    const std::int64_t first = (batch * heads + head) * q.shape[2] + rows.first;
    std::copy_n(queries.lse.data(), rows.count, out.lse.data() + first);
  });
  return out;
}

Result<Backward> backward(const Problem& problem, const OutputGradients& gradients,
                          const std::optional<ForwardOutputs>& outputs) {
  if (Status status = check(problem); !status.ok()) {
    return status;
  }
  if (Status status = check(problem, gradients); !status.ok()) {
    return status;
  }
  if (Status status = outputs ? check(problem, *outputs) : Status(); !status.ok()) {
    return status;
  }
  const LayoutView& layout = problem.layout;
  const TensorRef& k = problem.k;
  Backward out;
  out.dq.assign(elements(problem.q.shape), 0.0);
  out.dk.assign(elements(k.shape), 0.0);
  out.dv.assign(elements(k.shape), 0.0);
  const double scale = scale_of(problem);
  const std::int64_t kv_heads = k.shape[1];
  const std::int64_t group = layout.heads / kv_heads;
  // The query heads of a key/value head add to the same dK and dV: one thread takes them all.
  parallel_for(layout.batch * kv_heads, problem.threads, [&](std::int64_t i, std::int32_t) {
    const std::int64_t batch = i / kv_heads;
    const std::int64_t kv_head = i % kv_heads;
    for (std::int64_t j = 0; j < group * layout.q.blocks; ++j) {
      const std::int64_t head = kv_head * group + j / layout.q.blocks;
      const std::int64_t block = j % layout.q.blocks;
      const RowRange rows = q_block_rows(layout, batch, head, block);
      if (rows.count == 0) {
        continue;
      }
      const Queries queries =
          load_queries(problem, batch, head, block, rows_of(rows), gradients, outputs);
      MatrixMap dq = rows_in(out.dq, problem.q, batch, head, rows);
      for (const std::int32_t kv_block : list_of(layout, batch, head, block)) {
        const RowRange keys = kv_block_rows(layout, batch, head, kv_block);
        if (keys.count == 0) {
          continue;
        }
        const Matrix k_rows = read_rows(k, batch, kv_head, rows_of(keys));
        const Matrix v_rows = read_rows(problem.v, batch, kv_head, rows_of(keys));
        const PairGradients pairs = pair_gradients(queries, scale, k_rows, v_rows);
        dq.noalias() += scale * (pairs.ds * k_rows);
        rows_in(out.dk, k, batch, kv_head, keys).noalias() +=
            scale * (pairs.ds.transpose() * queries.q);
        rows_in(out.dv, k, batch, kv_head, keys).noalias() += pairs.p.transpose() * queries.d_o;
      }
    }
  });
  return out;
}

}  // namespace kpage::oracle
