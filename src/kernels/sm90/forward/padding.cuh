// The warp that keeps padding out of results: it clears the rows of V tiles that do not count, and
// writes the outputs of rows outside every block.
#pragma once

#include <cuda_runtime.h>

#include "kernels/sm90/forward/config.cuh"
#include "kernels/sm90/forward/scheduler.cuh"

namespace kpage::kernels::sm90::forward_kernel {

// Rows [begin, end) of a head become O = 0, LSE = -inf.
template <class C>
__device__ void clear_rows(const Params& params, std::int32_t batch, std::int32_t head,
                           std::int32_t begin, std::int32_t end) {
  constexpr std::int32_t kColumns = 8;  // a store
  constexpr std::int32_t kLanes = C::kHeadDim / kColumns;
  constexpr std::int32_t kRows = kWarpThreads / kLanes;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % kWarpThreads);
  auto* o = static_cast<typename C::Element*>(params.o) + batch * params.o_stride[0] +
            head * params.o_stride[1] + lane % kLanes * kColumns;
  float* lse = params.lse + batch * params.lse_stride[0] + head * params.lse_stride[1];
  for (std::int32_t row = begin + lane / kLanes; row < end; row += kRows) {
    *reinterpret_cast<uint4*>(o + row * params.o_stride[2]) = {};
    if (lane % kLanes == 0) {
      lse[row * params.lse_stride[2]] = -INFINITY;
    }
  }
}

// Rows before the first block of each head and past the last.
template <class C>
__device__ void clear_ends(const Params& params) {
  const plan::ForwardView& plan = params.plan;
  const std::int32_t pieces = ceil_div(params.q_rows, kPaddingRows);
  const std::int64_t all = plan::batch_heads(plan.shape) * pieces;
  for (std::int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const auto batch_head = static_cast<std::int32_t>(i / pieces);
    const auto begin = static_cast<std::int32_t>(i % pieces) * kPaddingRows;
    const std::int32_t end = begin + min_of(kPaddingRows, params.q_rows - begin);
    const plan::ScopeInfo& scope =
        plan.q_scopes[plan::scope_of(plan.shape.q_scope, plan.shape, batch_head)];
    const std::int32_t batch = batch_head / plan.shape.heads;
    const std::int32_t head = batch_head % plan.shape.heads;
    clear_rows<C>(params, batch, head, begin, min_of(end, scope.first_row));
    const std::int32_t blocks_end = max_of(scope.first_row, scope.end_row);  // may be kToTheEnd
    clear_rows<C>(params, batch, head, max_of(begin, min_of(blocks_end, end)), end);
  }
}

// Clears what of a V tile does not count: its product with a probability of 0 must be 0. A lane has
// one row of one slab of every page, so that a page is one test and stores at constant places: on
// the Q64 route a tile's time is about what a loop over rows would take.
template <class C>
__device__ void clear_tile(std::byte* stage, uint4 masks) {
  constexpr std::int32_t kRowBytes = kSlabColumns * 2;
  constexpr std::int32_t kStore = sizeof(uint4);
  constexpr std::int32_t kStores = kRowBytes / kStore;
  constexpr std::int32_t kLanes = plan::kPageRows * C::Bytes::kSlabs;
  static_assert(kLanes <= kWarpThreads);
  const auto lane = static_cast<std::int32_t>(threadIdx.x % kWarpThreads);
  const std::int32_t row = lane / C::Bytes::kSlabs;
  const std::int32_t slab = lane % C::Bytes::kSlabs;
  std::byte* mine = stage + row / kGroupRows * C::Bytes::kGroup + slab * C::Bytes::kSlab +
                    row % kGroupRows * kRowBytes;
  std::byte* at[kStores];
#pragma unroll
  for (std::int32_t i = 0; i < kStores; ++i) {
    at[i] = mine + (i ^ lane % kStores) * kStore;  // eight lanes, eight places: no bank twice
  }
  const std::uint32_t words[plan::kMaskWordsPerTile] = {masks.x, masks.y, masks.z, masks.w};
#pragma unroll
  for (std::int32_t page = 0; page < plan::kTilePages; ++page) {
    const std::uint32_t rows = words[page / 2] >> (page % 2 * plan::kPageRows);
    if (lane < kLanes && ((rows >> row) & 1) == 0) {
#pragma unroll
      for (std::int32_t i = 0; i < kStores; ++i) {
        *reinterpret_cast<uint4*>(at[i] + page * C::Bytes::kPage) = {};
      }
    }
  }
}

template <class C>
__device__ void run_padding(typename C::Shared& shared, const Params& params) {
  clear_ends<C>(params);
  ItemReader items;
  std::uint32_t first_load = 0;     // of V tiles, that of the item's first
  std::uint32_t landed_parity = 0;  // a bit a stage: only masked tiles land there
  for (;;) {
    const Item item = items.next(shared);
    if (item.tiles == kNoItem) {
      return;
    }
    const std::int32_t first_masked = plan::first_masked_tile(item.walk);
    const auto* masks = reinterpret_cast<const uint4*>(params.plan.walk_masks(item.number));
    for (std::int32_t tile = first_masked; tile < item.tiles; ++tile) {
      const std::uint32_t load = first_load + static_cast<std::uint32_t>(tile);
      const std::uint32_t stage = load % C::kStages;
      const uint4 tile_masks = masks[tile - first_masked];
      ptx::wait(shared.v_landed[stage], (landed_parity >> stage) & 1);
      landed_parity ^= 1u << stage;
      // So has the loading warp asked before it loaded. But the stage may have been ordinary
      // memory, for halves of a walk: this puts the accesses to it in order without a third party.
      ptx::wait(shared.v_empty[stage], (load / C::kStages & 1) ^ 1);
      clear_tile<C>(shared.v[stage], tile_masks);
      ptx::fence_shared_async();
      __syncwarp();
      if (threadIdx.x % kWarpThreads == 0) {
        ptx::arrive(shared.v_full[stage]);
      }
    }
    first_load += static_cast<std::uint32_t>(item.tiles);
    if (item.gap_end != plan::kToTheEnd) {
      clear_rows<C>(params, item.batch, item.head, item.q_row + item.q_rows,
                    min_of(item.gap_end, params.q_rows));
    }
  }
}

}  // namespace kpage::kernels::sm90::forward_kernel
