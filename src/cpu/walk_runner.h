// Attends one query block: runs its walk tile by tile, with scratch memory of its own.
#pragma once

#include <cstdint>

#include "cpu/buffer.h"
#include "cpu/problem.h"
#include "cpu/tile_ops.h"

namespace kpage::cpu {

template <class Real>
class WalkRunner {
 public:
  WalkRunner(const Problem& problem, const TileOps<Real>& ops);

  // Number (batch * heads + head) * q_blocks + block. Leaves o() and lse().
  void run(std::int64_t walk);

  // Of the valid rows of the block; zero and -inf where the walk is empty.
  [[nodiscard]] const Real* o() const { return o_.data(); }      // [rows, head_dim]
  [[nodiscard]] const Real* lse() const { return lse_.data(); }  // [rows]

 private:
  // Online softmax over the tiles it was given.
  struct State {
    Real* o;        // [rows, head_dim]
    Real* row_max;  // [rows]
    Real* row_sum;  // [rows]
  };

  [[nodiscard]] State state(std::int32_t number) const;
  void clear(const State& s, std::int32_t rows);
  void attend(std::int64_t walk, std::int64_t batch_head, std::int32_t rows, std::int32_t states);
  void merge(const State& to, const State& from, std::int32_t rows);
  void finish(const State& s, std::int32_t rows);

  const Problem* problem_;
  const TileOps<Real>* ops_;
  Buffer<Real> q_, k_, v_, p_, o_, row_max_, row_sum_, rescale_, lse_;
};

extern template class WalkRunner<float>;
extern template class WalkRunner<double>;

}  // namespace kpage::cpu
