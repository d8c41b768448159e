// What makes dQ reproducible. Owners add to it in any order, and sums of floats depend on it; sums
// of integers do not. So each query row gets a scale with which its dQ fits 31 bits, whatever the
// keys: with P >= 0 and sum(P) = 1,
//
//   |dQ[d]| = |sum_j P_j (dP_j - delta) K_j[d]| <= max|K| (2 |dO| max|V_j| + |dLSE|)
//
// since |dP_j| and |delta| are at most |dO| |V_j|. Sums on the way may wrap around; the last one is
// right. What the bound wastes leaves 17 bits or more of a row's largest numbers.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/rows.cuh"

namespace kpage::kernels::sm90::backward_kernel {

// Of the bound on a row: 2^31, less what the roundings of P, dS and the norms may add.
inline constexpr float kFixedPointRange = 2.0e9f;

// A CTA an owner. Blocks that nobody attends to may hold anything, and do not count.
template <class C>
__global__ __launch_bounds__(kBlockThreads) void bounds_kernel(
    const __grid_constant__ BoundsParams params) {
  using Element = typename C::Element;
  constexpr int kRowLanes = C::kHeadDim / kChunk;
  if (blockIdx.x >= static_cast<unsigned>(params.backward.header->owners)) {
    return;
  }
  const plan::Owner& owner = params.backward.owners[blockIdx.x];
  if (owner.entries == 0) {
    return;
  }
  const std::int64_t batch = owner.batch_head / params.forward.shape.heads;
  const std::int64_t head = owner.batch_head % params.forward.shape.heads / params.group;
  const int rank = static_cast<int>(threadIdx.x);
  float k_most = 0.0f;
  float v_most = 0.0f;
  for (std::int32_t i = 0; i < owner.blocks; ++i) {
    const plan::Extent& extent = params.forward.kv_blocks(
        owner.batch_head)[params.backward.owner_blocks[owner.block_begin + i]];
    const auto rows =
        static_cast<int>(min_of<std::int64_t>(extent.rows, params.kv_rows - extent.row));
    // All lanes of a warp pass the same number of times: they add up a row together.
    for (int first = 0; first < rows; first += kBlockThreads / kRowLanes) {
      const int row = min_of(first + rank / kRowLanes, rows - 1);
      const int column = rank % kRowLanes * kChunk;
      const uint4 k = *reinterpret_cast<const uint4*>(
          row_of<const Element>(params.k, batch, head, extent.row + row) + column);
      const uint4 v = *reinterpret_cast<const uint4*>(
          row_of<const Element>(params.v, batch, head, extent.row + row) + column);
      k_most = fmaxf(k_most, largest<Element>(k));
      v_most = fmaxf(v_most, sum_of_row<kRowLanes>(dot<Element>(v, v)));
    }
  }
  HeadBounds& bounds = params.bounds[owner.batch_head];
  const std::uint32_t k_bits = __reduce_max_sync(0xffffffffu, __float_as_uint(k_most));
  const std::uint32_t v_bits = __reduce_max_sync(0xffffffffu, __float_as_uint(sqrtf(v_most)));
  if (rank % kWarpThreads == 0) {
    atomicMax(&bounds.k, k_bits);
    atomicMax(&bounds.v, v_bits);
  }
}

// What dQ of a row is multiplied by before it becomes an integer, with the low half of its bits
// zero, so that two of them share a register: those of rows r, in the lower half, and r + 8 of a
// page.
__device__ __forceinline__ std::uint32_t row_scale(const HeadBounds& bounds, float d_o_squares,
                                                   float d_lse) {
  const float bound = __uint_as_float(bounds.k) *
                      (2.0f * sqrtf(d_o_squares) * __uint_as_float(bounds.v) + fabsf(d_lse));
  return bound > 0.0f ? __float_as_uint(kFixedPointRange / bound) & 0xffff0000u : 0u;
}
__device__ __forceinline__ float low_scale(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_scale(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

}  // namespace kpage::kernels::sm90::backward_kernel
