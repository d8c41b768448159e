// Loads of the copy engine through tensor maps. Each completes on a barrier by bytes.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda/ptx>

#include "kernels/ptx/barrier.cuh"

namespace kpage::kernels::ptx {

template <int kRank>
__device__ __forceinline__ void load_tensor(void* shared, const CUtensorMap& map,
                                            const std::int32_t (&at)[kRank], Barrier& barrier) {
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, shared, &map,
                                  at, &barrier);
}

}  // namespace kpage::kernels::ptx
