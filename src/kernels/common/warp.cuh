// What the lanes of a warp do together.
#pragma once

#include <cstdint>

namespace kpage::kernels {

inline constexpr std::int32_t kWarp = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

__device__ __forceinline__ std::int32_t lane_id() {
  return static_cast<std::int32_t>(threadIdx.x) % kWarp;
}
__device__ __forceinline__ std::int32_t warp_sum(std::int32_t value) {
  return static_cast<std::int32_t>(__reduce_add_sync(kAllLanes, static_cast<std::uint32_t>(value)));
}

// Each of `count` numbers in shared memory becomes the sum of `base` and those before it, by one
// warp. Returns the sum of all.
template <class Number>
__device__ __forceinline__ Number scan_before(Number* numbers, std::int32_t count, Number base) {
  Number carried = base;
  for (std::int32_t first = 0; first < count; first += kWarp) {
    const std::int32_t at = first + lane_id();
    const Number mine = at < count ? numbers[at] : 0;
    Number sum = mine;
#pragma unroll
    for (std::int32_t step = 1; step < kWarp; step *= 2) {
      const Number below = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(step));
      sum += lane_id() >= step ? below : 0;
    }
    if (at < count) {
      numbers[at] = carried + sum - mine;
    }
    carried += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  return carried;
}

}  // namespace kpage::kernels
