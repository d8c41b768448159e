// Rows of global memory, for the kernels before and after the main one.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

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
__device__ __forceinline__ float largest(const uint4& x) {
  using Type = typename Pair<Element>::Type;
  const auto* a = reinterpret_cast<const Type*>(&x);
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    const float2 u = to_floats(a[i]);
    most = fmaxf(most, fmaxf(fabsf(u.x), fabsf(u.y)));
  }
  return most;
}

// Over the `kLanes` lanes that hold a row, to all of them.
template <int kLanes>
__device__ __forceinline__ float sum_of_row(float x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
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

}  // namespace kpage::kernels::sm90::backward_kernel
