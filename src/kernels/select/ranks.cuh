// A row of keys in the registers of a warp or a block: key i of thread t is that of column
// i * kThreads + t. Of the keys at a threshold, lower columns come first.
#pragma once

#include <cstdint>

#include "kernels/common/warp.cuh"

namespace kpage::kernels::select {

template <std::int32_t kThreads>
__device__ __forceinline__ std::int32_t block_sum(std::int32_t value, std::int32_t* of_warps) {
  const std::int32_t sum = warp_sum(value);
  if constexpr (kThreads == kWarp) {
    return sum;
  } else {
    __syncthreads();  // the last sum has been read
    if (threadIdx.x % kWarp == 0) {
      of_warps[threadIdx.x / kWarp] = sum;
    }
    __syncthreads();
    std::int32_t total = 0;
    for (std::int32_t w = 0; w < kThreads / kWarp; ++w) {
      total += of_warps[w];
    }
    return total;
  }
}

// How many members of the block's ballots come before: those above the threshold in the low half,
// those at it in the high half.
struct Before {
  std::uint32_t packed;
  [[nodiscard]] __device__ std::int32_t above() const {
    return static_cast<std::int32_t>(packed & 0xffffu);
  }
  [[nodiscard]] __device__ std::int32_t level() const {
    return static_cast<std::int32_t>(packed >> 16);
  }
};

// Calls visit(i, kept, place) for each key of this thread: whether it is above the threshold or
// among the first at it that fill up `keep`, and how many kept ones come before it. By all threads
// of the block; `before` is shared memory of kKeys * kThreads / kWarp + 1.
template <std::int32_t kThreads, std::int32_t kKeys, class Visit>
__device__ __forceinline__ void visit_kept(const std::uint32_t (&keys)[kKeys],
                                           std::uint32_t threshold, std::int32_t keep,
                                           std::uint32_t* before, const Visit& visit) {
  constexpr std::int32_t kWarps = kThreads / kWarp;
  const std::int32_t lane = lane_id();
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / kWarp;
#pragma unroll
  for (std::int32_t i = 0; i < kKeys; ++i) {
    const std::uint32_t above = __popc(__ballot_sync(kAllLanes, keys[i] > threshold));
    const std::uint32_t level = __popc(__ballot_sync(kAllLanes, keys[i] == threshold));
    if (lane == 0) {
      before[i * kWarps + warp] = above | (level << 16);
    }
  }
  __syncthreads();
  if (warp == 0) {
    const std::uint32_t all = scan_before(before, kKeys * kWarps, 0u);
    if (lane == 0) {
      before[kKeys * kWarps] = all;
    }
  }
  __syncthreads();
  const std::int32_t room = keep - Before{before[kKeys * kWarps]}.above();
  const std::uint32_t lower_lanes = (1u << lane) - 1u;
#pragma unroll
  for (std::int32_t i = 0; i < kKeys; ++i) {
    const bool is_above = keys[i] > threshold;
    const bool is_level = keys[i] == threshold;
    const std::uint32_t above_lanes = __ballot_sync(kAllLanes, is_above);
    const std::uint32_t level_lanes = __ballot_sync(kAllLanes, is_level);
    const Before base{before[i * kWarps + warp]};
    const std::int32_t above = base.above() + __popc(above_lanes & lower_lanes);
    const std::int32_t level = base.level() + __popc(level_lanes & lower_lanes);
    visit(i, is_above || (is_level && level < room), above + min(level, room));
  }
}

// Calls launch.template operator()<kThreads, kKeys>() with the fewest that hold a row.
inline constexpr std::int64_t kMostColumns = 32768;
template <class Launch>
void with_widest(std::int64_t columns, const Launch& launch) {
  if (columns <= 512) {
    launch.template operator()<32, 16>();
  } else if (columns <= 1024) {
    launch.template operator()<32, 32>();
  } else if (columns <= 1536) {
    launch.template operator()<32, 48>();
  } else if (columns <= 2048) {
    launch.template operator()<32, 64>();
  } else if (columns <= 8192) {
    launch.template operator()<256, 32>();
  } else if (columns <= 16384) {
    launch.template operator()<1024, 16>();
  } else {
    launch.template operator()<1024, 32>();
  }
}

}  // namespace kpage::kernels::select
