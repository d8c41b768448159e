#include "kernels/sm90/backward/instantiations/instantiations.h"
#include "kernels/sm90/backward/launch.cuh"

namespace kpage::kernels::sm90::backward_kernel {

cudaError_t launch_deterministic_fp16_d64(const MainParams& params, std::int32_t ctas,
                                          cudaStream_t stream) {
  return launch_main<Config<__half, 64, true>>(params, ctas, stream);
}

}  // namespace kpage::kernels::sm90::backward_kernel
