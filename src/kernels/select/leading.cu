// The columns of each row that lead: the highest weights up to a sum.
//
// A warp (for long rows a block) makes the weights of a row in registers. Their bits compare as
// they do, so the last one that is kept is found bit by bit, by the sum of those above. Sums are of
// whole units of 2^-30: a warp adds those in one instruction, and in any order they are the same.
#include <cmath>

#include <cuda_runtime.h>

#include "base/hd.h"
#include "kernels/common/check.h"
#include "kernels/common/warp.cuh"
#include "kernels/select/elements.cuh"
#include "kernels/select/launch.h"
#include "kernels/select/ranks.cuh"

namespace kpage::kernels {
namespace {

constexpr float kUnits = 1 << 30;
constexpr std::int32_t kMostColumns = 16384;  // keys and units of more do not fit into registers
constexpr std::int32_t kHighestBit = 30;      // of a weight's bits: the next is the sign

__device__ __forceinline__ std::uint32_t units_of(std::uint32_t key) {
  return __float2uint_rn(__uint_as_float(key) * kUnits);
}

struct LeadingParams {
  const void* scores;
  const std::int32_t* counts;
  std::int64_t rows;  // of a group
  std::int32_t columns;
  std::uint32_t limit;  // in units
  std::int32_t least;
  bool crosses;
  std::uint8_t* map;
};

// The lowest bit that a number of this type has as a float.
template <class Element>
constexpr std::int32_t kLowestBit = 0;
template <>
constexpr std::int32_t kLowestBit<__nv_bfloat16> = 16;
template <>
constexpr std::int32_t kLowestBit<__half> = 13;

template <std::int32_t kThreads, class Combine>
__device__ __forceinline__ float combine_block(float value, float* of_warps,
                                               const Combine& combine) {
#pragma unroll
  for (std::int32_t step = kWarp / 2; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  if constexpr (kThreads > kWarp) {
    __syncthreads();  // the last values have been read
    if (threadIdx.x % kWarp == 0) {
      of_warps[threadIdx.x / kWarp] = value;
    }
    __syncthreads();
    value = of_warps[0];
    for (std::int32_t w = 1; w < kThreads / kWarp; ++w) {
      value = combine(value, of_warps[w]);
    }
  }
  return value;
}

// counts * exp(scores), over their sum. Columns past the last have scores of -inf.
template <class Element, std::int32_t kThreads, std::int32_t kKeys>
__device__ __forceinline__ void make_weights(float (&weights)[kKeys], const std::int32_t* counts,
                                             std::int32_t columns, float* of_warps) {
  float top = -INFINITY;
#pragma unroll
  for (std::int32_t i = 0; i < kKeys; ++i) {
    top = fmaxf(top, weights[i]);
  }
  top = combine_block<kThreads>(top, of_warps, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0.0F;
#pragma unroll
  for (std::int32_t i = 0; i < kKeys; ++i) {
    const std::int32_t column = i * kThreads + static_cast<std::int32_t>(threadIdx.x);
    const float count = column < columns ? static_cast<float>(counts[column]) : 0.0F;
    weights[i] = column < columns ? count * expf(weights[i] - top) : 0.0F;
    sum += weights[i];
  }
  sum = combine_block<kThreads>(sum, of_warps, [](float a, float b) { return a + b; });
#pragma unroll
  for (std::int32_t i = 0; i < kKeys; ++i) {
    weights[i] = select::to_float(static_cast<Element>(weights[i] / fmaxf(sum, 1e-12F)));
  }
}

template <class Element, std::int32_t kThreads, std::int32_t kKeys>
__global__ void __launch_bounds__(kThreads) leading_kernel(const LeadingParams p) {
  constexpr std::int32_t kWarps = kThreads / kWarp;
  __shared__ float of_warps[kWarps];
  __shared__ std::int32_t sums_of_warps[kWarps];
  __shared__ std::uint32_t before[kKeys * kWarps + 1];
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int64_t row = blockIdx.x;
  const auto* scores = static_cast<const Element*>(p.scores) + row * p.columns;
  std::uint8_t* map = p.map + row * p.columns;

  float weights[kKeys];
#pragma unroll
  for (std::int32_t i = 0; i < kKeys; ++i) {
    const std::int32_t column = i * kThreads + thread;
    weights[i] = column < p.columns ? select::to_float(scores[column]) : -INFINITY;
  }
  if (p.counts != nullptr) {
    make_weights<Element, kThreads>(weights, p.counts + row / p.rows * p.columns, p.columns,
                                    of_warps);
  }
  std::uint32_t keys[kKeys];
  std::uint32_t units[kKeys];
#pragma unroll
  for (std::int32_t i = 0; i < kKeys; ++i) {
    // Neither a NaN nor a negative number is a weight; nor is what lies past the last column.
    keys[i] = __float_as_uint(weights[i] > 0.0F ? weights[i] : 0.0F);
    units[i] = units_of(keys[i]);
  }
  // Those from a key on, and what they sum up to.
  struct Taken {
    std::int32_t count;
    std::uint32_t sum;
  };
  const auto from = [&](std::uint32_t key) {
    Taken taken{0, 0};
#pragma unroll
    for (std::int32_t i = 0; i < kKeys; ++i) {
      taken.count += keys[i] >= key ? 1 : 0;
      taken.sum += keys[i] >= key ? units[i] : 0;
    }
    taken.count = select::block_sum<kThreads>(taken.count, sums_of_warps);
    taken.sum = static_cast<std::uint32_t>(
        select::block_sum<kThreads>(static_cast<std::int32_t>(taken.sum), sums_of_warps));
    return taken;
  };
  // The highest key from which on there are all that are kept; 0 where zeros are among them.
  std::uint32_t threshold = 0;
  for (std::int32_t bit = kHighestBit; bit >= kLowestBit<Element>; --bit) {
    const std::uint32_t candidate = threshold | (1u << bit);
    const Taken taken = from(candidate);
    if (taken.count >= p.least && taken.sum > p.limit) {
      threshold = candidate;
    }
  }
  const Taken above = from(threshold + 1);
  const std::uint32_t unit = units_of(threshold);
  std::int32_t keep = p.least;
  if (above.sum <= p.limit) {
    const std::uint32_t room = p.limit - above.sum;
    keep =
        unit == 0
            ? p.columns
            : max(keep, above.count + static_cast<std::int32_t>(room / unit) + (p.crosses ? 1 : 0));
  }
  select::visit_kept<kThreads>(keys, threshold, keep, before,
                               [&](std::int32_t i, bool kept, std::int32_t) {
                                 const std::int32_t column = i * kThreads + thread;
                                 if (column < p.columns) {
                                   map[column] = kept ? 1 : 0;
                                 }
                               });
}

template <class Element>
void launch(const LeadingArgs& args) {
  const LeadingParams params{args.scores,
                             args.counts,
                             args.rows,
                             static_cast<std::int32_t>(args.columns),
                             static_cast<std::uint32_t>(args.limit * static_cast<double>(kUnits)),
                             static_cast<std::int32_t>(args.least),
                             args.crosses,
                             args.map};
  select::with_widest(args.columns, [&]<std::int32_t kThreads, std::int32_t kKeys>() {
    if constexpr (kThreads * kKeys <= kMostColumns) {
      leading_kernel<Element, kThreads, kKeys>
          <<<static_cast<unsigned>(args.groups * args.rows), kThreads, 0, args.stream>>>(params);
    }
  });
}

}  // namespace

Status leading_map(const LeadingArgs& args) {
  constexpr std::int64_t kMostRows = 0x7fffffff;
  if (args.columns > kMostColumns || args.groups * args.rows > kMostRows) {
    return unsupported("leading_map",
                       text("at most ", kMostColumns, " columns and ", kMostRows, " rows"),
                       text(args.columns, " and ", args.groups * args.rows));
  }
  select::with_score(args.dtype, [&](auto element) { launch<decltype(element)>(args); });
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
