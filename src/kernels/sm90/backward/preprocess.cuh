// Before the main kernel: row statistics in the form that it wants, an empty accumulator, and what
// its CTAs tell each other from the start.
#pragma once

#include <cstdint>

#include <math_constants.h>

#include "kernels/sm90/backward/bounds.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/rows.cuh"

namespace kpage::kernels::sm90::backward_kernel {

// Of row `row` of a page, from its delta and the squared norm of its dO. LSE of -inf has no keys:
// nothing attends from there.
__device__ __forceinline__ void write_statistics(const PreprocessParams& params,
                                                 const QueryPage& page, int row, float delta,
                                                 float squares, float* statistics) {
  const bool valid = row < page.valid;
  float lse = -CUDART_INF_F;
  float d_lse = 0.0f;
  if (valid) {
    lse = number_of(params.lse, page.batch, page.head, page.row + row);
    if (params.d_lse.data != nullptr) {
      d_lse = number_of(params.d_lse, page.batch, page.head, page.row + row);
    }
  }
  statistics[row] =
      lse == -CUDART_INF_F ? params.no_score : -lse * CUDART_L2E_F / params.scale_log2;
  statistics[plan::kPageRows + row] = valid ? d_lse - delta : 0.0f;
  if (params.bounds != nullptr) {
    const std::int64_t batch_head = page.batch * params.forward.shape.heads + page.head;
    const std::uint32_t scale = valid ? row_scale(params.bounds[batch_head], squares, d_lse) : 0u;
    constexpr int kPairs = plan::kPageRows / 2;
    reinterpret_cast<std::uint16_t*>(params.row_scales + page.page * kPairs +
                                     row % kPairs)[row / kPairs] =
        static_cast<std::uint16_t>(scale >> 16);
  }
}

// delta = rowsum(O * dO) minus the gradient that comes through LSE: dS = P * (dP - delta).
template <class C>
__global__ __launch_bounds__(kBlockThreads, 4) void preprocess_kernel(
    const __grid_constant__ PreprocessParams params) {
  using Element = typename C::Element;
  constexpr int kRowLanes = C::kHeadDim / kChunk;
  constexpr int kRows = kWarpThreads / kRowLanes;  // at a time
  constexpr int kPasses = 4;                       // in flight together
  if (blockIdx.x == 0) {
    const auto sweeps = static_cast<std::int32_t>(sweep_count(params.forward.shape));
    for (auto i = static_cast<std::int32_t>(threadIdx.x); i < sweeps; i += kBlockThreads) {
      params.sweeps[i] = 0;
    }
    if (threadIdx.x == 0) {
      *params.ticket = 0;
    }
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
      const float delta = sum_of_row<kRowLanes>(dot<Element>(o_chunk[i], d_o_chunk[i]));
      float squares = 0.0f;
      if (params.bounds != nullptr) {
        squares = sum_of_row<kRowLanes>(dot<Element>(d_o_chunk[i], d_o_chunk[i]));
      }
      const int row = first + i * kRows + lane / kRowLanes;
      if (lane % kRowLanes == 0) {
        write_statistics(params, page, row, delta, squares, statistics);
      }
    }
  }
}

}  // namespace kpage::kernels::sm90::backward_kernel
