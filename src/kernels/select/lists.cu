// The lists that a map holds: a warp a list, 32 ids at a time.

#include <cuda_runtime.h>

#include "base/hd.h"
#include "kernels/common/check.h"
#include "kernels/common/warp.cuh"
#include "kernels/select/launch.h"

namespace kpage::kernels {
namespace {

constexpr std::int32_t kWarps = 4;  // of a block

template <bool kRows, bool kColumns>
__global__ void __launch_bounds__(kWarp* kWarps) lists_kernel(const ListsArgs args) {
  const std::int32_t lane = lane_id();
  const std::int64_t list = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (list >= args.groups * args.lists) {
    return;
  }
  const std::int64_t group = list / args.lists;
  const auto columns = static_cast<std::int32_t>(args.columns);
  const auto ids = static_cast<std::int32_t>(args.ids);
  const auto max_list = static_cast<std::int32_t>(args.max_list);
  const std::int64_t row = kRows ? args.row_of_list[list] : list - group * args.lists;
  const bool has_row = row >= 0 && row < args.rows;
  const std::uint8_t* map = args.map + (group * args.rows + row) * columns;
  const std::int32_t* column_of_id = args.column_of_id + group * ids;
  std::int32_t* index = args.index + list * max_list;
  std::int32_t count = 0;
#pragma unroll 4
  for (std::int32_t first = 0; first < (has_row ? ids : 0); first += kWarp) {
    const std::int32_t id = first + lane;
    std::int32_t column = id < ids ? id : -1;
    if (kColumns && id < ids) {
      column = column_of_id[id];
    }
    const bool is_member = column >= 0 && column < columns && map[column] != 0;
    const std::uint32_t members = __ballot_sync(kAllLanes, is_member);
    const std::int32_t place = count + __popc(members & ((1u << lane) - 1u));
    if (is_member && place < max_list) {
      index[place] = id;
    }
    count += __popc(members);
  }
  for (std::int32_t place = count + lane; place < max_list; place += kWarp) {
    index[place] = 0;
  }
  if (lane == 0) {
    args.nums[list] = count;
  }
}

}  // namespace

Status lists_of_map(const ListsArgs& args) {
  const std::int64_t blocks = ceil_div<std::int64_t>(args.groups * args.lists, kWarps);
  if (blocks > 0x7fffffff) {
    return unsupported("lists_of_map", "fewer than 2^33 lists", args.groups * args.lists);
  }
  const bool rows = args.row_of_list != nullptr;
  const bool columns = args.column_of_id != nullptr;
  const auto kernel = rows ? (columns ? lists_kernel<true, true> : lists_kernel<true, false>)
                           : (columns ? lists_kernel<false, true> : lists_kernel<false, false>);
  kernel<<<static_cast<unsigned>(blocks), kWarp * kWarps, 0, args.stream>>>(args);
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
