// Means of clusters: a CUDA block each, which also tells how far the centroid has moved.
#include <cuda_runtime.h>

#include "kernels/common/check.h"
#include "kernels/common/grid.h"
#include "kernels/common/warp.cuh"
#include "kernels/select/launch.h"
#include "kernels/select/row_sums.cuh"

namespace kpage::kernels {
namespace {

struct MeansParams {
  const void* x;
  std::int64_t batch_stride, head_stride, row_stride;  // in elements
  std::int32_t heads, slices, rows;
  const std::int32_t* order;
  const std::int32_t* sizes;
  const std::int32_t* offsets;
  const void* centroids;
  std::int32_t clusters;
  std::int32_t head_dim;
  void* means;
  float* shifts;
};

template <class Element, std::int32_t kElements>
__global__ void __launch_bounds__(select::kSumThreads<kElements>, select::kSumBlocks<kElements>)
    means_kernel(const MeansParams p) {
  constexpr std::int32_t kThreads = select::kSumThreads<kElements>;
  __shared__ float parts[kThreads * kElements];
  __shared__ float squares[kThreads / kWarp];
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  for (auto slice = static_cast<std::int32_t>(blockIdx.y); slice < p.slices;
       slice += static_cast<std::int32_t>(gridDim.y)) {
    const std::int64_t cluster = static_cast<std::int64_t>(slice) * p.clusters + blockIdx.x;
    const auto* x = static_cast<const Element*>(p.x) +
                    static_cast<std::int64_t>(slice / p.heads) * p.batch_stride +
                    slice % p.heads * p.head_stride;
    const std::int32_t* order = p.order + static_cast<std::int64_t>(slice) * p.rows;
    const std::int32_t size = p.sizes[cluster];
    const std::int32_t begin = min(max(p.offsets[cluster], 0), p.rows);
    const std::int32_t groups = select::sum_rows<Element, kElements>(
        x, p.row_stride, p.head_dim, begin, begin + min(size, p.rows - begin), parts,
        [&](std::int32_t place) {
          const std::int32_t row = order[place];
          return row < p.rows ? row : -1;
        });
    __syncthreads();
    const auto* centroid = static_cast<const Element*>(p.centroids) + cluster * p.head_dim;
    auto* mean = static_cast<Element*>(p.means) + cluster * p.head_dim;
    float square = 0.0F;
    for (std::int32_t d = thread; d < p.head_dim; d += kThreads) {
      const float total = select::add_groups(parts, groups, p.head_dim, d);
      const Element old = centroid[d];
      const Element moved = size > 0 ? static_cast<Element>(total / static_cast<float>(size)) : old;
      mean[d] = moved;
      const float shift = select::to_float(moved) - select::to_float(old);
      square += shift * shift;
    }
#pragma unroll
    for (std::int32_t step = kWarp / 2; step > 0; step /= 2) {
      square += __shfl_xor_sync(kAllLanes, square, step);
    }
    if (lane_id() == 0) {
      squares[thread / kWarp] = square;
    }
    __syncthreads();
    if (thread == 0) {
      float sum = 0.0F;
      for (const float of_warp : squares) {
        sum += of_warp;
      }
      p.shifts[cluster] = sqrtf(sum);
    }
  }
}

}  // namespace

Status cluster_means(const ClusterMeansArgs& args) {
  const auto& [batch, heads, rows, head_dim] = args.x.shape;
  if (Status status = select::check_sums("cluster_means", args.x, args.clusters); !status.ok()) {
    return status;
  }
  const MeansParams params{args.x.data,
                           args.x.stride[0],
                           args.x.stride[1],
                           args.x.stride[2],
                           static_cast<std::int32_t>(heads),
                           static_cast<std::int32_t>(batch * heads),
                           static_cast<std::int32_t>(rows),
                           args.order,
                           args.sizes,
                           args.offsets,
                           args.centroids,
                           static_cast<std::int32_t>(args.clusters),
                           static_cast<std::int32_t>(head_dim),
                           args.means,
                           args.shifts};
  const dim3 grid(static_cast<unsigned>(params.clusters), slice_ctas(params.slices));
  select::with_vectors(args.x, [&]<class Element, std::int32_t kElements>() {
    means_kernel<Element, kElements>
        <<<grid, select::kSumThreads<kElements>, 0, args.stream>>>(params);
  });
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
