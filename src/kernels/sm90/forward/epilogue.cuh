// From accumulators to results: the merge of the two halves of a Q64 walk, and the stores of O and
// LSE.
#pragma once

#include <cuda_runtime.h>

#include "kernels/ptx/registers.cuh"
#include "kernels/sm90/forward/config.cuh"
#include "kernels/sm90/forward/params.h"

namespace kpage::kernels::sm90::forward_kernel {

// What a thread knows of its two query rows: lane / 4 of its warp's 16, and that plus 8.
template <class C>
struct RowState {
  float o[C::kOutputs];  // not yet divided by `sum`
  float max[2];          // of the raw scores, or somewhat less: kMaxSum
  float sum[2];          // of the probabilities relative to `max`: of this lane's columns only,
                         // until reduce_sums()

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (float& x : o) {
      x = 0.0f;
    }
#pragma unroll
    for (std::int32_t h = 0; h < 2; ++h) {
      max[h] = -INFINITY;
      sum[h] = 0.0f;
    }
  }
  __device__ __forceinline__ void reduce_sums() {
#pragma unroll
    for (std::int32_t h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
      sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    }
  }
};

// The row, of the warpgroup's 64, of this thread's row half 0.
__device__ __forceinline__ std::int32_t group_row() {
  const auto thread = static_cast<std::int32_t>(threadIdx.x % kGroupThreads);
  return thread / kWarpThreads * 16 + thread % kWarpThreads / 4;
}

// One warpgroup hands its half to the other through `stage`, a stage of the V ring that it owns.
template <class C>
__device__ __forceinline__ void hand_over(typename C::Shared& shared, std::byte* stage,
                                          std::uint32_t parity, const RowState<C>& state) {
  // Every warp's products must have read the stage, and the other group the half before this one.
  ptx::named_sync<kGroupThreads>(kHandOverBarrier);
  ptx::wait(shared.merge_empty, parity ^ 1);
  auto* o = reinterpret_cast<float*>(stage) + threadIdx.x % kGroupThreads;
#pragma unroll
  for (std::int32_t i = 0; i < C::kOutputs; ++i) {
    o[i * kGroupThreads] = state.o[i];
  }
  if (threadIdx.x % 4 == 0) {
#pragma unroll
    for (std::int32_t h = 0; h < 2; ++h) {
      shared.merge_max[group_row() + 8 * h] = state.max[h];
      shared.merge_sum[group_row() + 8 * h] = state.sum[h];
    }
  }
  ptx::fence_shared_async();
  ptx::arrive(shared.merge_full);
}

// Takes the other warpgroup's half in.
template <class C>
__device__ __forceinline__ void take_over(typename C::Shared& shared, const std::byte* stage,
                                          std::uint32_t parity, float scale_log2,
                                          RowState<C>& state) {
  ptx::wait(shared.merge_full, parity);
  float own[2];
  float other[2];
#pragma unroll
  for (std::int32_t h = 0; h < 2; ++h) {
    const float other_max = shared.merge_max[group_row() + 8 * h];
    const float top = fmaxf(state.max[h], other_max);
    const float shift = __fmul_rn(top, scale_log2);
    own[h] = ptx::ex2(__fmul_rn(state.max[h], scale_log2) - shift);
    other[h] = ptx::ex2(__fmul_rn(other_max, scale_log2) - shift);
    state.sum[h] = state.sum[h] * own[h] + shared.merge_sum[group_row() + 8 * h] * other[h];
    state.max[h] = top;
  }
  const float* o = reinterpret_cast<const float*>(stage) + threadIdx.x % kGroupThreads;
#pragma unroll
  for (std::int32_t i = 0; i < C::kOutputs; ++i) {
    state.o[i] = state.o[i] * own[i / 2 % 2] + o[i * kGroupThreads] * other[i / 2 % 2];
  }
  ptx::arrive(shared.merge_empty);
}

// A 4 x 4 transpose over the lanes of a quad: lane q gets element q of each lane.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&x)[4]) {
  const bool odd = threadIdx.x % 2 != 0;
  const bool upper = threadIdx.x % 4 >= 2;
#pragma unroll
  for (std::int32_t i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(~0u, odd ? x[i] : x[i + 1], 1);
    (odd ? x[i] : x[i + 1]) = got;
  }
#pragma unroll
  for (std::int32_t i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(~0u, upper ? x[i] : x[i + 2], 2);
    (upper ? x[i] : x[i + 2]) = got;
  }
}

// Stores this thread's share of O and LSE. `first_row` is the block's row of row 0 of the
// warpgroup.
template <class C>
__device__ __forceinline__ void store_rows(const Params& params, const Item& item,
                                           std::int32_t first_row, const RowState<C>& state) {
  constexpr float kLn2 = 0.693147180559945309f;
  constexpr std::int32_t kColumns = 8;  // of a 16-byte store
  const std::int32_t rows = min_of(item.q_rows, params.q_rows - item.q_row);
  float* lse = params.lse + item.batch * params.lse_stride[0] + item.head * params.lse_stride[1];
  auto* o = static_cast<typename C::Element*>(params.o) + item.batch * params.o_stride[0] +
            item.head * params.o_stride[1] + threadIdx.x % 4 * kColumns;
#pragma unroll
  for (std::int32_t h = 0; h < 2; ++h) {
    const std::int32_t block_row = first_row + group_row() + 8 * h;
    const bool counts = block_row < rows;
    const std::int64_t row = std::int64_t{item.q_row} + block_row;
    const bool has_keys = state.sum[h] != 0.0f;
    if (counts && threadIdx.x % 4 == 0) {
      // Probabilities were relative to the rounded product of maximum and scale.
      const float rounding =
          fmaf(state.max[h], params.scale_log2, -__fmul_rn(state.max[h], params.scale_log2));
      lse[row * params.lse_stride[2]] =
          has_keys ? fmaf(state.max[h], params.scale, logf(state.sum[h]) - rounding * kLn2)
                   : -INFINITY;
    }
    const float inverse = has_keys ? 1.0f / state.sum[h] : 0.0f;
#pragma unroll
    for (std::int32_t part = 0; part < C::kHeadDim / 32; ++part) {
      std::uint32_t packed[4];
#pragma unroll
      for (std::int32_t i = 0; i < 4; ++i) {
        const std::int32_t at = (part * 4 + i) * 4 + h * 2;
        packed[i] =
            ptx::pack<typename C::Element>(state.o[at] * inverse, state.o[at + 1] * inverse);
      }
      transpose_quad(packed);
      if (counts) {
        *reinterpret_cast<uint4*>(o + row * params.o_stride[2] + part * 32) =
            make_uint4(packed[0], packed[1], packed[2], packed[3]);
      }
    }
  }
}

}  // namespace kpage::kernels::sm90::forward_kernel
