#include "kernels/sm90/backward/instantiations/instantiations.h"
#include "kernels/sm90/backward/launch.cuh"

namespace kpage::kernels::sm90::backward_kernel {

cudaError_t launch_deterministic_bf16_d128(const MainParams& params, std::int32_t ctas,
                                           cudaStream_t stream) {
  return launch_main<Config<__nv_bfloat16, 128, true>>(params, ctas, stream);
}

}  // namespace kpage::kernels::sm90::backward_kernel
