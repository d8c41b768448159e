// Rows of a tensor, gathered by an index: the one kernel of token movement.
//
// A row is copied by a group of lanes, a vector each; a thread has several rows in flight, since
// each of them waits for memory twice, for the position and for the row. Rows are taken in the
// order in which the output lies in memory, so that stores are contiguous whatever the layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/divisor.h"

namespace kpage::kernels::tokens {

// The fastest of 49 combinations of threads, rows in flight and cache hints on an H200, by up to 5
// %.
inline constexpr std::int32_t kGatherThreads = 128;
inline constexpr std::int32_t kGatherRows = 2;  // in flight, of a thread

// Of an output row: strides over the two dimensions, heads and rows, in the order of memory.
struct OuterInner {
  std::int64_t outer;
  std::int64_t inner;
};

struct GatherParams {
  const std::byte* x;
  const std::int32_t* index;
  std::byte* out;
  std::int64_t x_batch, index_batch, out_batch;  // strides: of x and out in bytes
  OuterInner x_head;                             // the stride of heads, 0 in the dimension of rows
  OuterInner index_stride;
  OuterInner out_stride;
  std::int64_t x_row;
  Divisor inner;         // size of the inner dimension
  std::uint32_t rows;    // of a batch element, over its heads; below 2^31
  std::uint32_t x_rows;  // of a head
  std::uint32_t batch;
  std::uint32_t vectors;    // of a row
  std::uint32_t lane_bits;  // 2^lane_bits lanes copy a row
};

template <class Vector>
__global__ void __launch_bounds__(kGatherThreads) gather_kernel(const GatherParams p) {
  const std::uint32_t lanes = 1U << p.lane_bits;
  const std::uint32_t lane = threadIdx.x & (lanes - 1);
  const std::uint32_t groups = kGatherThreads >> p.lane_bits;
  const std::uint32_t first = blockIdx.x * (groups * kGatherRows) + (threadIdx.x >> p.lane_bits);
  for (std::uint32_t b = blockIdx.y; b < p.batch; b += gridDim.y) {
    const Vector* from[kGatherRows];
    Vector* to[kGatherRows];
    bool moves[kGatherRows];
#pragma unroll
    for (std::int32_t i = 0; i < kGatherRows; ++i) {
      const std::uint32_t n = first + static_cast<std::uint32_t>(i) * groups;
      const std::uint32_t outer = p.inner.quotient(n);
      const std::uint32_t inner = p.inner.remainder(n, outer);
      const auto offset = [outer, inner](std::int64_t batch_offset, const OuterInner& stride) {
        return batch_offset + outer * stride.outer + inner * stride.inner;
      };
      // The position of no row, as every one outside of x, is past the end when unsigned.
      const std::uint32_t position =
          n < p.rows ? static_cast<std::uint32_t>(
                           __ldg(p.index + offset(b * p.index_batch, p.index_stride)))
                     : ~0U;
      moves[i] = position < p.x_rows;
      from[i] = reinterpret_cast<const Vector*>(p.x + offset(b * p.x_batch, p.x_head) +
                                                position * p.x_row);
      to[i] = n < p.rows ? reinterpret_cast<Vector*>(p.out + offset(b * p.out_batch, p.out_stride))
                         : nullptr;
    }
    for (std::uint32_t column = lane; column < p.vectors; column += lanes) {
      Vector row[kGatherRows];
#pragma unroll
      for (std::int32_t i = 0; i < kGatherRows; ++i) {
        row[i] = moves[i] ? __ldg(from[i] + column) : Vector{};
      }
#pragma unroll
      for (std::int32_t i = 0; i < kGatherRows; ++i) {
        if (to[i] != nullptr) {
          to[i][column] = row[i];
        }
      }
    }
  }
}

}  // namespace kpage::kernels::tokens
