// Sums over the rows of blocks: a CUDA block each.
#include <cuda_runtime.h>

#include "kernels/common/check.h"
#include "kernels/common/grid.h"
#include "kernels/select/launch.h"
#include "kernels/select/row_sums.cuh"

namespace kpage::kernels {
namespace {

struct SumParams {
  const void* x;
  std::int64_t batch_stride, head_stride, row_stride;  // in elements
  std::int64_t heads, slices;
  std::int32_t rows;
  const std::int32_t* sizes;
  const std::int32_t* offsets;
  std::int64_t partition_stride;  // between slices; 0 where all share one
  std::int32_t blocks;
  std::int32_t head_dim;
  float* sums;
};

template <class Element, std::int32_t kElements>
__global__ void __launch_bounds__(select::kSumThreads<kElements>, select::kSumBlocks<kElements>)
    sum_kernel(const SumParams p) {
  constexpr std::int32_t kThreads = select::kSumThreads<kElements>;
  __shared__ float parts[kThreads * kElements];
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  for (std::int64_t slice = blockIdx.y; slice < p.slices; slice += gridDim.y) {
    const auto* x = static_cast<const Element*>(p.x) + slice / p.heads * p.batch_stride +
                    slice % p.heads * p.head_stride;
    const std::int64_t first = p.offsets[slice * p.partition_stride + block];
    const std::int64_t past = first + p.sizes[slice * p.partition_stride + block];
    const auto begin =
        static_cast<std::int32_t>(min(max(first, std::int64_t{0}), std::int64_t{p.rows}));
    const auto end = static_cast<std::int32_t>(min(past, std::int64_t{p.rows}));
    const std::int32_t groups = select::sum_rows<Element, kElements>(
        x, p.row_stride, p.head_dim, begin, end, parts, [](std::int32_t row) { return row; });
    __syncthreads();
    for (auto d = static_cast<std::int32_t>(threadIdx.x); d < p.head_dim; d += kThreads) {
      p.sums[(slice * p.blocks + block) * p.head_dim + d] =
          select::add_groups(parts, groups, p.head_dim, d);
    }
    __syncthreads();
  }
}

}  // namespace

Status block_sums(const BlockSumsArgs& args) {
  const auto& [batch, heads, rows, head_dim] = args.x.shape;
  if (Status status = select::check_sums("block_sums", args.x, args.blocks); !status.ok()) {
    return status;
  }
  const SumParams params{args.x.data,
                         args.x.stride[0],
                         args.x.stride[1],
                         args.x.stride[2],
                         heads,
                         batch * heads,
                         static_cast<std::int32_t>(rows),
                         args.sizes,
                         args.offsets,
                         args.per_head ? args.blocks : 0,
                         static_cast<std::int32_t>(args.blocks),
                         static_cast<std::int32_t>(head_dim),
                         args.sums};
  const dim3 grid(static_cast<unsigned>(params.blocks), slice_ctas(params.slices));
  select::with_vectors(args.x, [&]<class Element, std::int32_t kElements>() {
    sum_kernel<Element, kElements>
        <<<grid, select::kSumThreads<kElements>, 0, args.stream>>>(params);
  });
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
