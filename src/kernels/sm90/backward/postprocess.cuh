// After the main kernel: dQ from fragments to rows, sums of shared K/V heads to rows, and zeros in
// the rows that no block holds.
#pragma once

#include <cstdint>

#include "kernels/ptx/registers.cuh"
#include "kernels/sm90/backward/bounds.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/rows.cuh"

namespace kpage::kernels::sm90::backward_kernel {

inline constexpr std::int64_t kPieceRows = 1024;  // a CTA's share of rows outside all blocks
inline constexpr std::int64_t kSumRows = 64;      // of the sums of shared heads

// The CTAs of the grid, one range after the other.
struct PostprocessGrid {
  std::int64_t query_blocks;  // dQ of a block, and the gap behind it
  std::int64_t query_ends;    // rows before the first and after the last block
  std::int64_t kv_blocks;     // gaps behind eight K/V blocks; nothing where heads share K and V
  std::int64_t kv_ends;
  std::int64_t sums;  // where they do

  KPAGE_HD std::int64_t ctas() const {
    return query_blocks + query_ends + kv_blocks + kv_ends + sums;
  }
};
KPAGE_HD PostprocessGrid postprocess_grid(const PostprocessParams& params) {
  const plan::Shape& shape = params.forward.shape;
  const std::int64_t heads = plan::batch_heads(shape);
  PostprocessGrid grid{};
  grid.query_blocks = heads * shape.q_blocks;
  grid.query_ends = heads * ceil_div(params.q_rows, kPieceRows);
  if (params.group == 1) {
    grid.kv_blocks = ceil_div<std::int64_t>(heads * shape.kv_blocks, plan::kBlockPages);
    grid.kv_ends = heads * ceil_div(params.kv_rows, kPieceRows);
  } else {
    grid.sums = ceil_div(heads / params.group * params.kv_rows, kSumRows);
  }
  return grid;
}

// Rows [begin, end) become zero, by `threads` threads of which this is number `rank`.
template <class C>
__device__ __forceinline__ void clear_rows(const RowTensor& tensor, std::int64_t batch,
                                           std::int64_t head, std::int64_t begin, std::int64_t end,
                                           int rank, int threads) {
  constexpr int kRowChunks = C::kHeadDim / kChunk;
  for (std::int64_t i = begin * kRowChunks + rank; i < end * kRowChunks; i += threads) {
    *reinterpret_cast<uint4*>(row_of<typename C::Element>(tensor, batch, head, i / kRowChunks) +
                              i % kRowChunks * kChunk) = {};
  }
}

// The rows of one piece that lie before a head's first block or behind its last.
template <class C>
__device__ __forceinline__ void clear_ends(const RowTensor& tensor, const plan::ScopeInfo& scope,
                                           std::int64_t batch, std::int64_t head,
                                           std::int64_t piece, std::int64_t rows) {
  const std::int64_t begin = piece * kPieceRows;
  const std::int64_t end = min_of(begin + kPieceRows, rows);
  const int rank = static_cast<int>(threadIdx.x);
  clear_rows<C>(tensor, batch, head, begin, min_of<std::int64_t>(end, scope.first_row), rank,
                kBlockThreads);
  clear_rows<C>(tensor, batch, head,
                max_of<std::int64_t>(begin, max_of(scope.first_row, scope.end_row)), end, rank,
                kBlockThreads);
}

// The gap behind a block, up to the next: what lies behind the last block is an end.
template <class C>
__device__ __forceinline__ void clear_gap(const RowTensor& tensor, const plan::Extent& extent,
                                          std::int64_t batch, std::int64_t head, std::int64_t rows,
                                          int rank, int threads) {
  if (extent.gap_end != plan::kToTheEnd) {
    clear_rows<C>(tensor, batch, head, std::int64_t{extent.row} + extent.rows,
                  min_of<std::int64_t>(extent.gap_end, rows), rank, threads);
  }
}

// dQ of one page, by a warp: scaled, converted, and turned into rows through shared memory, in
// which the chunks of a row are swizzled.
template <class C>
__device__ __forceinline__ void convert_page(const PostprocessParams& params, const QueryPage& page,
                                             uint4* staged) {
  using Element = typename C::Element;
  constexpr int kRowChunks = C::kHeadDim / kChunk;
  constexpr int kLoads = C::kPageGradients / 4 / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const float4* const from =
      reinterpret_cast<const float4*>(params.d_q + page.page * C::kPageGradients);
  float4 fragment[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    fragment[i] = from[i * kWarpThreads + lane];
  }
  float factor[2] = {params.scale, params.scale};  // of rows lane / 4 and lane / 4 + 8
  if (params.row_scales != nullptr) {
    // The accumulator holds integers: see bounds.cuh.
    const std::uint32_t pair = params.row_scales[page.page * (plan::kPageRows / 2) + lane / 4];
    factor[0] = low_scale(pair) > 0.0f ? params.scale / low_scale(pair) : 0.0f;
    factor[1] = high_scale(pair) > 0.0f ? params.scale / high_scale(pair) : 0.0f;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float4 x = fragment[i];
      fragment[i] = make_float4(
          static_cast<float>(__float_as_int(x.x)), static_cast<float>(__float_as_int(x.y)),
          static_cast<float>(__float_as_int(x.z)), static_cast<float>(__float_as_int(x.w)));
    }
  }
  // Fragment i is chunk i of rows lane / 4 and lane / 4 + 8: halves of dQ follow each other.
  const int row = lane / 4;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const float4 x = fragment[i];
    const int chunk = i ^ row;  // rows 8 apart are swizzled alike
    reinterpret_cast<std::uint32_t*>(staged + row * kRowChunks + chunk)[lane % 4] =
        ptx::pack<Element>(x.x * factor[0], x.y * factor[0]);
    reinterpret_cast<std::uint32_t*>(staged + (row + 8) * kRowChunks + chunk)[lane % 4] =
        ptx::pack<Element>(x.z * factor[1], x.w * factor[1]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < plan::kPageRows * kRowChunks / kWarpThreads; ++i) {
    const int to_row = (i * kWarpThreads + lane) / kRowChunks;
    const int chunk = (i * kWarpThreads + lane) % kRowChunks;
    if (to_row < page.valid) {
      *reinterpret_cast<uint4*>(
          row_of<Element>(params.d_q_out, page.batch, page.head, page.row + to_row) +
          chunk * kChunk) = staged[to_row * kRowChunks + (chunk ^ to_row % 8)];
    }
  }
}

