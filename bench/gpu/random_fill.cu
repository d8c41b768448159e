#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "random_fill.h"

namespace kpage::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 4096;

// The finaliser of splitmix64.
__device__ std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

template <class Element>
__global__ void fill(Element* elements, std::int64_t count, std::uint64_t seed) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::uint64_t bits =
        mix(seed * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(i) + 1);
    const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
    const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
    const float x = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
    elements[i] = static_cast<Element>(x);
  }
}

}  // namespace

cudaError_t fill_normal(void* elements, std::int64_t count, DType dtype, std::uint64_t seed,
                        cudaStream_t stream) {
  if (count == 0) {
    return cudaSuccess;
  }
  if (dtype == DType::kBFloat16) {
    fill<<<kMaxBlocks, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(elements), count, seed);
  } else {
    fill<<<kMaxBlocks, kThreads, 0, stream>>>(static_cast<__half*>(elements), count, seed);
  }
  return cudaGetLastError();
}

}  // namespace kpage::bench
