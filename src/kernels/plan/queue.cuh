// The queue: a CTA a head.
#pragma once

#include "kernels/plan/faults.cuh"
#include "kernels/plan/warp.cuh"

namespace kpage::kernels::plan_builder {

using namespace plan;

inline constexpr std::int32_t kQueueThreads = 512;
inline constexpr std::int32_t kQueueChunk = 4096;  // a multiple of a warp

// Key of a walk within its head: route, then length; -1 for a block without rows.
__device__ inline std::int32_t queue_key(const MutableForward& plan, std::int64_t batch_head,
                                         std::int32_t q) {
  if (q >= plan.shape.q_blocks) {
    return -1;
  }
  const std::int32_t rows = plan.q_blocks(batch_head)[q].rows;
  if (rows == 0) {
    return -1;
  }
  const Walk& walk = plan.walks[batch_head * plan.shape.q_blocks + q];
  return (takes_q64(rows) ? kLengthBuckets : 0) + length_bucket(walk_tiles(walk));
}

// Query blocks on each route, over the heads [first_head, end_head); known to all of a CTA.
struct RouteCounts {
  std::int32_t q128;
  std::int32_t q64;
};
__device__ inline RouteCounts count_routes(const MutableForward& plan, std::int64_t first_head,
                                           std::int64_t end_head) {
  __shared__ RouteCounts counts;
  __syncthreads();
  if (threadIdx.x == 0) {
    counts = {0, 0};
  }
  __syncthreads();
  RouteCounts mine{0, 0};
  for (std::int64_t bh = first_head; bh < end_head; ++bh) {
    const Extent* blocks = plan.q_blocks(bh);
    for (std::int32_t q = static_cast<std::int32_t>(threadIdx.x); q < plan.shape.q_blocks;
         q += kQueueThreads) {
      const std::int32_t rows = blocks[q].rows;
      mine.q128 += rows > 0 && !takes_q64(rows) ? 1 : 0;
      mine.q64 += rows > 0 && takes_q64(rows) ? 1 : 0;
    }
  }
  mine = {warp_sum(mine.q128), warp_sum(mine.q64)};
  if (lane_id() == 0) {
    atomicAdd(&counts.q128, mine.q128);
    atomicAdd(&counts.q64, mine.q64);
  }
  __syncthreads();
  return counts;
}
// Over the heads [0, end). A shared partition is counted once.
__device__ inline RouteCounts count_heads(const MutableForward& plan, std::int64_t end) {
  if (plan.shape.q_scope == PartitionScope::kShared) {
    const RouteCounts one = count_routes(plan, 0, 1);
    return {one.q128 * static_cast<std::int32_t>(end), one.q64 * static_cast<std::int32_t>(end)};
  }
  return count_routes(plan, 0, end);
}

// One CTA a head: all threads find keys, a chunk at a time, and the first warp sorts them.
__global__ __launch_bounds__(kQueueThreads) void queue_kernel(LayoutView layout,
                                                              MutableForward plan) {
  __shared__ std::int32_t counters[2 * kLengthBuckets];
  __shared__ std::int32_t keys[kQueueChunk];
  const std::int64_t bh = blockIdx.x;
  const RouteCounts all = count_heads(plan, batch_heads(plan.shape));
  const RouteCounts before = count_heads(plan, bh);
  const RouteCounts mine = count_routes(plan, bh, bh + 1);
  const bool sorts = threadIdx.x < kWarp;
  WarpSort sort(counters, 2 * kLengthBuckets);
  for (std::int32_t pass = 0; pass < 2; ++pass) {
    for (std::int32_t base = 0; base < plan.shape.q_blocks; base += kQueueChunk) {
      const std::int32_t length = min(kQueueChunk, round_up(plan.shape.q_blocks - base, kWarp));
      __syncthreads();
      for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < length;
           i += kQueueThreads) {
        keys[i] = queue_key(plan, bh, base + i);
      }
      __syncthreads();
      for (std::int32_t i = lane_id(); sorts && i < length; i += kWarp) {
        if (pass == 0) {
          sort.count(keys[i]);
          continue;
        }
        const std::int32_t place = sort.place(keys[i]);
        if (keys[i] >= 0) {
          const std::int32_t at = keys[i] < kLengthBuckets
                                      ? before.q128 + place
                                      : all.q128 + before.q64 + place - mine.q128;
          plan.queue[at] = static_cast<std::uint32_t>(bh * plan.shape.q_blocks + base + i);
        }
      }
    }
    if (pass == 0 && sorts) {
      sort.scan(0);
    }
  }
  if (bh == 0 && threadIdx.x == 0) {
    plan.header->q128 = all.q128;
    plan.header->q64 = all.q64;
    finish_header(layout, plan);
  }
}

}  // namespace kpage::kernels::plan_builder
