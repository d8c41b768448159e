// Which query block next, and its queries: the warp that draws tickets, tells the other warps what
// the ticket stands for, and loads Q.
#pragma once

#include "kernels/common/page_loads.cuh"
#include "kernels/sm90/forward/config.cuh"
#include "kernels/sm90/forward/params.h"

namespace kpage::kernels::sm90::forward_kernel {

// Both queues as one order of work in which they advance in proportion, so that CTAs on the Q64
// route, which need twice the loads, run beside CTAs on the other, and heads of both go by
// together. Where the last blocks would leave half of the CTAs or more without work, each is cut in
// two.
class Tickets {
 public:
  __device__ explicit Tickets(const Params& params)
      : params_(params),
        q64_(params.plan.header->q64),
        blocks_(std::int64_t{params.plan.header->q128} + q64_),
        ticket_(blockIdx.x) {
    const std::int64_t rest = blocks_ % gridDim.x;
    halved_ = 2 * rest <= gridDim.x ? rest : 0;
  }

  [[nodiscard]] __device__ bool done() const { return ticket_ >= blocks_ + halved_; }
  __device__ void draw() { ticket_ = std::int64_t{gridDim.x} + atomicAdd(params_.counter, 1u); }

  // What the ticket in hand stands for. There may be nothing to do: no rows.
  [[nodiscard]] __device__ Item item() const {
    const std::int64_t whole = blocks_ - halved_;
    if (ticket_ < whole) {
      return block(ticket_);
    }
    Item item = block(whole + (ticket_ - whole) / 2);
    const bool second = (ticket_ - whole) % 2 != 0;
    if (second) {
      item.q_row += min_of(item.q_rows, plan::kQ64Rows);
      item.q_rows -= min_of(item.q_rows, plan::kQ64Rows);
    } else if (item.q_rows > plan::kQ64Rows) {
      item.q_rows = plan::kQ64Rows;
      item.gap_end = item.q_row + item.q_rows;
    }
    return item;
  }

 private:
  // The block at a place of the merged order.
  [[nodiscard]] __device__ Item block(std::int64_t at) const {
    const plan::ForwardView& plan = params_.plan;
    const std::int64_t q64_before = at * q64_ / blocks_;
    const std::int64_t q64_after = (at + 1) * q64_ / blocks_;
    const std::int64_t place =
        q64_after > q64_before ? blocks_ - q64_ + q64_before : at - q64_before;
    Item item;
    item.number = plan.queue[place];
    item.walk = plan.walks[item.number];
    const auto q_blocks = static_cast<std::uint32_t>(plan.shape.q_blocks);
    const auto batch_head = static_cast<std::int32_t>(item.number / q_blocks);
    const plan::Extent extent = plan.q_blocks(batch_head)[item.number % q_blocks];
    item.q_row = extent.row;
    item.q_rows = extent.rows;
    item.gap_end = extent.gap_end;
    item.batch = batch_head / plan.shape.heads;
    item.head = batch_head % plan.shape.heads;
    item.kv_head = item.head / params_.heads_per_kv;
    item.tiles = plan::walk_tiles(item.walk);
    return item;
  }

  const Params& params_;
  std::int64_t q64_;
  std::int64_t blocks_;
  std::int64_t ticket_;
  std::int64_t halved_;
};

// A reader's place in the ring of items.
struct ItemReader {
  ptx::RingPosition<kItemStages> at;

  // The next item. Every lane of the warp calls; the slot is free again for the scheduler after.
  template <class Shared>
  __device__ __forceinline__ Item next(Shared& shared) {
    ptx::wait(shared.item_full[at.stage], at.parity);
    const Item item = shared.items[at.stage];
    ptx::arrive(shared.item_empty[at.stage]);
    at.advance();
    return item;
  }
};

template <class C>
__device__ void load_q(typename C::Shared& shared, const Params& params, const Item& item) {
  const std::int32_t slab = item.batch * params.q_slabs.batch + item.head * params.q_slabs.head;
  const std::int32_t pages = plan::full_pages_of(item.q_rows);
  const std::int32_t tail = plan::tail_rows_of(item.q_rows);
  const std::int32_t bytes =
      pages * C::Bytes::kPage + (tail > 0 ? tail_page_bytes<C::kHeadDim>(tail) : 0);
  ptx::arrive_expect(shared.q_full, static_cast<std::uint32_t>(bytes));
  load_full_pages<C::kHeadDim>(shared.q, params.q, slab, item.q_row, pages, shared.q_full);
  if (tail > 0) {
    load_tail_page<C::kHeadDim>(shared.q + pages * C::Bytes::kPage, params.q, slab,
                                item.q_row + pages * plan::kPageRows, tail, params.q_rows,
                                shared.q_full);
  }
}

// One lane. An item is known before the Q buffer is free for it, so that K and V loads run ahead
// of Q.
template <class C>
__device__ void run_items(typename C::Shared& shared, const Params& params) {
  Tickets tickets(params);
  ptx::RingPosition<kItemStages> at;
  const auto publish = [&] {
    ptx::wait(shared.item_empty[at.stage], at.parity ^ 1);
    Item item{};
    while (!tickets.done() && item.q_rows == 0) {
      item = tickets.item();
      tickets.draw();
    }
    if (item.q_rows == 0) {
      item.tiles = kNoItem;
    }
    shared.items[at.stage] = item;
    ptx::arrive(shared.item_full[at.stage]);
    at.advance();
    return item;
  };
  Item item = publish();
  for (std::uint32_t parity = 1; item.tiles != kNoItem; parity ^= 1) {
    const Item next = publish();
    ptx::wait(shared.q_empty, parity);
    load_q<C>(shared, params, item);
    item = next;
  }
}

}  // namespace kpage::kernels::sm90::forward_kernel
