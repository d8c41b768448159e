// Which query block next, and its queries: the warp that draws tickets, tells the other warps what
// the ticket stands for, and loads Q.
#pragma once

#include "kernels/common/page_loads.cuh"
#include "kernels/sm90/forward/config.h"
#include "kernels/sm90/forward/params.h"

namespace kpage::kernels::sm90::forward_kernel {

// Both queues as one order of work in which they advance in proportion, so that CTAs on the Q64
// route, which need twice the loads, run beside CTAs on the other, and heads of both go by
// together.
class Tickets {
 public:
  __device__ explicit Tickets(const Params& params)
      : params_(params),
        q64_(params.plan.header->q64),
        total_(std::int64_t{params.plan.header->q128} + q64_),
        ticket_(blockIdx.x) {}

  [[nodiscard]] __device__ bool done() const { return ticket_ >= total_; }
  __device__ void draw() { ticket_ = std::int64_t{gridDim.x} + atomicAdd(params_.counter, 1u); }

  // The item of the ticket in hand.
  [[nodiscard]] __device__ Item item() const {
    const plan::ForwardView& plan = params_.plan;
    const std::int64_t q64_before = ticket_ * q64_ / total_;
    const std::int64_t q64_after = (ticket_ + 1) * q64_ / total_;
    const std::int64_t place =
        q64_after > q64_before ? total_ - q64_ + q64_before : ticket_ - q64_before;
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

 private:
  const Params& params_;
  std::int64_t q64_;
  std::int64_t total_;
  std::int64_t ticket_;
};

// A reader's place in the ring of items.
struct ItemReader {
  ptx::RingPosition<kItemStages> at;

  // The next item. Every lane of the warp calls; the slot is free again for the scheduler after.
  template <class Shared>
  __device__ __forceinline__ Item next(Shared& shared) {
    ptx::wait(shared.item_full[at.stage], at.parity);
    const Item item = shared.items[at.stage];
    __syncwarp();
    if (threadIdx.x % kWarpThreads == 0) {
      ptx::arrive(shared.item_empty[at.stage]);
    }
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
    Item item;
    if (tickets.done()) {
      item.tiles = kNoItem;
    } else {
      item = tickets.item();
      tickets.draw();
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
