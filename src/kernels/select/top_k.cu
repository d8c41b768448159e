// The highest scores of each row, as ascending columns.
//
// A warp (for long rows a block) holds a row's scores in registers as keys of the same order, and
// finds the key of the last one that is kept bit by bit, counting. Most rows are done before the
// last bit, once a threshold keeps exactly as many as are wanted.
#include <cuda_runtime.h>

#include "base/hd.h"
#include "kernels/common/check.h"
#include "kernels/common/warp.cuh"
#include "kernels/select/elements.cuh"
#include "kernels/select/launch.h"

namespace kpage::kernels {
namespace {

// Keys compare as scores do; -0 is 0, NaN is -inf, and 0 is below all.
__device__ __forceinline__ std::uint32_t key_of(float score) {
  score = isnan(score) ? -INFINITY : score + 0.0F;
  const std::uint32_t bits = __float_as_uint(score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
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

template <class Element, std::int32_t kThreads, std::int32_t kKeys>
__global__ void __launch_bounds__(kThreads)
    top_k_kernel(const Element* scores, std::int32_t columns, std::int32_t keep,
                 std::int32_t* index) {
  constexpr std::int32_t kWarps = kThreads / kWarp;
  __shared__ std::int32_t of_warps[kWarps];
  __shared__ std::uint32_t before[kKeys * kWarps + 1];
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t lane = thread % kWarp;
  const std::int32_t warp = thread / kWarp;
  scores += std::int64_t{blockIdx.x} * columns;
  index += std::int64_t{blockIdx.x} * keep;

  std::uint32_t keys[kKeys];
#pragma unroll
  for (std::int32_t i = 0; i < kKeys; ++i) {
    const std::int32_t column = i * kThreads + thread;
    keys[i] = column < columns ? key_of(select::to_float(scores[column])) : 0;
  }
  std::uint32_t threshold = 0;
  for (std::int32_t bit = 31; bit >= 0; --bit) {
    const std::uint32_t candidate = threshold | (1u << bit);
    std::int32_t count = 0;
#pragma unroll
    for (std::int32_t i = 0; i < kKeys; ++i) {
      count += keys[i] >= candidate;
    }
    count = block_sum<kThreads>(count, of_warps);
    if (count >= keep) {
      threshold = candidate;
      if (count == keep) {
        break;
      }
    }
  }
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
    if (is_above || (is_level && level < room)) {
      index[above + min(level, room)] = i * kThreads + thread;
    }
  }
}

template <class Element, std::int32_t kThreads, std::int32_t kKeys>
void launch(const TopKArgs& args) {
  top_k_kernel<Element, kThreads, kKeys>
      <<<static_cast<unsigned>(args.rows), kThreads, 0, args.stream>>>(
          static_cast<const Element*>(args.scores), static_cast<std::int32_t>(args.columns),
          static_cast<std::int32_t>(args.keep), args.index);
}

template <class Element>
void launch_widest(const TopKArgs& args) {
  if (args.columns <= 512) {
    launch<Element, 32, 16>(args);
  } else if (args.columns <= 1024) {
    launch<Element, 32, 32>(args);
  } else if (args.columns <= 1536) {
    launch<Element, 32, 48>(args);
  } else if (args.columns <= 2048) {
    launch<Element, 32, 64>(args);
  } else if (args.columns <= 8192) {
    launch<Element, 256, 32>(args);
  } else {
    launch<Element, 1024, 32>(args);
  }
}

}  // namespace

Status top_k(const TopKArgs& args) {
  constexpr std::int64_t kMostColumns = 32768;
  constexpr std::int64_t kMostRows = 0x7fffffff;
  if (args.columns > kMostColumns || args.rows > kMostRows) {
    return {ErrorCode::kUnsupported,
            "top_k on a CUDA device: at most 32,768 columns and 2^31 - 1 rows"};
  }
  switch (args.dtype) {
    case DType::kBFloat16:
      launch_widest<__nv_bfloat16>(args);
      break;
    case DType::kFloat16:
      launch_widest<__half>(args);
      break;
    default:
      launch_widest<float>(args);
      break;
  }
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
