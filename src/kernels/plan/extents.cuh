// Extents: a CTA a scope.
#pragma once

#include "kernels/plan/faults.cuh"
#include "kernels/plan/warp.cuh"

namespace kpage::kernels::plan_builder {

using namespace plan;

inline constexpr std::int32_t kExtentThreads = 1024;

// Sum over the threads before this one, and over all, of a CTA of kExtentThreads.
struct Scanned {
  std::int32_t before;
  std::int32_t all;
};
__device__ inline Scanned cta_scan(std::int32_t value) {
  __shared__ std::int32_t warp_totals[kWarp];
  std::int32_t sum = value;
  for (std::int32_t step = 1; step < kWarp; step *= 2) {
    const std::int32_t below = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(step));
    sum += lane_id() >= step ? below : 0;
  }
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / kWarp;
  __syncthreads();
  if (lane_id() == kWarp - 1) {
    warp_totals[warp] = sum;
  }
  __syncthreads();
  std::int32_t before = 0;
  std::int32_t all = 0;
  for (std::int32_t w = 0; w < kExtentThreads / kWarp; ++w) {
    before += w < warp ? warp_totals[w] : 0;
    all += warp_totals[w];
  }
  return {before + sum - value, all};
}

struct Side {
  PartitionView view;
  Extent* extents;
  ScopeInfo* infos;
  Argument sizes;
  Argument offsets;
};

// Rows of a block as the plan takes them: 0 where size or offset is out of range.
__device__ inline Extent read_block(const MutableForward& plan, const Side& side, std::int64_t at,
                                    std::int32_t block) {
  std::int32_t rows = side.view.sizes[at];
  if (rows < 0 || rows > kBlockRows) {
    report(plan, side.sizes, Fault::kOutOfRange, at);
    rows = 0;
  }
  // In 64 bits: a default offset of a far block may not fit.
  const std::int64_t row = side.view.offsets != nullptr ? std::int64_t{side.view.offsets[at]}
                                                        : std::int64_t{block} * kBlockRows;
  if (rows > 0 && (row < 0 || row > kMaxRows - rows)) {
    report(plan, side.view.offsets != nullptr ? side.offsets : side.sizes, Fault::kOutOfRange, at);
    rows = 0;
  }
  return {rows > 0 ? static_cast<std::int32_t>(row) : 0, rows, 0, 0};
}

// Block `next` of a scope follows block b; none does where it is the number of blocks.
__device__ inline void note_next(const MutableForward& plan, const Side& side,
                                 std::int64_t scope_begin, std::int32_t b, std::int32_t next,
                                 Extent* extents) {
  const bool last = next == side.view.blocks;
  extents[b].gap_end = last ? kToTheEnd : extents[next].row;
  if (!last && extents[next].row >= extents[b].row &&
      extents[next].row < extents[b].row + extents[b].rows) {
    report(plan, side.view.offsets != nullptr ? side.offsets : side.sizes, Fault::kOverlap,
           scope_begin + next);
  }
}

// One CTA writes the extents of one scope.
__device__ inline void write_scope(const MutableForward& plan, const Side& side,
                                   std::int64_t scope) {
  __shared__ std::int32_t first_row;
  __shared__ std::int32_t end_row;
  __shared__ std::int32_t ascending;
  const std::int32_t count = side.view.blocks;
  const std::int32_t thread = static_cast<std::int32_t>(threadIdx.x);
  Extent* extents = side.extents + scope * count;
  if (thread == 0) {
    first_row = kToTheEnd;
    end_row = 0;
    ascending = 1;
  }
  std::int32_t pages = 0;
  std::int32_t valid_rows = 0;
  for (std::int32_t base = 0; base < count; base += kExtentThreads) {
    const std::int32_t b = base + thread;
    Extent e{};
    if (b < count) {
      e = read_block(plan, side, scope * count + b, b);
    }
    const Scanned place = cta_scan(pages_of(e.rows));
    valid_rows += cta_scan(e.rows).all;
    e.page = pages + place.before;
    pages += place.all;
    if (b < count) {
      extents[b] = e;
    }
    if (e.rows > 0) {
      atomicMin(&first_row, e.row);
      atomicMax(&end_row, e.row + e.rows);
    }
  }
  __syncthreads();

  // The next block in row order. Where rows ascend it is the next non-empty one.
  for (std::int32_t b = thread; b < count; b += kExtentThreads) {
    if (extents[b].rows == 0) {
      continue;
    }
    std::int32_t next = b + 1;
    while (next < count && extents[next].rows == 0) {
      ++next;
    }
    if (next < count && extents[next].row < extents[b].row) {
      ascending = 0;
    }
    note_next(plan, side, scope * count, b, next, extents);
  }
  __syncthreads();
  for (std::int32_t b = thread; b < count && ascending == 0; b += kExtentThreads) {
    const Extent e = extents[b];
    if (e.rows == 0) {
      continue;
    }
    std::int32_t next = count;
    for (std::int32_t other = 0; other < count; ++other) {
      const Extent o = extents[other];
      const bool after = o.row > e.row || (o.row == e.row && other > b);
      if (o.rows > 0 && after && (next == count || o.row < extents[next].row)) {
        next = other;
      }
    }
    note_next(plan, side, scope * count, b, next, extents);
  }
  if (thread == 0) {
    side.infos[scope] = {first_row, end_row, pages, valid_rows};
  }
}

__global__ __launch_bounds__(kExtentThreads) void extents_kernel(LayoutView layout,
                                                                 MutableForward plan) {
  const std::int64_t q_scopes = scopes(plan.shape.q_scope, plan.shape);
  if (blockIdx.x < q_scopes) {
    write_scope(
        plan,
        {layout.q, plan.q_extents, plan.q_scopes, Argument::kQBlockSizes, Argument::kQBlockOffsets},
        blockIdx.x);
  } else {
    write_scope(plan,
                {layout.kv, plan.kv_extents, plan.kv_scopes, Argument::kKvBlockSizes,
                 Argument::kKvBlockOffsets},
                blockIdx.x - q_scopes);
  }
}

}  // namespace kpage::kernels::plan_builder
