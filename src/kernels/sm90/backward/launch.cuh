// The launches of one configuration.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/kernel.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/postprocess.cuh"
#include "kernels/sm90/backward/preprocess.cuh"

namespace kpage::kernels::sm90::backward_kernel {

// `ctas` of the main kernel; 0 where there is nothing to multiply.
template <class C>
cudaError_t launch(const Params& params, std::int32_t ctas, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(plan::walk_count(params.main.forward.shape));
  preprocess_kernel<C><<<max_of(blocks, 1u), kBlockThreads, 0, stream>>>(params.preprocess);
  if (ctas > 0) {
    const cudaError_t error = cudaFuncSetAttribute(
        backward_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
    if (error != cudaSuccess) {
      return error;
    }
    backward_kernel<C>
        <<<static_cast<unsigned>(ctas), kThreads, C::kSharedBytes, stream>>>(params.main);
  }
  const auto post = static_cast<unsigned>(postprocess_grid(params.postprocess).ctas());
  if (post > 0) {
    postprocess_kernel<C><<<post, kBlockThreads, 0, stream>>>(params.postprocess);
  }
  return cudaGetLastError();
}

}  // namespace kpage::kernels::sm90::backward_kernel