// Rows [begin, end) of all K/V heads, one after the other: each the sum of `parts` rows, a query
// head each, in their order.
template <class C>
__device__ __forceinline__ void convert_sums(const float* sums, std::int32_t parts, float scale,
                                             const RowTensor& to, std::int64_t heads,
                                             std::int64_t rows, std::int64_t begin,
                                             std::int64_t end) {
  using Element = typename C::Element;
  constexpr int kRowChunks = C::kHeadDim / kChunk;
  for (std::int64_t i = begin * kRowChunks + threadIdx.x; i < end * kRowChunks;
       i += kBlockThreads) {
    const std::int64_t batch_head = i / kRowChunks / rows;
    const std::int64_t row = i / kRowChunks % rows;
    float sum[kChunk] = {};
    for (std::int32_t part = 0; part < parts; ++part) {
      const float4* const from = reinterpret_cast<const float4*>(
          sums + ((batch_head * parts + part) * rows + row) * C::kHeadDim +
          i % kRowChunks * kChunk);
#pragma unroll
      for (int j = 0; j < kChunk / 4; ++j) {
        const float4 x = from[j];
        sum[4 * j] += x.x;
        sum[4 * j + 1] += x.y;
        sum[4 * j + 2] += x.z;
        sum[4 * j + 3] += x.w;
      }
    }
    uint4 packed;
    packed.x = ptx::pack<Element>(sum[0] * scale, sum[1] * scale);
    packed.y = ptx::pack<Element>(sum[2] * scale, sum[3] * scale);
    packed.z = ptx::pack<Element>(sum[4] * scale, sum[5] * scale);
    packed.w = ptx::pack<Element>(sum[6] * scale, sum[7] * scale);
    *reinterpret_cast<uint4*>(row_of<Element>(to, batch_head / heads, batch_head % heads, row) +
                              i % kRowChunks * kChunk) = packed;
  }
}

