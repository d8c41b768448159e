// The nearest centroid of each row: a matrix product whose results live in registers only.
//
// One CTA an SM, a warp that loads and two warpgroups that compute. A warpgroup keeps 128 rows in
// registers, two tiles of 64, and goes over all centroids, 128 or 104 at a time through shared
// memory. Of |x - c|^2 = |x|^2 - 2 (x . c - |c|^2 / 2) the bracket decides. Scores of one tile are
// compared while the products of the other run, or those of the other warpgroup.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "base/hd.h"
#include "kernels/common/tensor_map.h"
#include "kernels/common/warp.cuh"
#include "kernels/ptx/barrier.cuh"
#include "kernels/ptx/registers.cuh"
#include "kernels/ptx/tensor_load.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace kpage::kernels::nearest {

inline constexpr std::int32_t kGroupThreads = 128;  // of a warpgroup
inline constexpr std::int32_t kGroupWarps = kGroupThreads / kWarp;
inline constexpr std::int32_t kConsumers = 2;  // warpgroups
inline constexpr std::int32_t kThreads = (1 + kConsumers) * kGroupThreads;
inline constexpr std::int32_t kTileRows = 64;
inline constexpr std::int32_t kTiles = 2;  // of a warpgroup
inline constexpr std::int32_t kGroupRows = kTiles * kTileRows;
inline constexpr std::int32_t kRows = kConsumers * kGroupRows;  // of an item
inline constexpr std::int32_t kRowStages = 2;
inline constexpr std::int32_t kSlabRowBytes = 2 * kSlabColumns;

// 65,536 registers an SM: 128 threads x 24 + 256 x 240.
inline constexpr int kProducerRegisters = 24;
inline constexpr int kConsumerRegisters = 240;

// kCentroids is how many a stage holds.
template <class ElementT, std::int32_t kHeadDimT, std::int32_t kCentroidsT>
struct Config {
  using Element = ElementT;
  static constexpr std::int32_t kHeadDim = kHeadDimT;
  static constexpr std::int32_t kCentroids = kCentroidsT;
  static constexpr std::int32_t kScores = kCentroids / 2;    // accumulators a thread and tile
  static constexpr std::int32_t kFragments = kHeadDim / 16;  // of a tile, four registers each
  static constexpr std::int32_t kRowBytes = kHeadDim * 2;
  static constexpr std::int32_t kStages = 384 / kHeadDim;  // of centroids

  struct Shared {
    alignas(1024) std::byte rows[kRowStages][kRows * kRowBytes];
    alignas(1024) std::byte centroids[kStages][kCentroids * kRowBytes];
    float half_squares[kStages][round_up(kCentroids, kWarp)];
    ptx::Barrier rows_full[kRowStages], rows_empty[kRowStages];
    ptx::Barrier centroids_full[kStages], centroids_empty[kStages];
  };
  static_assert(sizeof(Shared) <= 227 * 1024, "more shared memory than a CTA gets");
};

struct Params {
  CUtensorMap x, centroids;  // boxes of kRows and of C::kCentroids
  SlabStrides x_slabs, centroid_slabs;
  const float* half_squares;  // [slices, clusters]
  std::int32_t heads;
  std::int32_t rows;
  std::int32_t clusters;
  std::int32_t row_items;  // of a slice
  std::int64_t items;
  std::int32_t* labels;  // [slices, rows]
};

// kRows rows of one head. A CTA takes every gridDim.x-th; those that run at the same time are of
// few heads, whose centroids stay in L2.
struct Item {
  std::int64_t slice;
  std::int32_t row;
};
__device__ __forceinline__ Item item_at(const Params& params, std::int64_t number) {
  const std::int64_t slice = number / params.row_items;
  return {slice, static_cast<std::int32_t>(number - slice * params.row_items) * kRows};
}

