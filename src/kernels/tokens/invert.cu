#include <cuda_runtime.h>

#include "base/hd.h"
#include "kernels/common/check.h"
#include "kernels/common/grid.h"
#include "kernels/tokens/launch.h"

namespace kpage::kernels {
namespace {

constexpr std::int32_t kThreads = 256;

struct InvertParams {
  const std::int32_t* index;
  std::int64_t batch_stride, head_stride, place_stride;
  std::int64_t heads, slices, places, rows;
  std::int32_t* inverse;
};

// inverse: [batch * heads, rows], -1 throughout before. Of places that have the same row the last
// one stays, in whatever order they come.
__global__ void __launch_bounds__(kThreads) invert_kernel(const InvertParams p) {
  const std::int64_t place = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (place >= p.places) {
    return;
  }
  for (std::int64_t slice = blockIdx.y; slice < p.slices; slice += gridDim.y) {
    const std::int64_t b = slice / p.heads;
    const std::int64_t h = slice - b * p.heads;
    const std::int32_t row =
        p.index[b * p.batch_stride + h * p.head_stride + place * p.place_stride];
    if (row >= 0 && row < p.rows) {
      atomicMax(p.inverse + slice * p.rows + row, static_cast<std::int32_t>(place));
    }
  }
}

}  // namespace

Status invert_index(const InvertArgs& args) {
  const std::int64_t slices = args.inverse.shape[0] * args.inverse.shape[1];
  const std::int64_t rows = args.inverse.shape[2];
  if (slices == 0 || rows == 0) {
    return {};
  }
  // Bytes of 0xff are the number -1.
  KPAGE_CUDA_TRY(cudaMemsetAsync(args.inverse.data, 0xff,
                                 static_cast<std::size_t>(slices * rows) * sizeof(std::int32_t),
                                 args.stream));
  const std::int64_t places = args.index.shape[2];
  if (places > 0) {
    const dim3 grid(static_cast<unsigned>(ceil_div<std::int64_t>(places, kThreads)),
                    slice_ctas(slices));
    const InvertParams params{args.index.data,
                              args.index.stride[0],
                              args.index.stride[1],
                              args.index.stride[2],
                              args.index.shape[1],
                              slices,
                              places,
                              rows,
                              args.inverse.data};
    invert_kernel<<<grid, kThreads, 0, args.stream>>>(params);
    KPAGE_CUDA_TRY(cudaGetLastError());
  }
  return {};
}

}  // namespace kpage::kernels
