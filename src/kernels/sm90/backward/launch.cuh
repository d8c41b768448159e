// The launches of one configuration.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/sm90/backward/bounds.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/instantiations/instantiations.h"
#include "kernels/sm90/backward/kernel.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/postprocess.cuh"
#include "kernels/sm90/backward/preprocess.cuh"

namespace kpage::kernels::sm90::backward_kernel {

template <class C>
cudaError_t launch_main(const MainParams& params, std::int32_t ctas, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      backward_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
  if (error != cudaSuccess) {
    return error;
  }
  backward_kernel<C><<<static_cast<unsigned>(ctas), kThreads, C::kSharedBytes, stream>>>(params);
  return cudaSuccess;
}

// `ctas` of the main kernel; 0 where there is nothing to multiply. `launch_deterministic` launches
// the main kernel that adds to dQ in fixed point.
template <class C>
cudaError_t launch(const Params& params, std::int32_t ctas, LaunchMain launch_deterministic,
                   cudaStream_t stream) {
  const plan::Shape& shape = params.main.forward.shape;
  const bool deterministic = params.bounds.bounds != nullptr;
  const auto owners = static_cast<unsigned>(plan::owner_capacity(shape));
  if (deterministic && owners > 0) {
    bounds_kernel<C><<<owners, kBlockThreads, 0, stream>>>(params.bounds);
  }
  const auto blocks = static_cast<unsigned>(plan::walk_count(shape));
  preprocess_kernel<C><<<max_of(blocks, 1u), kBlockThreads, 0, stream>>>(params.preprocess);
  if (ctas > 0) {
    const cudaError_t error = deterministic ? launch_deterministic(params.main, ctas, stream)
                                            : launch_main<C>(params.main, ctas, stream);
    if (error != cudaSuccess) {
      return error;
    }
  }
  const auto post = static_cast<unsigned>(postprocess_grid(params.postprocess).ctas());
  if (post > 0) {
    postprocess_kernel<C><<<post, kBlockThreads, 0, stream>>>(params.postprocess);
  }
  return cudaGetLastError();
}

}  // namespace kpage::kernels::sm90::backward_kernel
