// What a warp does together to put things in order.
#pragma once

#include <cstdint>

#include "kernels/common/warp.cuh"

namespace kpage::kernels {

// The counters of a stable counting sort over up to `keys` keys, in shared memory of one warp. The
// host's counterpart is plan::counting_sort(): same keys, same order.
//
// Both passes go over the items in order, a warp at a time; a lane without an item passes key -1.
class WarpSort {
 public:
  __device__ WarpSort(std::int32_t* counters, std::int32_t keys)
      : counters_(counters), keys_(keys) {
    for (std::int32_t k = lane_id(); k < keys_; k += kWarp) {
      counters_[k] = 0;
    }
    __syncwarp();
  }

  // First pass.
  __device__ void count(std::int32_t key) {
    const std::uint32_t peers = __match_any_sync(kAllLanes, key);
    if (key >= 0 && __ffs(static_cast<int>(peers)) - 1 == lane_id()) {
      counters_[key] += __popc(peers);
    }
    __syncwarp();
  }

  // Between the passes: counts become first places, from `base` on.
  __device__ void scan(std::int32_t base) {
    scan_before(counters_, keys_, base);
    __syncwarp();
  }

  // Second pass: the place of this lane's item; meaningless for key -1.
  __device__ std::int32_t place(std::int32_t key) {
    const std::uint32_t peers = __match_any_sync(kAllLanes, key);
    const std::int32_t rank = __popc(peers & ((1u << lane_id()) - 1u));
    const std::int32_t at = key >= 0 ? counters_[key] + rank : 0;
    __syncwarp();
    if (key >= 0 && rank == 0) {
      counters_[key] += __popc(peers);
    }
    __syncwarp();
    return at;
  }

 private:
  std::int32_t* counters_;  // [keys]
  std::int32_t keys_;
};

}  // namespace kpage::kernels
