#include "kernels/sm90/backward/instantiations/instantiations.h"
#include "kernels/sm90/backward/launch.cuh"

namespace kpage::kernels::sm90::backward_kernel {

cudaError_t launch_fp16_d64(const Params& params, std::int32_t ctas, cudaStream_t stream) {
  return launch<Config<__half, 64>>(params, ctas, launch_deterministic_fp16_d64, stream);
}

}  // namespace kpage::kernels::sm90::backward_kernel
