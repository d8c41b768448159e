#include "cpu/row_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "cpu/walk_runner.h"

namespace kpage::cpu {
namespace {

// O and LSE of one query block: those that forward left, or computed again, because exact gradients
// need more digits than tensors hold.
template <class Real>
class BlockOutputs {
 public:
  BlockOutputs(const Problem& problem, const BackwardArgs& args, const TileOps<Real>& ops)
      : problem_(&problem),
        args_(&args),
        ops_(&ops),
        runner_(problem, ops),
        o_(kBlockRows * problem.head_dim),
        d_o_(kBlockRows * problem.head_dim) {}

  // To lse and delta, [block.rows].
  void statistics(std::int64_t walk, Real* lse, Real* delta) {
    const plan::ForwardView& plan = problem_->plan;
    const std::int64_t bh = walk / plan.shape.q_blocks;
    const plan::Extent& block = plan.q_blocks(bh)[walk % plan.shape.q_blocks];
    const Real* o = o_.data();
    if (args_->cpu_policy == CpuPolicy::kExact) {
      runner_.run(walk);
      o = runner_.o();
      std::copy_n(runner_.lse(), block.rows, lse);
    } else {
      widen(args_->o, bh, block, o_.data());
      for (std::int32_t r = 0; r < block.rows; ++r) {
        lse[r] = static_cast<Real>(row_of(args_->lse, bh, block.row + r));
      }
    }
    widen(args_->d_o, bh, block, d_o_.data());
    for (std::int32_t r = 0; r < block.rows; ++r) {
      delta[r] = dot(o + r * problem_->head_dim, d_o_.data() + r * problem_->head_dim);
      if (args_->d_lse.data != nullptr) {
        delta[r] -= static_cast<Real>(row_of(args_->d_lse, bh, block.row + r));
      }
      if (std::isinf(lse[r]) && lse[r] < 0) {
        lse[r] = std::numeric_limits<Real>::infinity();
        delta[r] = 0;
      }
    }
  }

 private:
  void widen(const TensorRef& t, std::int64_t batch_head, const plan::Extent& block, Real* to) {
    const HeadRows rows = problem_->of_query_head(t, batch_head);
    ops_->widen(rows.row(block.row), rows.dtype, rows.stride, block.rows, problem_->head_dim, to);
  }
  [[nodiscard]] float row_of(const RowsRef& t, std::int64_t batch_head, std::int64_t row) const {
    return at(t, problem_->batch(batch_head), problem_->head(batch_head), row);
  }
  [[nodiscard]] Real dot(const Real* a, const Real* b) const {
    Real sum = 0;
    for (std::int32_t d = 0; d < problem_->head_dim; ++d) {
      sum += a[d] * b[d];
    }
    return sum;
  }

  const Problem* problem_;
  const BackwardArgs* args_;
  const TileOps<Real>* ops_;
  WalkRunner<Real> runner_;
  Buffer<Real> o_, d_o_;
};

}  // namespace

template <class Real>
RowStatistics<Real>::RowStatistics(const Problem& problem, const BackwardArgs& args,
                                   const TileOps<Real>& ops, const PagedRows& rows)
    : rows_(&rows), lse_(rows.all()), delta_(rows.all()) {
  std::fill_n(lse_.data(), rows.all(), std::numeric_limits<Real>::infinity());
  std::fill_n(delta_.data(), rows.all(), Real{0});

  const plan::ForwardView& plan = problem.plan;
  const std::int64_t walks = plan::walk_count(plan.shape);
  const std::int32_t threads = thread_count(args.threads, walks);
  std::vector<BlockOutputs<Real>> outputs;
  outputs.reserve(static_cast<std::size_t>(threads));
  for (std::int32_t i = 0; i < threads; ++i) {
    outputs.emplace_back(problem, args, ops);
  }
  parallel_for(walks, threads, [&](std::int64_t walk, std::int32_t worker) {
    const std::int64_t bh = walk / plan.shape.q_blocks;
    const plan::Extent& block = plan.q_blocks(bh)[walk % plan.shape.q_blocks];
    if (block.rows > 0) {
      const std::int64_t first = rows.first(bh) + PagedRows::of_block(block);
      outputs[static_cast<std::size_t>(worker)].statistics(walk, lse_.data() + first,
                                                           delta_.data() + first);
    }
  });
}

template class RowStatistics<float>;
template class RowStatistics<double>;

}  // namespace kpage::cpu
