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
#include "kernels/select/ranks.cuh"

namespace kpage::kernels {
namespace {

// Keys compare as scores do; -0 is 0, NaN is -inf, and 0 is below all.
__device__ __forceinline__ std::uint32_t key_of(float score) {
  score = isnan(score) ? -INFINITY : score + 0.0F;
  const std::uint32_t bits = __float_as_uint(score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

template <class Element, std::int32_t kThreads, std::int32_t kKeys>
__global__ void __launch_bounds__(kThreads)
    top_k_kernel(const Element* scores, std::int32_t columns, std::int32_t keep,
                 std::int32_t* index) {
  constexpr std::int32_t kWarps = kThreads / kWarp;
  __shared__ std::int32_t of_warps[kWarps];
  __shared__ std::uint32_t before[kKeys * kWarps + 1];
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
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
    count = select::block_sum<kThreads>(count, of_warps);
    if (count >= keep) {
      threshold = candidate;
      if (count == keep) {
        break;
      }
    }
  }
  select::visit_kept<kThreads>(keys, threshold, keep, before,
                               [&](std::int32_t i, bool kept, std::int32_t place) {
                                 if (kept) {
                                   index[place] = i * kThreads + thread;
                                 }
                               });
}

template <class Element>
void launch(const TopKArgs& args) {
  select::with_widest(args.columns, [&]<std::int32_t kThreads, std::int32_t kKeys>() {
    top_k_kernel<Element, kThreads, kKeys>
        <<<static_cast<unsigned>(args.rows), kThreads, 0, args.stream>>>(
            static_cast<const Element*>(args.scores), static_cast<std::int32_t>(args.columns),
            static_cast<std::int32_t>(args.keep), args.index);
  });
}

}  // namespace

Status top_k(const TopKArgs& args) {
  constexpr std::int64_t kMostRows = 0x7fffffff;
  if (args.columns > select::kMostColumns || args.rows > kMostRows) {
    return unsupported("top_k",
                       text("at most ", select::kMostColumns, " columns and ", kMostRows, " rows"),
                       text(args.columns, " and ", args.rows));
  }
  select::with_score(args.dtype, [&](auto element) { launch<decltype(element)>(args); });
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
