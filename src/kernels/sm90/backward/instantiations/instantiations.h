// The backward kernels there are, each configuration compiled in a file of its own.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace kpage::kernels::sm90::backward_kernel {

struct MainParams;
struct Params;
using Launch = cudaError_t (*)(const Params&, std::int32_t ctas, cudaStream_t);
using LaunchMain = cudaError_t (*)(const MainParams&, std::int32_t ctas, cudaStream_t);

cudaError_t launch_bf16_d64(const Params& params, std::int32_t ctas, cudaStream_t stream);
cudaError_t launch_bf16_d128(const Params& params, std::int32_t ctas, cudaStream_t stream);
cudaError_t launch_fp16_d64(const Params& params, std::int32_t ctas, cudaStream_t stream);
cudaError_t launch_fp16_d128(const Params& params, std::int32_t ctas, cudaStream_t stream);

// The main kernels with dQ in fixed point (../deterministic).
cudaError_t launch_deterministic_bf16_d64(const MainParams& params, std::int32_t ctas,
                                          cudaStream_t stream);
cudaError_t launch_deterministic_bf16_d128(const MainParams& params, std::int32_t ctas,
                                           cudaStream_t stream);
cudaError_t launch_deterministic_fp16_d64(const MainParams& params, std::int32_t ctas,
                                          cudaStream_t stream);
cudaError_t launch_deterministic_fp16_d128(const MainParams& params, std::int32_t ctas,
                                           cudaStream_t stream);

}  // namespace kpage::kernels::sm90::backward_kernel