template <class C>
__device__ __forceinline__ void run_loads(typename C::Shared& shared, const Params& params) {
  const std::int32_t lane = lane_id();
  ptx::RingPosition<kRowStages> rows;
  ptx::RingPosition<C::kStages> centroids;
  for (std::int64_t number = blockIdx.x; number < params.items; number += gridDim.x) {
    const Item item = item_at(params, number);
    const auto batch = static_cast<std::int32_t>(item.slice / params.heads);
    const auto head = static_cast<std::int32_t>(item.slice % params.heads);
    ptx::wait(shared.rows_empty[rows.stage], rows.parity ^ 1);
    if (lane == 0) {
      ptx::Barrier& full = shared.rows_full[rows.stage];
      ptx::arrive_expect(full, sizeof(shared.rows[0]));
      ptx::load_tensor<3>(shared.rows[rows.stage], params.x,
                          {0, item.row, batch * params.x_slabs.batch + head * params.x_slabs.head},
                          full);
    }
    rows.advance();
    const std::int32_t slab =
        batch * params.centroid_slabs.batch + head * params.centroid_slabs.head;
    const float* half_squares = params.half_squares + item.slice * params.clusters;
    for (std::int32_t first = 0; first < params.clusters; first += C::kCentroids) {
      constexpr std::int32_t kMine = ceil_div(C::kCentroids, kWarp);
      float mine[kMine];
#pragma unroll
      for (std::int32_t i = 0; i < kMine; ++i) {
        const std::int32_t number_of = first + i * kWarp + lane;
        // Past the last centroid are zeros, infinitely far.
        mine[i] = number_of < params.clusters ? half_squares[number_of] : INFINITY;
      }
      ptx::wait(shared.centroids_empty[centroids.stage], centroids.parity ^ 1);
#pragma unroll
      for (std::int32_t i = 0; i < kMine; ++i) {
        shared.half_squares[centroids.stage][i * kWarp + lane] = mine[i];
      }
      __syncwarp();  // the arrival below is for all lanes
      if (lane == 0) {
        ptx::Barrier& full = shared.centroids_full[centroids.stage];
        ptx::arrive_expect(full, sizeof(shared.centroids[0]));
        ptx::load_tensor<3>(shared.centroids[centroids.stage], params.centroids, {0, first, slab},
                            full);
      }
      centroids.advance();
    }
  }
}

