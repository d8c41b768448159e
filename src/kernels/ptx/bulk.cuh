// Bulk copies and reductions without a tensor map, and the matrix store.
#pragma once

#include <cstdint>

#include <cuda/ptx>

#include "kernels/ptx/barrier.cuh"

namespace kpage::kernels::ptx {

// Contiguous bytes, a multiple of 16, from global to shared memory.
__device__ __forceinline__ void load_bulk(void* shared, const void* global, std::uint32_t bytes,
                                          Barrier& barrier) {
  cuda::ptx::cp_async_bulk(cuda::ptx::space_cluster, cuda::ptx::space_global, shared, global, bytes,
                           &barrier);
}

// Adds contiguous numbers in shared memory to global memory, as a batch of its own. Every thread
// that wrote them must have passed fence_shared_async() and a barrier with the caller.
template <class Number>
__device__ __forceinline__ void reduce_add(Number* global, const Number* shared,
                                           std::uint32_t bytes) {
  cuda::ptx::cp_reduce_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared,
                                  cuda::ptx::op_add, global, shared, bytes);
  cuda::ptx::cp_async_bulk_commit_group();
}
// Until this thread's batches have read their shared memory, which may then be written again.
__device__ __forceinline__ void wait_bulk_reads() {
  cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());
}
// Until they are complete.
__device__ __forceinline__ void wait_bulk() {
  cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<0>());
}

// Four 8x8 matrices of 16-bit numbers to shared memory: the inverse of load_matrices().
__device__ __forceinline__ void store_matrices(void* row, std::uint32_t a, std::uint32_t b,
                                               std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row))), "r"(a), "r"(b),
                 "r"(c), "r"(d)
               : "memory");
}

}  // namespace kpage::kernels::ptx
