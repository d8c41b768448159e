// The lists that a map holds: a warp a row, 32 columns at a time.
#include <algorithm>

#include <cuda_runtime.h>

#include "base/hd.h"
#include "kernels/common/check.h"
#include "kernels/common/warp.cuh"
#include "kernels/select/launch.h"

namespace kpage::kernels {
namespace {

constexpr std::int32_t kWarps = 4;  // of a block

__global__ void __launch_bounds__(kWarp* kWarps)
    lists_kernel(const std::uint8_t* map, std::int64_t rows, std::int32_t columns,
                 std::int32_t max_list, std::int32_t* index, std::int32_t* nums) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x) % kWarp;
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= rows) {
    return;
  }
  map += row * columns;
  index += row * max_list;
  std::int32_t count = 0;
#pragma unroll 4
  for (std::int32_t first = 0; first < columns; first += kWarp) {
    const std::int32_t column = first + lane;
    const bool is_member = column < columns && map[column] != 0;
    const std::uint32_t members = __ballot_sync(kAllLanes, is_member);
    const std::int32_t place = count + __popc(members & ((1u << lane) - 1u));
    if (is_member && place < max_list) {
      index[place] = column;
    }
    count += __popc(members);
  }
  for (std::int32_t place = count + lane; place < max_list; place += kWarp) {
    index[place] = 0;
  }
  if (lane == 0) {
    nums[row] = count;
  }
}

}  // namespace

Status lists_of_map(const ListsArgs& args) {
  const std::int64_t blocks = ceil_div<std::int64_t>(args.rows, kWarps);
  if (blocks > 0x7fffffff) {
    return {ErrorCode::kUnsupported, "lists_of_map on a CUDA device: fewer than 2^33 rows"};
  }
  lists_kernel<<<static_cast<unsigned>(blocks), kWarp * kWarps, 0, args.stream>>>(
      args.map, args.rows, static_cast<std::int32_t>(args.columns),
      static_cast<std::int32_t>(args.max_list), args.index, args.nums);
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
