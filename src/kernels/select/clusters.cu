// Rows by cluster, and clusters as blocks.
#include <algorithm>

#include <cuda_runtime.h>

#include "kpage/layout.h"

#include "base/hd.h"
#include "kernels/common/check.h"
#include "kernels/common/grid.h"
#include "kernels/common/warp.cuh"
#include "kernels/select/launch.h"

namespace kpage::kernels {
namespace {

constexpr std::int32_t kMostWarps = 32;
constexpr std::int32_t kMostSharedBytes = 227 * 1024;
// Blocks that share the rows of a slice. Each counts all of them, and orders its part.
constexpr std::int32_t kParts = 3;

// A counting sort. Shared memory: counters of each warp's rows, then of the rows before this part
// and of all, [warps + 2][clusters]; a warp's rows are neighbours, so its counters become the
// places at which they go on.
__global__ void __launch_bounds__(kMostWarps* kWarp) order_kernel(const ClusterOrderArgs args) {
  extern __shared__ std::int32_t counters[];
  const auto clusters = static_cast<std::int32_t>(args.clusters);
  const auto rows = static_cast<std::int32_t>(args.rows);
  const auto threads = static_cast<std::int32_t>(blockDim.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t warps = threads / kWarp;
  std::int32_t* mine = counters + thread / kWarp * clusters;
  std::int32_t* before = counters + warps * clusters;
  std::int32_t* all = before + clusters;
  // Whole warps' worth of rows for each warp.
  const std::int32_t warp_rows =
      round_up(ceil_div(rows, static_cast<std::int32_t>(gridDim.x) * warps), kWarp);
  const std::int32_t part_begin =
      min(static_cast<std::int32_t>(blockIdx.x) * warps * warp_rows, rows);
  const std::int32_t part_end = min(part_begin + warps * warp_rows, rows);
  const std::int32_t begin = min(part_begin + thread / kWarp * warp_rows, rows);
  const std::int32_t end = min(begin + warp_rows, rows);

  for (std::int64_t slice = blockIdx.y; slice < args.slices; slice += gridDim.y) {
    const std::int32_t* labels = args.labels + slice * rows;
    std::int32_t* order = args.order + slice * rows;
    std::int32_t* places = args.places + slice * rows;
    const auto label_of = [&](std::int32_t row) { return min(max(labels[row], 0), clusters - 1); };
    for (std::int32_t i = thread; i < (warps + 2) * clusters; i += threads) {
      counters[i] = 0;
    }
    __syncthreads();
#pragma unroll 8
    for (std::int32_t row = thread; row < part_begin; row += threads) {
      atomicAdd(before + label_of(row), 1);
    }
#pragma unroll 8
    for (std::int32_t row = part_end + thread; row < rows; row += threads) {
      atomicAdd(all + label_of(row), 1);
    }
#pragma unroll 8
    for (std::int32_t row = begin + lane_id(); row < end; row += kWarp) {
      atomicAdd(mine + label_of(row), 1);
    }
    __syncthreads();
    for (std::int32_t c = thread; c < clusters; c += threads) {
      std::int32_t size = all[c] + before[c];
      for (std::int32_t w = 0; w < warps; ++w) {
        size += counters[w * clusters + c];
      }
      all[c] = size;
      if (blockIdx.x == 0) {
        args.sizes[slice * clusters + c] = size;
      }
    }
    __syncthreads();
    if (thread < kWarp) {
      scan_before(all, clusters, 0);
    }
    __syncthreads();
    for (std::int32_t c = thread; c < clusters; c += threads) {
      if (blockIdx.x == 0) {
        args.offsets[slice * clusters + c] = all[c];
      }
      std::int32_t place = all[c] + before[c];
      for (std::int32_t w = 0; w < warps; ++w) {
        const std::int32_t count = counters[w * clusters + c];
        counters[w * clusters + c] = place;
        place += count;
      }
    }
    __syncthreads();
    const std::uint32_t lower_lanes = (1u << lane_id()) - 1u;
    std::int32_t row = begin + lane_id();
    std::int32_t next = row < end ? label_of(row) : -1;
    for (std::int32_t first = begin; first < end; first += kWarp, row += kWarp) {
      const std::int32_t label = next;
      next = row + kWarp < end ? label_of(row + kWarp) : -1;  // on its way while this one is placed
      const std::uint32_t alike = __match_any_sync(kAllLanes, label);
      const std::int32_t first_place = label < 0 ? 0 : mine[label];
      __syncwarp();
      if (label >= 0) {
        const std::int32_t place = first_place + __popc(alike & lower_lanes);
        order[place] = row;
        places[row] = place;
        if (place == first_place) {
          mine[label] = first_place + __popc(alike);
        }
      }
      __syncwarp();
    }
    __syncthreads();  // before counters are cleared
  }
}

// A block a slice. Shared memory: the first block of each cluster, and where its rows begin.
__global__ void __launch_bounds__(kMostWarps* kWarp) blocks_kernel(const ClusterBlocksArgs args) {
  extern __shared__ std::int32_t counters[];
  const auto clusters = static_cast<std::int32_t>(args.clusters);
  const auto blocks = static_cast<std::int32_t>(args.blocks);
  const auto threads = static_cast<std::int32_t>(blockDim.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  std::int32_t* first_block = counters;  // [clusters + 1]
  std::int32_t* first_row = counters + clusters + 1;
  for (std::int64_t slice = blockIdx.x; slice < args.slices; slice += gridDim.x) {
    const std::int32_t* sizes = args.sizes + slice * clusters;
    for (std::int32_t c = thread; c < clusters; c += threads) {
      const std::int32_t size = max(sizes[c], 0);
      first_block[c] = ceil_div(size, kBlockRows);
      first_row[c] = size;
    }
    __syncthreads();
    if (thread < kWarp) {
      const std::int32_t used = scan_before(first_block, clusters, 0);
      if (thread == 0) {
        first_block[clusters] = used;
      }
    } else if (thread < 2 * kWarp) {
      scan_before(first_row, clusters, 0);
    }
    __syncthreads();
    for (std::int32_t c = thread; c < clusters; c += threads) {
      const std::int32_t size = max(sizes[c], 0);
      for (std::int32_t row = 0, block = first_block[c]; row < size && block < blocks;
           row += kBlockRows, ++block) {
        args.cluster[slice * blocks + block] = c;
        args.block_sizes[slice * blocks + block] = min(size - row, kBlockRows);
        args.block_offsets[slice * blocks + block] = first_row[c] + row;
      }
    }
    for (std::int32_t block = first_block[clusters] + thread; block < blocks; block += threads) {
      args.cluster[slice * blocks + block] = -1;
      args.block_sizes[slice * blocks + block] = 0;
      args.block_offsets[slice * blocks + block] = 0;
    }
    __syncthreads();
  }
}

}  // namespace

Status cluster_order(const ClusterOrderArgs& args) {
  const std::int64_t row_bytes = args.clusters * static_cast<std::int64_t>(sizeof(std::int32_t));
  const std::int64_t warps = std::min<std::int64_t>(kMostSharedBytes / row_bytes - 2, kMostWarps);
  constexpr std::int64_t kMostRows = 0x7ffffc00;
  if (warps < 1 || args.rows > kMostRows) {
    constexpr std::int64_t kMostClusters = kMostSharedBytes / 3 / sizeof(std::int32_t);
    return unsupported("cluster_order",
                       text("at most ", kMostClusters, " clusters and ", kMostRows, " rows"),
                       text(args.clusters, " and ", args.rows));
  }
  const auto bytes = static_cast<int>((warps + 2) * row_bytes);
  KPAGE_CUDA_TRY(
      cudaFuncSetAttribute(order_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 grid(kParts, slice_ctas(args.slices));
  order_kernel<<<grid, static_cast<unsigned>(warps * kWarp), static_cast<std::size_t>(bytes),
                 args.stream>>>(args);
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

Status cluster_blocks(const ClusterBlocksArgs& args) {
  const std::int64_t bytes =
      (2 * args.clusters + 1) * static_cast<std::int64_t>(sizeof(std::int32_t));
  if (bytes > kMostSharedBytes) {
    constexpr std::int64_t kMostClusters = (kMostSharedBytes / sizeof(std::int32_t) - 1) / 2;
    return unsupported("cluster_blocks", text("at most ", kMostClusters, " clusters"),
                       args.clusters);
  }
  KPAGE_CUDA_TRY(cudaFuncSetAttribute(blocks_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(bytes)));
  blocks_kernel<<<slice_ctas(args.slices), kMostWarps * kWarp, static_cast<std::size_t>(bytes),
                  args.stream>>>(args);
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
