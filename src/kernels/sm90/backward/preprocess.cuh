// Before the main kernel: row statistics in the form that it wants, and an empty accumulator.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"

namespace kpage::kernels::sm90::backward_kernel {

inline constexpr int kBlockThreads = plan::kBlockPages * kWarpThreads;  // a warp a page of a block

// Eight elements of a row.
inline constexpr int kChunk = 8;

__device__ __forceinline__ float2 to_floats(__nv_bfloat162 x) { return __bfloat1622float2(x); }
__device__ __forceinline__ float2 to_floats(__half2 x) { return __half22float2(x); }
template <class Element>
struct Pair;
template <>
struct Pair<__nv_bfloat16> {
  using Type = __nv_bfloat162;
};
template <>
struct Pair<__half> {
  using Type = __half2;
};

template <class Element>
__device__ __forceinline__ float dot(const uint4& x, const uint4& y) {
  using Type = typename Pair<Element>::Type;
  const auto* a = reinterpret_cast<const Type*>(&x);
  const auto* b = reinterpret_cast<const Type*>(&y);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    const float2 u = to_floats(a[i]);
    const float2 w = to_floats(b[i]);
    sum = fmaf(u.x, w.x, fmaf(u.y, w.y, sum));
  }
  return sum;
}

template <class Element>
__device__ __forceinline__ Element* row_of(const RowTensor& tensor, std::int64_t batch,
                                           std::int64_t head, std::int64_t row) {
  return static_cast<Element*>(tensor.data) + batch * tensor.batch + head * tensor.head +
         row * tensor.row;
}
__device__ __forceinline__ float number_of(const RowNumbers& numbers, std::int64_t batch,
                                           std::int64_t head, std::int64_t row) {
  return numbers.data[batch * numbers.batch + head * numbers.head + row * numbers.row];
}

// A page of a query block: where it lies and how many of its rows count. What a plan says of rows
// past the end of the tensor is ignored.
struct QueryPage {
  std::int64_t batch, head, row;
  std::int32_t valid;
  std::int64_t page;  // in the accumulator
};
__device__ __forceinline__ QueryPage query_page(const plan::ForwardView& forward,
                                                std::int64_t number, std::int32_t index,
                                                std::int64_t q_rows, std::int32_t capacity) {
  const std::int64_t batch_head = number / forward.shape.q_blocks;
  const plan::Extent& extent = forward.q_blocks(batch_head)[number % forward.shape.q_blocks];
  QueryPage page;
  page.batch = batch_head / forward.shape.heads;
  page.head = batch_head % forward.shape.heads;
  page.row = std::int64_t{extent.row} + index * plan::kPageRows;
  const std::int64_t rows = min_of(std::int64_t{extent.row} + extent.rows, q_rows) - page.row;
  page.valid = extent.page + index < capacity
                   ? static_cast<std::int32_t>(min_of<std::int64_t>(rows, plan::kPageRows))
                   : 0;
  page.page = batch_head * capacity + extent.page + index;
  return page;
}

// Of row `row` of a page. LSE of -inf has no keys: nothing attends from there.
__device__ __forceinline__ void write_statistics(const PreprocessParams& params,
                                                 const QueryPage& page, int row, float delta,
                                                 float* statistics) {
  float lse_log2 = -CUDART_INF_F;
  if (row < page.valid) {
    const float lse = number_of(params.lse, page.batch, page.head, page.row + row);
    if (lse != -CUDART_INF_F) {
      lse_log2 = -lse * CUDART_L2E_F;
    }
    if (params.d_lse.data != nullptr) {
      delta -= number_of(params.d_lse, page.batch, page.head, page.row + row);
    }
  }
  statistics[row] = lse_log2;
  statistics[plan::kPageRows + row] = row < page.valid ? delta : 0.0f;
}

// delta = rowsum(O * dO) minus the gradient that comes through LSE: dS = P * (dP - delta).
template <class C>
__global__ __launch_bounds__(kBlockThreads, 4) void preprocess_kernel(
    const __grid_constant__ PreprocessParams params) {
  using Element = typename C::Element;
  constexpr int kRowLanes = C::kHeadDim / kChunk;
  constexpr int kRows = kWarpThreads / kRowLanes;  // at a time
  constexpr int kPasses = 4;                       // in flight together
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *params.ticket = 0;
  }
  if (params.forward.shape.q_blocks == 0) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const QueryPage page =
      query_page(params.forward, blockIdx.x, static_cast<int>(threadIdx.x) / kWarpThreads,
                 params.q_rows, params.page_capacity);
  if (page.valid <= 0) {
    return;
  }

  float4* const d_q = reinterpret_cast<float4*>(params.d_q + page.page * C::kPageGradients);
#pragma unroll
  for (int i = 0; i < C::kPageGradients / 4 / kWarpThreads; ++i) {
    d_q[i * kWarpThreads + lane] = {};
  }

  const Element* const o = row_of<const Element>(params.o, page.batch, page.head, page.row);
  const Element* const d_o = row_of<const Element>(params.d_o, page.batch, page.head, page.row);
  const int column = lane % kRowLanes * kChunk;
  float* const statistics = params.statistics + page.page * kPageStatistics;
#pragma unroll
  for (int first = 0; first < plan::kPageRows; first += kRows * kPasses) {
    uint4 o_chunk[kPasses];
    uint4 d_o_chunk[kPasses];
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      // Of rows that do not count, another's are loaded.
      const int row = min_of(first + i * kRows + lane / kRowLanes, page.valid - 1);
      o_chunk[i] = *reinterpret_cast<const uint4*>(o + row * params.o.row + column);
      d_o_chunk[i] = *reinterpret_cast<const uint4*>(d_o + row * params.d_o.row + column);
    }
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      float delta = dot<Element>(o_chunk[i], d_o_chunk[i]);
#pragma unroll
      for (int distance = kRowLanes / 2; distance > 0; distance /= 2) {
        delta += __shfl_xor_sync(0xffffffffu, delta, distance);
      }
      const int row = first + i * kRows + lane / kRowLanes;
      if (lane % kRowLanes == 0) {
        write_statistics(params, page, row, delta, statistics);
      }
    }
  }
}

}  // namespace kpage::kernels::sm90::backward_kernel
