#include "cpu/owner_runner.h"

#include <algorithm>

#include "cpu/gather.h"

namespace kpage::cpu {
namespace {

constexpr std::int32_t kMostPages = plan::kStepPairs / plan::kSmallOwnerSlots;  // of a step
constexpr std::int32_t kMostRows = kMostPages * plan::kPageRows;
constexpr std::int32_t kMostColumns = plan::kOwnerSlots * plan::kPageRows;
constexpr std::int32_t kScores = plan::kStepPairs * plan::kPageRows * plan::kPageRows;

}  // namespace

template <class Real>
OwnerRunner<Real>::OwnerRunner(const Problem& problem, const plan::BackwardView& backward,
                               const TensorRef& d_o, const TileOps<Real>& ops,
                               const RowStatistics<Real>& statistics)
    : problem_(&problem),
      backward_(&backward),
      d_o_tensor_(&d_o),
      ops_(&ops),
      statistics_(&statistics),
      q_(kMostRows * problem.head_dim),
      d_o_(kMostRows * problem.head_dim),
      lse_(kMostRows),
      delta_(kMostRows),
      k_(kMostColumns * problem.head_dim),
      v_(kMostColumns * problem.head_dim),
      p_(kScores),
      ds_(kScores),
      dq_(kMostRows * problem.head_dim),
      dk_(kMostColumns * problem.head_dim),
      dv_(kMostColumns * problem.head_dim) {
  step_.head_dim = problem.head_dim;
  step_.scale = static_cast<Real>(problem.scale);
  step_.round_to = problem.round_to;
  step_.q = q_.data();
  step_.d_o = d_o_.data();
  step_.lse = lse_.data();
  step_.delta = delta_.data();
  step_.k = k_.data();
  step_.v = v_.data();
  step_.p = p_.data();
  step_.ds = ds_.data();
  step_.dq = dq_.data();
  step_.dk = dk_.data();
  step_.dv = dv_.data();
}

template <class Real>
void OwnerRunner<Real>::run(const plan::Owner& owner, OwnerItems items, Real* dq) {
  const std::int64_t size = std::int64_t{owner.pages} * plan::kPageRows * problem_->head_dim;
  std::fill_n(dk_.data(), size, Real{0});
  std::fill_n(dv_.data(), size, Real{0});
  const std::uint32_t attended = attended_slots(items);
  if (attended == 0) {
    return;
  }
  load_owner(owner, attended);
  for (const std::uint32_t item : items) {
    if (owner.slots == plan::kOwnerSlots) {
      run_item<plan::kStepPairs / plan::kOwnerSlots>(owner, backward_->items[item], dq);
    } else {
      run_item<plan::kStepPairs / plan::kSmallOwnerSlots>(owner, backward_->items[item], dq);
    }
  }
}

template <class Real>
std::uint32_t OwnerRunner<Real>::attended_slots(const OwnerItems& items) const {
  std::uint32_t slots = 0;
  for (const std::uint32_t i : items) {
    const plan::OwnerItem& item = backward_->items[i];
    for (std::int32_t e = 0; e < item.entries; ++e) {
      slots |=
          plan::entry_slots(backward_->q_entries[item.entry_begin + static_cast<std::uint32_t>(e)]);
    }
  }
  return slots;
}

template <class Real>
void OwnerRunner<Real>::load_owner(const plan::Owner& owner, std::uint32_t attended) {
  const plan::Extent* blocks = problem_->plan.kv_blocks(owner.batch_head);
  const HeadRows k = problem_->of_kv_head(problem_->k, owner.batch_head);
  const HeadRows v = problem_->of_kv_head(problem_->v, owner.batch_head);
  std::fill(std::begin(masks_), std::end(masks_), 0u);
  bool masked = false;
  std::int32_t slot = 0;
  for (std::int32_t b = 0; b < owner.blocks; ++b) {
    const plan::Extent& block = blocks[backward_->owner_blocks[owner.block_begin + b]];
    const std::int32_t pages = plan::pages_of(block.rows);
    const std::int32_t valid = (attended >> slot & 1u) != 0 ? block.rows : 0;
    const std::int64_t at = std::int64_t{slot} * plan::kPageRows * problem_->head_dim;
    gather(*ops_, k, block.row, valid, pages * plan::kPageRows, k_.data() + at);
    gather(*ops_, v, block.row, valid, pages * plan::kPageRows, v_.data() + at);
    for (std::int32_t page = 0; page < pages; ++page, ++slot) {
      masks_[slot / 2] |= plan::page_mask(valid - page * plan::kPageRows)
                          << (slot % 2 * plan::kPageRows);
    }
    masked = masked || valid < pages * plan::kPageRows;
  }
  step_.columns = owner.pages * plan::kPageRows;
  step_.slots = owner.slots;
  step_.masks = masked ? masks_ : nullptr;
}

template <class Real>
template <std::int32_t kPages>
void OwnerRunner<Real>::run_item(const plan::Owner& owner, const plan::OwnerItem& item, Real* dq) {
  const plan::Extent* blocks = problem_->plan.q_blocks(owner.batch_head);
  const std::uint32_t* entries = backward_->q_entries + item.entry_begin;
  const auto run_at = [&](std::int32_t i) {
    return plan::q_run_of(blocks[plan::entry_block(entries[i])]);
  };
  plan::Cursor cursor;
  while (cursor.run < item.entries) {
    const auto pages = plan::next_tile<kPages>(cursor, item.entries, run_at);
    load_step(owner, entries, pages);
    ops_->backward(step_);
    add_dq(owner, entries, pages, dq);
  }
}

template <class Real>
template <std::int32_t kPages>
void OwnerRunner<Real>::load_step(const plan::Owner& owner, const std::uint32_t* entries,
                                  const plan::TileSegments<kPages>& pages) {
  const plan::Extent* blocks = problem_->plan.q_blocks(owner.batch_head);
  const HeadRows q = problem_->of_query_head(problem_->q, owner.batch_head);
  const HeadRows d_o = problem_->of_query_head(*d_o_tensor_, owner.batch_head);
  step_.rows = pages.pages * plan::kPageRows;
  step_.adjacency = 0;
  for (std::int32_t i = 0; i < pages.count; ++i) {
    const plan::Segment& part = pages.segment[i];
    const std::uint32_t entry = entries[pages.run[i]];
    const plan::Extent& block = blocks[plan::entry_block(entry)];
    const std::int32_t to = part.slot * plan::kPageRows;
    const std::int32_t rows = part.pages * plan::kPageRows;
    const std::int64_t at = std::int64_t{to} * problem_->head_dim;
    gather(*ops_, q, part.row, part.rows, rows, q_.data() + at);
    gather(*ops_, d_o, part.row, part.rows, rows, d_o_.data() + at);
    const std::int64_t from = PagedRows::of_block(block) + part.row - block.row;
    std::copy_n(statistics_->lse(owner.batch_head) + from, rows, lse_.data() + to);
    std::copy_n(statistics_->delta(owner.batch_head) + from, rows, delta_.data() + to);
    for (std::int32_t page = part.slot; page < part.slot + part.pages; ++page) {
      step_.adjacency |= plan::adjacency_bits(page, owner.slots, entry);
    }
  }
  const std::int32_t pairs = pages.pages * owner.slots;
  const std::uint64_t all = ~std::uint64_t{0} >> (plan::kStepPairs - pairs);
  step_.masked_pairs = step_.adjacency != all;
}

template <class Real>
template <std::int32_t kPages>
void OwnerRunner<Real>::add_dq(const plan::Owner& owner, const std::uint32_t* entries,
                               const plan::TileSegments<kPages>& pages, Real* dq) {
  const plan::Extent* blocks = problem_->plan.q_blocks(owner.batch_head);
  const std::int64_t head_dim = problem_->head_dim;
  for (std::int32_t i = 0; i < pages.count; ++i) {
    const plan::Segment& part = pages.segment[i];
    const plan::Extent& block = blocks[plan::entry_block(entries[pages.run[i]])];
    const std::int64_t to = PagedRows::of_block(block) + part.row - block.row;
    ops_->add(dq_.data() + part.slot * plan::kPageRows * head_dim,
              part.pages * plan::kPageRows * head_dim, dq + to * head_dim);
  }
}

template class OwnerRunner<float>;
template class OwnerRunner<double>;

}  // namespace kpage::cpu