template <class C>
__global__ __launch_bounds__(kBlockThreads) void postprocess_kernel(
    const __grid_constant__ PostprocessParams params) {
  __shared__ uint4 staged[plan::kBlockPages][plan::kPageRows * C::kHeadDim / kChunk];
  const plan::ForwardView& forward = params.forward;
  const plan::Shape& shape = forward.shape;
  const PostprocessGrid grid = postprocess_grid(params);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads;
  std::int64_t cta = blockIdx.x;

  if (cta < grid.query_blocks) {
    const QueryPage page = query_page(forward, cta, warp, params.q_rows, params.page_capacity);
    if (page.valid > 0) {
      convert_page<C>(params, page, staged[warp]);
    }
    clear_gap<C>(params.d_q_out, forward.q_blocks(cta / shape.q_blocks)[cta % shape.q_blocks],
                 page.batch, page.head, params.q_rows, thread, kBlockThreads);
    return;
  }
  cta -= grid.query_blocks;

  if (cta < grid.query_ends) {
    const std::int64_t pieces = ceil_div(params.q_rows, kPieceRows);
    const std::int64_t batch_head = cta / pieces;
    clear_ends<C>(params.d_q_out,
                  forward.q_scopes[plan::scope_of(shape.q_scope, shape, batch_head)],
                  batch_head / shape.heads, batch_head % shape.heads, cta % pieces, params.q_rows);
    return;
  }
  cta -= grid.query_ends;

  if (cta < grid.kv_blocks) {
    const std::int64_t number = cta * plan::kBlockPages + warp;
    const std::int64_t batch_head = number / shape.kv_blocks;
    if (batch_head < plan::batch_heads(shape)) {
      const plan::Extent& extent = forward.kv_blocks(batch_head)[number % shape.kv_blocks];
      const std::int64_t batch = batch_head / shape.heads;
      const std::int64_t head = batch_head % shape.heads;
      const int lane = thread % kWarpThreads;
      clear_gap<C>(params.d_k, extent, batch, head, params.kv_rows, lane, kWarpThreads);
      clear_gap<C>(params.d_v, extent, batch, head, params.kv_rows, lane, kWarpThreads);
    }
    return;
  }
  cta -= grid.kv_blocks;

  if (cta < grid.kv_ends) {
    const std::int64_t pieces = ceil_div(params.kv_rows, kPieceRows);
    const std::int64_t batch_head = cta / pieces;
    plan::ScopeInfo scope = forward.kv_scopes[plan::scope_of(shape.kv_scope, shape, batch_head)];
    if (!params.multiplied) {
      scope.first_row = plan::kToTheEnd;
    }
    const std::int64_t batch = batch_head / shape.heads;
    const std::int64_t head = batch_head % shape.heads;
    clear_ends<C>(params.d_k, scope, batch, head, cta % pieces, params.kv_rows);
    clear_ends<C>(params.d_v, scope, batch, head, cta % pieces, params.kv_rows);
    return;
  }
  cta -= grid.kv_ends;

  const std::int64_t kv_heads = shape.heads / params.group;
  const std::int64_t begin = cta * kSumRows;
  const std::int64_t end = min_of(begin + kSumRows, shape.batch * kv_heads * params.kv_rows);
  const std::int32_t parts = params.row_scales != nullptr ? params.group : 1;
  convert_sums<C>(params.d_k_sum, parts, params.scale, params.d_k, kv_heads, params.kv_rows, begin,
                  end);
  convert_sums<C>(params.d_v_sum, parts, 1.0f, params.d_v, kv_heads, params.kv_rows, begin, end);
}

}  // namespace kpage::kernels::sm90::backward_kernel
