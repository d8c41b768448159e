// Barriers of shared memory and named barriers.
#pragma once

#include <cstdint>

#include <cuda/ptx>

namespace kpage::kernels::ptx {

using Barrier = std::uint64_t;  // an mbarrier object in shared memory

__device__ __forceinline__ void init(Barrier& barrier, std::uint32_t arrivals) {
  cuda::ptx::mbarrier_init(&barrier, arrivals);
}
// Makes initialised barriers visible to the copy engine; a __syncthreads() must follow.
__device__ __forceinline__ void fence_barrier_init() {
  cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
}
__device__ __forceinline__ void arrive(Barrier& barrier) { cuda::ptx::mbarrier_arrive(&barrier); }
__device__ __forceinline__ void arrive(Barrier& barrier, std::uint32_t count) {
  cuda::ptx::mbarrier_arrive(&barrier, count);
}
__device__ __forceinline__ void arrive_expect(Barrier& barrier, std::uint32_t bytes) {
  cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                       cuda::ptx::space_shared, &barrier, bytes);
}
// Waits until the phase of this parity has completed. A waiter must see every phase: with one that
// it skipped in between, parity would tell of the phase before.
__device__ __forceinline__ void wait(Barrier& barrier, std::uint32_t parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(&barrier, parity)) {
  }
}
// Whether it has, without waiting. The answer takes a while: ask well before it is needed.
__device__ __forceinline__ bool test(Barrier& barrier, std::uint32_t parity) {
  return cuda::ptx::mbarrier_test_wait_parity(&barrier, parity);
}

// Hardware barriers, numbered 1 to 15 (0 is __syncthreads). `threads` counts those that arrive and
// those that wait.
template <std::uint32_t kThreads>
__device__ __forceinline__ void named_sync(std::uint32_t id) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}
template <std::uint32_t kThreads>
__device__ __forceinline__ void named_arrive(std::uint32_t id) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// Orders this thread's ordinary accesses to shared memory before accesses of the tensor cores and
// the copy engine that a barrier makes follow.
__device__ __forceinline__ void fence_shared_async() {
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
}

// A position in a ring of stages, and the parity of the phase in which it is filled.
template <std::int32_t kStages>
struct RingPosition {
  std::int32_t stage = 0;
  std::uint32_t parity = 0;

  // By at most kStages.
  __device__ __forceinline__ void advance(std::int32_t stages = 1) {
    stage += stages;
    if (stage >= kStages) {
      stage -= kStages;
      parity ^= 1;
    }
  }
};

}  // namespace kpage::kernels::ptx
