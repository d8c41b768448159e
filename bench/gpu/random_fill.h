// Normally distributed numbers in device memory.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kpage/types.h"

namespace kpage::bench {

// elements: [count], bf16 or fp16. The same for a seed on every device.
cudaError_t fill_normal(void* elements, std::int64_t count, DType dtype, std::uint64_t seed,
                        cudaStream_t stream);

}  // namespace kpage::bench
