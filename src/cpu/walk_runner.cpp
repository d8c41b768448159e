#include "cpu/walk_runner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/gather.h"

namespace kpage::cpu {
namespace {

constexpr std::int32_t kRows = kBlockRows;
constexpr std::int32_t kColumns = plan::kTileColumns;
constexpr std::int32_t kStates = plan::kQ64Tiles;

}  // namespace

template <class Real>
WalkRunner<Real>::WalkRunner(const Problem& problem, const TileOps<Real>& ops)
    : problem_(&problem),
      ops_(&ops),
      q_(kRows * problem.head_dim),
      k_(kColumns * problem.head_dim),
      v_(kColumns * problem.head_dim),
      p_(kRows * kColumns),
      o_(kStates * kRows * problem.head_dim),
      row_max_(kStates * kRows),
      row_sum_(kStates * kRows),
      rescale_(kRows),
      lse_(kRows) {}

template <class Real>
void WalkRunner<Real>::run(std::int64_t walk) {
  const plan::ForwardView& plan = problem_->plan;
  const std::int64_t batch_head = walk / plan.shape.q_blocks;
  const plan::Extent& block = plan.q_blocks(batch_head)[walk % plan.shape.q_blocks];
  const std::int32_t rows = plan::pages_of(block.rows) * plan::kPageRows;
  // The Q64 route takes two tiles at once, each with a softmax state of its own.
  const std::int32_t states = plan::takes_q64(block.rows) ? kStates : 1;
  for (std::int32_t s = 0; s < states; ++s) {
    clear(state(s), rows);
  }
  gather(*ops_, problem_->of_query_head(problem_->q, batch_head), block.row, block.rows, rows,
         q_.data());
  attend(walk, batch_head, rows, states);
  for (std::int32_t s = 1; s < states; ++s) {
    merge(state(0), state(s), rows);
  }
  finish(state(0), rows);
}

template <class Real>
typename WalkRunner<Real>::State WalkRunner<Real>::state(std::int32_t number) const {
  return {o_.data() + number * kRows * problem_->head_dim, row_max_.data() + number * kRows,
          row_sum_.data() + number * kRows};
}

template <class Real>
void WalkRunner<Real>::clear(const State& s, std::int32_t rows) {
  std::fill_n(s.o, rows * problem_->head_dim, Real{0});
  std::fill_n(s.row_max, rows, -std::numeric_limits<Real>::infinity());
  std::fill_n(s.row_sum, rows, Real{0});
}

template <class Real>
void WalkRunner<Real>::attend(std::int64_t walk, std::int64_t batch_head, std::int32_t rows,
                              std::int32_t states) {
  const plan::ForwardView& plan = problem_->plan;
  const plan::Walk& w = plan.walks[walk];
  const plan::Extent* blocks = plan.kv_blocks(batch_head);
  const std::int32_t* entries = plan.walk_entries(walk);
  const HeadRows k = problem_->of_kv_head(problem_->k, batch_head);
  const HeadRows v = problem_->of_kv_head(problem_->v, batch_head);

  ForwardTile<Real> tile;
  tile.rows = rows;
  tile.head_dim = problem_->head_dim;
  tile.scale = static_cast<Real>(problem_->scale);
  tile.round_to = problem_->round_to;
  tile.q = q_.data();
  tile.k = k_.data();
  tile.v = v_.data();
  tile.p = p_.data();
  tile.rescale = rescale_.data();

  const auto run_at = [&](std::int32_t i) {
    return plan::run_of(w, i, blocks[entries[plan::entry_of_run(w, i)]]);
  };
  const std::int32_t first_masked = plan::first_masked_tile(w);
  plan::Cursor cursor;
  for (std::int32_t t = 0; t < plan::walk_tiles(w); ++t) {
    const auto pages = plan::next_tile<plan::kTilePages>(cursor, plan::walk_runs(w), run_at);
    for (std::int32_t i = 0; i < pages.count; ++i) {
      const plan::Segment& part = pages.segment[i];
      const std::int64_t at = std::int64_t{part.slot} * plan::kPageRows * problem_->head_dim;
      const std::int32_t padded = part.pages * plan::kPageRows;
      gather(*ops_, k, part.row, part.rows, padded, k_.data() + at);
      gather(*ops_, v, part.row, part.rows, padded, v_.data() + at);
    }
    tile.columns = pages.pages * plan::kPageRows;
    tile.masks = t < first_masked
                     ? nullptr
                     : plan.walk_masks(walk) + (t - first_masked) * plan::kMaskWordsPerTile;
    const State s = state(t % states);
    tile.o = s.o;
    tile.row_max = s.row_max;
    tile.row_sum = s.row_sum;
    ops_->forward(tile);
  }
}

template <class Real>
void WalkRunner<Real>::merge(const State& to, const State& from, std::int32_t rows) {
  const std::int32_t head_dim = problem_->head_dim;
  for (std::int32_t r = 0; r < rows; ++r) {
    if (from.row_sum[r] == 0) {
      continue;
    }
    const Real row_max = std::max(to.row_max[r], from.row_max[r]);
    const Real keep = std::exp(to.row_max[r] - row_max);
    const Real add = std::exp(from.row_max[r] - row_max);
    to.row_max[r] = row_max;
    to.row_sum[r] = to.row_sum[r] * keep + from.row_sum[r] * add;
    Real* o = to.o + std::int64_t{r} * head_dim;
    const Real* other = from.o + std::int64_t{r} * head_dim;
    for (std::int32_t d = 0; d < head_dim; ++d) {
      o[d] = o[d] * keep + other[d] * add;
    }
  }
}

template <class Real>
void WalkRunner<Real>::finish(const State& s, std::int32_t rows) {
  const std::int32_t head_dim = problem_->head_dim;
  for (std::int32_t r = 0; r < rows; ++r) {
    if (s.row_sum[r] == 0) {
      lse_.data()[r] = -std::numeric_limits<Real>::infinity();
      continue;
    }
    // The sum of two fp32 numbers of different size loses more than fp32 LSE may.
    lse_.data()[r] = static_cast<Real>(static_cast<double>(s.row_max[r]) +
                                       std::log(static_cast<double>(s.row_sum[r])));
    const Real inverse = Real{1} / s.row_sum[r];
    Real* o = s.o + std::int64_t{r} * head_dim;
    for (std::int32_t d = 0; d < head_dim; ++d) {
      o[d] *= inverse;
    }
  }
}

template class WalkRunner<float>;
template class WalkRunner<double>;

}  // namespace kpage::cpu
