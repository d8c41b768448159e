// Runs the reverse walk of one K/V owner, with scratch memory of its own.
#pragma once

#include <cstdint>

#include "kpage/attention_args.h"

#include "cpu/buffer.h"
#include "cpu/problem.h"
#include "cpu/row_statistics.h"
#include "cpu/schedule.h"
#include "cpu/tile_ops.h"

namespace kpage::cpu {

template <class Real>
class OwnerRunner {
 public:
  OwnerRunner(const Problem& problem, const plan::BackwardView& backward, const TensorRef& d_o,
              const TileOps<Real>& ops, const RowStatistics<Real>& statistics);

  // Runs all items of an owner. Adds to `dq`, [rows of the head's pages, head_dim], and leaves
  // dk() and dv(). dQ and dK are still to be multiplied by the scale.
  void run(const plan::Owner& owner, OwnerItems items, Real* dq);

  // Of the rows of the owner's pages, [pages * 16, head_dim].
  [[nodiscard]] Real* dk() const { return dk_.data(); }
  [[nodiscard]] Real* dv() const { return dv_.data(); }

 private:
  // Slots that any query block attends to. Others may hold anything, so they are not read.
  [[nodiscard]] std::uint32_t attended_slots(const OwnerItems& items) const;
  void load_owner(const plan::Owner& owner, std::uint32_t attended);
  template <std::int32_t kPages>
  void run_item(const plan::Owner& owner, const plan::OwnerItem& item, Real* dq);
  template <std::int32_t kPages>
  void load_step(const plan::Owner& owner, const std::uint32_t* entries,
                 const plan::TileSegments<kPages>& pages);
  template <std::int32_t kPages>
  void add_dq(const plan::Owner& owner, const std::uint32_t* entries,
              const plan::TileSegments<kPages>& pages, Real* dq);

  const Problem* problem_;
  const plan::BackwardView* backward_;
  const TensorRef* d_o_tensor_;
  const TileOps<Real>* ops_;
  const RowStatistics<Real>* statistics_;
  BackwardStep<Real> step_;
  std::uint32_t masks_[plan::kMaskWordsPerTile] = {};
  Buffer<Real> q_, d_o_, lse_, delta_, k_, v_, p_, ds_, dq_, dk_, dv_;
};

extern template class OwnerRunner<float>;
extern template class OwnerRunner<double>;

}  // namespace kpage::cpu
