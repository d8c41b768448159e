// The forward kernel: one CTA an SM, one warpgroup of producers, two of consumers.
#pragma once

#include "kernels/ptx/registers.cuh"
#include "kernels/sm90/forward/consumer.cuh"
#include "kernels/sm90/forward/padding.cuh"
#include "kernels/sm90/forward/producer.cuh"
#include "kernels/sm90/forward/scheduler.cuh"

namespace kpage::kernels::sm90::forward_kernel {

template <class C>
__device__ void init_barriers(typename C::Shared& shared) {
  ptx::init(shared.q_full, 1);
  ptx::init(shared.q_empty, kConsumerWarps);
  for (std::int32_t i = 0; i < C::kStages; ++i) {
    ptx::init(shared.k_full[i], 1);
    ptx::init(shared.k_empty[i], kConsumerThreads);
    ptx::init(shared.v_full[i], 1);
    ptx::init(shared.v_empty[i], kConsumerThreads);
    ptx::init(shared.v_landed[i], 1);
  }
  ptx::init(shared.merge_full, kGroupThreads);
  ptx::init(shared.merge_empty, kGroupThreads);
  for (std::int32_t i = 0; i < kItemStages; ++i) {
    ptx::init(shared.item_full[i], 1);
    ptx::init(shared.item_empty[i], kItemReaders);
  }
  ptx::fence_barrier_init();
}

template <class C>
__global__ void __launch_bounds__(kThreads, 1) forward(const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<typename C::Shared*>(memory);
  if (threadIdx.x == 0) {
    init_barriers<C>(shared);
  }
  __syncthreads();

  // The same in all lanes, and the compiler must know.
  const auto warp = static_cast<std::uint32_t>(
      __shfl_sync(~0u, static_cast<std::int32_t>(threadIdx.x / kWarpThreads), 0));
  if (warp < kGroupWarps) {
    ptx::lower_registers<kProducerRegisters>();
    switch (static_cast<Role>(warp)) {
      case Role::kKeyLoads:
        run_loads<C, false>(shared, params);
        break;
      case Role::kValueLoads:
        run_loads<C, true>(shared, params);
        break;
      case Role::kItems:
        if (threadIdx.x % kWarpThreads == 0) {
          run_items<C>(shared, params);
        }
        break;
      case Role::kPadding:
        run_padding<C>(shared, params);
        break;
    }
  } else {
    ptx::raise_registers<kConsumerRegisters>();
    Consumer<C>(shared, params, warp / kGroupWarps - 1).run();
  }
}

// Launches on `stream`; the counter has been cleared there.
template <class C>
cudaError_t launch(const Params& params, std::int32_t ctas, cudaStream_t stream) {
  constexpr auto kBytes = static_cast<int>(C::kSharedBytes);
  const cudaError_t error =
      cudaFuncSetAttribute(forward<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) {
    return error;
  }
  forward<C><<<static_cast<unsigned>(ctas), kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace kpage::kernels::sm90::forward_kernel