template <class C>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(typename C::Shared& shared, const Params& params,
                                      std::int32_t group)
      : shared_(shared),
        params_(params),
        group_(group),
        centroids_(ptx::Descriptor::of(shared.centroids[0], 0, 8 * kSlabRowBytes)) {}

  __device__ __forceinline__ void run() {
    Ring stage;
    for (std::int64_t number = blockIdx.x; number < params_.items; number += gridDim.x) {
      open();
      for (std::int32_t first = 0; first < params_.clusters; first += C::kCentroids) {
        ptx::wait(shared_.centroids_full[stage.stage], stage.parity);
        ptx::wgmma_fence();
        issue<0>(stage.stage);
        issue<1>(stage.stage);
        if (first == 0) {
          free_rows();
        }
        ptx::wgmma_wait<1>();
        compare<0>(stage.stage, first);
        ptx::wgmma_wait<0>();
        compare<1>(stage.stage, first);
        __syncwarp();
        if (lane_id() == 0) {
          ptx::arrive(shared_.centroids_empty[stage.stage]);
        }
        stage.advance();
      }
      finish(item_at(params_, number));
    }
  }

 private:
  using Ring = ptx::RingPosition<C::kStages>;

  // 64 rows against the centroids. A thread has two rows, `half`, as wgmma.cuh says.
  struct Tile {
    std::uint32_t x[C::kFragments * 4];
    float scores[C::kScores];
    float best[2];
    std::int32_t number[2];  // of the best centroid
  };

  // Takes an item's rows into registers.
  __device__ __forceinline__ void open() {
    ptx::wait(shared_.rows_full[rows_.stage], rows_.parity);
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
      Tile& tile = tiles_[t];
      const std::int32_t row = group_ * kGroupRows + t * kTileRows + warp() * 16 + lane_id() % 16;
      const std::byte* start = shared_.rows[rows_.stage] + row * kSlabRowBytes;
#pragma unroll
      for (std::int32_t i = 0; i < C::kFragments; ++i) {
        const std::int32_t chunk = (i % 4 * 2 + lane_id() / 16) ^ (row % 8);
        std::uint32_t fragment[4];
        ptx::load_matrices(fragment, start + i / 4 * (kRows * kSlabRowBytes) + chunk * 16);
#pragma unroll
        for (std::int32_t j = 0; j < 4; ++j) {
          tile.x[i * 4 + j] = fragment[j];
        }
      }
#pragma unroll
      for (std::int32_t half = 0; half < 2; ++half) {
        tile.best[half] = -INFINITY;
        tile.number[half] = 0;
      }
    }
  }

  // Once products have been issued: they wait for the registers that they read, which an arrival
  // does not. The next rows would be written over those that are still being read.
  __device__ __forceinline__ void free_rows() {
    __syncwarp();
    if (lane_id() == 0) {
      ptx::arrive(shared_.rows_empty[rows_.stage]);
    }
    rows_.advance();
  }

  template <std::int32_t kTile>
  __device__ __forceinline__ void issue(std::int32_t stage) {
    Tile& tile = tiles_[kTile];
    const ptx::Descriptor b =
        centroids_ + static_cast<std::uint32_t>(stage * (C::kCentroids * C::kRowBytes));
#pragma unroll
    for (std::int32_t i = 0; i < C::kFragments; ++i) {
      ptx::wgmma<typename C::Element>(
          tile.scores, tile.x + i * 4,
          b + static_cast<std::uint32_t>(i / 4 * (C::kCentroids * kSlabRowBytes) + i % 4 * 32),
          i != 0);
    }
    ptx::wgmma_commit();
  }

  // Columns are compared in pairs, the better one with the best so far. That takes the comparing
  // units five steps a pair, where one by one would take six.
  template <std::int32_t kTile>
  __device__ __forceinline__ void compare(std::int32_t stage, std::int32_t first) {
    Tile& tile = tiles_[kTile];
    const float* half_squares = shared_.half_squares[stage] + lane_id() % 4 * 2;
    std::int32_t pair[2] = {-1, -1};  // that holds the best of this lane's columns of the stage
    float even[2] = {};               // the score of its first column
#pragma unroll
    for (std::int32_t i = 0; i < C::kScores / 4; ++i) {
      const float2 less = *reinterpret_cast<const float2*>(half_squares + 8 * i);
#pragma unroll
      for (std::int32_t half = 0; half < 2; ++half) {
        const float score = tile.scores[4 * i + 2 * half] - less.x;
        const float better = fmaxf(score, tile.scores[4 * i + 2 * half + 1] - less.y);
        const bool is_best = better > tile.best[half];
        pair[half] = is_best ? i : pair[half];
        even[half] = is_best ? score : even[half];
        tile.best[half] = fmaxf(tile.best[half], better);
      }
    }
#pragma unroll
    for (std::int32_t half = 0; half < 2; ++half) {
      const std::int32_t odd = even[half] == tile.best[half] ? 0 : 1;
      const std::int32_t column = first + 8 * pair[half] + lane_id() % 4 * 2 + odd;
      tile.number[half] = pair[half] < 0 ? tile.number[half] : column;
    }
  }

  // Writes the labels of an item's rows: of the four lanes that share a row, the best.
  __device__ __forceinline__ void finish(const Item& item) {
    std::int32_t* labels = params_.labels + item.slice * params_.rows;
#pragma unroll
    for (std::int32_t i = 0; i < 2 * kTiles; ++i) {
      const std::int32_t half = i % 2;
      float best = tiles_[i / 2].best[half];
      std::int32_t label = tiles_[i / 2].number[half];
#pragma unroll
      for (std::int32_t step = 1; step < 4; step *= 2) {
        const float other = __shfl_xor_sync(kAllLanes, best, step);
        const std::int32_t other_label = __shfl_xor_sync(kAllLanes, label, step);
        if (other > best || (other == best && other_label < label)) {
          best = other;
          label = other_label;
        }
      }
      const std::int32_t row = item.row + group_ * kGroupRows + i / 2 * kTileRows + warp() * 16 +
                               half * 8 + lane_id() / 4;
      if (lane_id() % 4 == 0 && row < params_.rows) {
        labels[row] = label;
      }
    }
  }

  static __device__ __forceinline__ std::int32_t warp() {  // of the warpgroup
    return static_cast<std::int32_t>(threadIdx.x) % kGroupThreads / kWarp;
  }

  typename C::Shared& shared_;
  const Params& params_;
  std::int32_t group_;
  ptx::Descriptor centroids_;  // of stage 0
  ptx::RingPosition<kRowStages> rows_;
  Tile tiles_[kTiles];
};

template <class C>
__global__ void __launch_bounds__(kThreads, 1) label_rows(const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<typename C::Shared*>(memory);
  if (threadIdx.x == 0) {
    for (std::int32_t i = 0; i < kRowStages; ++i) {
      ptx::init(shared.rows_full[i], 1);
      ptx::init(shared.rows_empty[i], kConsumers * kGroupWarps);
    }
    for (std::int32_t i = 0; i < C::kStages; ++i) {
      ptx::init(shared.centroids_full[i], 1);
      ptx::init(shared.centroids_empty[i], kConsumers * kGroupWarps);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();

  // The same in all lanes, and the compiler must know.
  const std::int32_t warp =
      __shfl_sync(kAllLanes, static_cast<std::int32_t>(threadIdx.x) / kWarp, 0);
  if (warp < kGroupWarps) {
    ptx::lower_registers<kProducerRegisters>();
    if (warp == 0) {
      run_loads<C>(shared, params);
    }
  } else {
    ptx::raise_registers<kConsumerRegisters>();
    Consumer<C>(shared, params, warp / kGroupWarps - 1).run();
  }
}

}  // namespace kpage::kernels::nearest
