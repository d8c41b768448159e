// Labels of rows by their nearest centroid: what the kernel is told, and the squares that it needs.
#include <algorithm>
#include <cstddef>

#include <cuda_runtime.h>

#include "base/hd.h"
#include "kernels/common/check.h"
#include "kernels/select/elements.cuh"
#include "kernels/select/launch.h"
#include "kernels/select/nearest.cuh"
#include "kernels/sm90/support.h"

namespace kpage::kernels {
namespace {

constexpr std::int32_t kSquareWarps = 8;  // of a block, a centroid each

template <class Element>
__global__ void __launch_bounds__(kWarp* kSquareWarps)
    half_squares_kernel(const Element* centroids, std::int64_t count, std::int32_t head_dim,
                        float* half_squares) {
  const std::int64_t centroid =
      std::int64_t{blockIdx.x} * kSquareWarps + static_cast<std::int32_t>(threadIdx.x) / kWarp;
  if (centroid >= count) {
    return;
  }
  float sum = 0.0F;
  for (std::int32_t d = lane_id(); d < head_dim; d += kWarp) {
    const float x = select::to_float(centroids[centroid * head_dim + d]);
    sum += x * x;
  }
#pragma unroll
  for (std::int32_t step = kWarp / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, step);
  }
  if (lane_id() == 0) {
    half_squares[centroid] = sum / 2;
  }
}

// Centroids of a stage: a full one, or so many that few products are with none.
constexpr std::int32_t kMany = 128;
constexpr std::int32_t kFew = 104;

template <class C>
Status launch(const NearestArgs& args, const TensorRef& centroids, nearest::Params& params,
              std::int32_t ctas) {
  if (Status status = encode_box_map(centroids, "centroids", C::kCentroids, params.centroids);
      !status.ok()) {
    return status;
  }
  const std::int64_t count = args.x.shape[0] * args.x.shape[1] * args.clusters;
  half_squares_kernel<<<static_cast<unsigned>(ceil_div<std::int64_t>(count, kSquareWarps)),
                        kWarp * kSquareWarps, 0, args.stream>>>(
      static_cast<const typename C::Element*>(args.centroids), count, C::kHeadDim,
      args.half_squares);
  KPAGE_CUDA_TRY(cudaGetLastError());
  constexpr auto kBytes = static_cast<int>(sizeof(typename C::Shared));
  KPAGE_CUDA_TRY(cudaFuncSetAttribute(nearest::label_rows<C>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  nearest::label_rows<C><<<static_cast<unsigned>(std::min<std::int64_t>(params.items, ctas)),
                           nearest::kThreads, kBytes, args.stream>>>(params);
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

template <class Element>
Status launch_fitting(const NearestArgs& args, const TensorRef& centroids, nearest::Params& params,
                      std::int32_t ctas) {
  if (args.x.shape[3] == 64) {
    return launch<nearest::Config<Element, 64, kMany>>(args, centroids, params, ctas);
  }
  const auto rounded = [&](std::int64_t stage) { return round_up(args.clusters, stage); };
  return rounded(kFew) < rounded(kMany)
             ? launch<nearest::Config<Element, 128, kFew>>(args, centroids, params, ctas)
             : launch<nearest::Config<Element, 128, kMany>>(args, centroids, params, ctas);
}

}  // namespace

Status nearest_centroids(const NearestArgs& args) {
  const auto& [batch, heads, rows, head_dim] = args.x.shape;
  if (head_dim != 64 && head_dim != 128) {
    return unsupported("nearest_centroids", "a head_dim of 64 or 128", head_dim);
  }
  if (Status status = sm90::check_device(args.x.device.index); !status.ok()) {
    return status;
  }
  int processors = 0;
  KPAGE_CUDA_TRY(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, args.x.device.index));
  nearest::Params params{};
  if (Status status = encode_box_map(args.x, "x", nearest::kRows, params.x); !status.ok()) {
    return status;
  }
  TensorRef centroids = args.x;
  centroids.data = const_cast<void*>(args.centroids);  // a map serves stores too
  centroids.shape[2] = args.clusters;
  centroids.stride = {heads * args.clusters * head_dim, args.clusters * head_dim, head_dim, 1};
  params.x_slabs = slab_strides(args.x);
  params.centroid_slabs = slab_strides(centroids);
  params.half_squares = args.half_squares;
  params.heads = static_cast<std::int32_t>(heads);
  params.rows = static_cast<std::int32_t>(rows);
  params.clusters = static_cast<std::int32_t>(args.clusters);
  params.row_items = static_cast<std::int32_t>(ceil_div<std::int64_t>(rows, nearest::kRows));
  params.items = batch * heads * params.row_items;
  params.labels = args.labels;
  return args.x.dtype == DType::kBFloat16
             ? launch_fitting<__nv_bfloat16>(args, centroids, params, processors)
             : launch_fitting<__half>(args, centroids, params, processors);
}

}  // namespace kpage::kernels
