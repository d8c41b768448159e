// Sums over the rows of blocks: a CUDA block each, in groups of lanes that read a row together.
#include <algorithm>
#include <bit>
#include <cstddef>

#include <cuda_runtime.h>

#include "base/hd.h"
#include "kernels/common/check.h"
#include "kernels/select/elements.cuh"
#include "kernels/select/launch.h"

namespace kpage::kernels {
namespace {

constexpr std::int32_t kThreads = 256;
constexpr std::int64_t kMostGridY = 65535;

struct SumParams {
  const void* x;
  std::int64_t batch_stride, head_stride, row_stride;  // in elements
  std::int64_t heads, slices, rows;
  const std::int32_t* sizes;
  const std::int32_t* offsets;
  std::int64_t partition_stride;  // between slices; 0 where all share one
  const std::int32_t* row_of_place;
  std::int32_t blocks;
  std::int32_t head_dim;
  float* sums;
};

template <class Element, std::int32_t kElements>
struct alignas(sizeof(Element) * kElements) Vector {
  Element of[kElements];
};

// A thread sums kElements neighbouring columns of every `groups`-th row.
template <class Element, std::int32_t kElements, bool kIndexed>
__global__ void __launch_bounds__(kThreads) sum_kernel(const SumParams p) {
  __shared__ float parts[kThreads * kElements];
  const std::int32_t lanes = p.head_dim / kElements;
  const std::int32_t groups = kThreads / lanes;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t group = thread / lanes;
  const std::int32_t column = thread % lanes * kElements;
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  for (std::int64_t slice = blockIdx.y; slice < p.slices; slice += gridDim.y) {
    const auto* x = static_cast<const Element*>(p.x) + slice / p.heads * p.batch_stride +
                    slice % p.heads * p.head_stride + column;
    const std::int64_t begin = p.offsets[slice * p.partition_stride + block];
    const std::int64_t end = min(begin + p.sizes[slice * p.partition_stride + block], p.rows);
    float sums[kElements] = {};
    if (group < groups) {
#pragma unroll 4
      for (std::int64_t place = max(begin, std::int64_t{0}) + group; place < end; place += groups) {
        std::int64_t row = place;
        if constexpr (kIndexed) {
          row = p.row_of_place[slice * p.rows + place];
          if (row < 0 || row >= p.rows) {
            continue;
          }
        }
        const auto values =
            *reinterpret_cast<const Vector<Element, kElements>*>(x + row * p.row_stride);
#pragma unroll
        for (std::int32_t i = 0; i < kElements; ++i) {
          sums[i] += select::to_float(values.of[i]);
        }
      }
#pragma unroll
      for (std::int32_t i = 0; i < kElements; ++i) {
        parts[group * p.head_dim + column + i] = sums[i];
      }
    }
    __syncthreads();
    for (std::int32_t d = thread; d < p.head_dim; d += kThreads) {
      float total = 0.0F;
      for (std::int32_t g = 0; g < groups; ++g) {
        total += parts[g * p.head_dim + d];
      }
      p.sums[(slice * p.blocks + block) * p.head_dim + d] = total;
    }
    __syncthreads();
  }
}

template <class Element, std::int32_t kElements>
void launch(const SumParams& params, Stream stream) {
  const dim3 grid(static_cast<unsigned>(params.blocks),
                  static_cast<unsigned>(std::min(params.slices, kMostGridY)));
  if (params.row_of_place == nullptr) {
    sum_kernel<Element, kElements, false><<<grid, kThreads, 0, stream>>>(params);
  } else {
    sum_kernel<Element, kElements, true><<<grid, kThreads, 0, stream>>>(params);
  }
}

// Whether vectors of this many bytes lie where all rows begin, and rows are whole numbers of them.
bool aligned(const TensorRef& x, std::int64_t bytes) {
  const std::int64_t element = size_of(x.dtype);
  bool fits = x.shape[3] * element % bytes == 0 &&
              reinterpret_cast<std::uintptr_t>(x.data) % static_cast<std::uintptr_t>(bytes) == 0;
  for (std::size_t i = 0; i < 3; ++i) {
    fits = fits && (x.shape[i] <= 1 || x.stride[i] * element % bytes == 0);
  }
  return fits;
}

}  // namespace

Status block_sums(const BlockSumsArgs& args) {
  const auto& [batch, heads, rows, head_dim] = args.x.shape;
  constexpr std::int64_t kVectorBytes = 16;
  const bool wide = aligned(args.x, kVectorBytes);
  const std::int64_t lanes = wide ? head_dim * size_of(args.x.dtype) / kVectorBytes : head_dim;
  if (lanes > kThreads || args.blocks > 0x7fffffff) {
    return {
        ErrorCode::kUnsupported,
        "block_sums on a CUDA device: rows of at most 256 elements, or of 4,096 bytes where they "
        "are aligned to 16"};
  }
  const SumParams params{args.x.data,
                         args.x.stride[0],
                         args.x.stride[1],
                         args.x.stride[2],
                         heads,
                         batch * heads,
                         rows,
                         args.sizes,
                         args.offsets,
                         args.per_head ? args.blocks : 0,
                         args.row_of_place,
                         static_cast<std::int32_t>(args.blocks),
                         static_cast<std::int32_t>(head_dim),
                         args.sums};
  select::with_element(args.x.dtype, [&](auto element) {
    using Element = decltype(element);
    constexpr auto kElements = static_cast<std::int32_t>(kVectorBytes / sizeof(Element));
    if (wide) {
      launch<Element, kElements>(params, args.stream);
    } else {
      launch<Element, 1>(params, args.stream);
    }
  });
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
