// The warps that load K and V: each walks the runs of a query block and fills a ring of stages.
#pragma once

#include "kernels/common/page_loads.cuh"
#include "kernels/sm90/forward/config.cuh"
#include "kernels/sm90/forward/scheduler.cuh"

namespace kpage::kernels::sm90::forward_kernel {

// A walk's runs, a window of one run a lane. The extents of the next window and the block ids of
// the one after it are already on their way: neither is waited for when a window is used up.
class RunWindow {
 public:
  __device__ RunWindow(const plan::ForwardView& plan, const Item& item)
      : walk_(item.walk),
        lane_(static_cast<std::int32_t>(threadIdx.x % kWarpThreads)),
        entries_(plan.walk_entries(item.number)),
        blocks_(plan.kv_blocks(std::int64_t{item.batch} * plan.shape.heads + item.head)) {
    const std::int32_t first = id_at(0);
    const std::int32_t second = id_at(kWarpThreads);
    next_id_ = id_at(2 * kWarpThreads);
    next_ = extent_of(first);
    open();
    next_ = extent_of(second);
  }

  // What of this lane's run falls into the tile that starts at page `first_page`.
  [[nodiscard]] __device__ plan::Segment segment(std::int32_t first_page) const {
    return plan::clip(start_ - first_page, run_, plan::kTilePages);
  }
  // Whether the walk has pages past this window that a tile ending at page `end_page` needs.
  [[nodiscard]] __device__ bool ends_before(std::int32_t end_page) const {
    return end_ < end_page && base_ + kWarpThreads < plan::walk_runs(walk_);
  }
  __device__ void advance() {
    base_ += kWarpThreads;
    open();
    next_ = extent_of(next_id_);
    next_id_ = id_at(base_ + 2 * kWarpThreads);
  }

 private:
  struct Block {
    std::int32_t row, rows;
  };

  [[nodiscard]] __device__ std::int32_t id_at(std::int32_t base) const {
    const std::int32_t run = base + lane_;
    return run < plan::walk_runs(walk_) ? entries_[plan::entry_of_run(walk_, run)] : -1;
  }
  [[nodiscard]] __device__ Block extent_of(std::int32_t id) const {
    if (id < 0) {
      return {0, 0};
    }
    const plan::Extent& extent = blocks_[id];
    return {extent.row, extent.rows};
  }
  // Makes the window at base_ of the extents that next_ holds.
  __device__ void open() {
    run_ = plan::run_of(walk_, base_ + lane_, {next_.row, next_.rows, 0, 0});
    if (base_ + lane_ >= plan::walk_runs(walk_)) {
      run_.pages = 0;
    }
    std::int32_t sum = run_.pages;
#pragma unroll
    for (std::int32_t step = 1; step < kWarpThreads; step *= 2) {
      const std::int32_t below = __shfl_up_sync(~0u, sum, step);
      sum += lane_ >= step ? below : 0;
    }
    start_ = end_ + sum - run_.pages;
    end_ += __shfl_sync(~0u, sum, kWarpThreads - 1);
  }

  plan::Walk walk_;
  std::int32_t lane_;
  const std::int32_t* entries_;
  const plan::Extent* blocks_;
  std::int32_t base_ = 0;   // the first run of the window
  std::int32_t end_ = 0;    // pages of the walk up to the window's end
  std::int32_t start_ = 0;  // pages of the walk before this lane's run
  plan::Run run_{};
  Block next_{};
  std::int32_t next_id_ = 0;
};

// Issues the loads of one tile; each lane those of its own run. Returns this lane's bytes.
template <class C>
__device__ std::int32_t load_segment(std::byte* stage, const PageMaps& maps, std::int32_t slab,
                                     const plan::Segment& segment, std::int32_t tensor_rows,
                                     ptx::Barrier& barrier) {
  if (segment.pages == 0) {
    return 0;
  }
  std::byte* page = stage + segment.slot * C::Bytes::kPage;
  // Asked of the rows' remainder: ptxas 13.0 gets `min(a, b) == b` wrong where clip() clamps at 0.
  if (plan::tail_rows_of(segment.rows) == 0) {
    load_full_pages<C::kHeadDim>(page, maps, slab, segment.row, segment.pages, barrier);
    return segment.pages * C::Bytes::kPage;
  }
  load_tail_page<C::kHeadDim>(page, maps, slab, segment.row, segment.rows, tensor_rows, barrier);
  return tail_page_bytes<C::kHeadDim>(segment.rows);
}

template <class C, bool kIsV>
__device__ void run_loads(typename C::Shared& shared, const Params& params) {
  const PageMaps& maps = kIsV ? params.v : params.k;
  const SlabStrides slabs = kIsV ? params.v_slabs : params.k_slabs;
  auto& stages = kIsV ? shared.v : shared.k;
  auto& full = kIsV ? shared.v_full : shared.k_full;
  auto& empty = kIsV ? shared.v_empty : shared.k_empty;
  const bool first_lane = threadIdx.x % kWarpThreads == 0;

  ItemReader items;
  ptx::RingPosition<C::kStages> at;
  for (;;) {
    const Item item = items.next(shared);
    if (item.tiles == kNoItem) {
      return;
    }
    const std::int32_t slab = item.batch * slabs.batch + item.kv_head * slabs.head;
    const std::int32_t first_masked = plan::first_masked_tile(item.walk);
    RunWindow window(params.plan, item);
    for (std::int32_t tile = 0; tile < item.tiles; ++tile) {
      const std::int32_t first_page = tile * plan::kTilePages;
      ptx::Barrier& barrier =
          kIsV && tile >= first_masked ? shared.v_landed[at.stage] : full[at.stage];
      ptx::wait(empty[at.stage], at.parity ^ 1);
      std::int32_t bytes = 0;
      for (;;) {
        bytes += load_segment<C>(stages[at.stage], maps, slab, window.segment(first_page),
                                 params.kv_rows, barrier);
        if (!window.ends_before(first_page + plan::kTilePages)) {
          break;
        }
        window.advance();
      }
      // Only this arrival ends the phase, so bytes may land before they are announced.
      bytes = __reduce_add_sync(~0u, bytes);
      if (first_lane) {
        ptx::arrive_expect(barrier, static_cast<std::uint32_t>(bytes));
      }
      at.advance();
    }
  }
}

}  // namespace kpage::kernels::sm90::forward_kernel
