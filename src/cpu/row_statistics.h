// What backward must know of each query row before it starts.
#pragma once

#include <cstdint>

#include "kpage/attention_args.h"

#include "cpu/buffer.h"
#include "cpu/paged_rows.h"
#include "cpu/problem.h"
#include "cpu/tile_ops.h"

namespace kpage::cpu {

// LSE and delta = rowsum(O * dO) - dLSE, over the pages of all heads. Rows of pages that are not
// valid, and rows without keys, have LSE +inf: no key has any probability there.
template <class Real>
class RowStatistics {
 public:
  RowStatistics(const Problem& problem, const BackwardArgs& args, const TileOps<Real>& ops,
                const PagedRows& rows);

  // Of the rows of a head, [rows.count(batch_head)].
  [[nodiscard]] const Real* lse(std::int64_t batch_head) const {
    return lse_.data() + rows_->first(batch_head);
  }
  [[nodiscard]] const Real* delta(std::int64_t batch_head) const {
    return delta_.data() + rows_->first(batch_head);
  }

 private:
  const PagedRows* rows_;
  Buffer<Real> lse_;    // [rows.all()]
  Buffer<Real> delta_;  // [rows.all()]
};

extern template class RowStatistics<float>;
extern template class RowStatistics<double>;

}  // namespace kpage::cpu
