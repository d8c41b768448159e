// The warps that load: queries with their statistics, output gradients, and the owner's K and V.
//
// Invalid rows arrive as zeros, since the copy engine fills what lies outside a tensor: whatever
// padding holds, even NaN, never enters shared memory. Zero rows make zero products; only P, the
// exponential of a zero score, needs a mask (-inf in the statistics, or a select in the consumers).
#pragma once

#include <cstdint>

#include <math_constants.h>

#include "kernels/ptx/barrier.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/tensor_load.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/scheduler.cuh"

namespace kpage::kernels::sm90::backward_kernel {

// Boxes of a page slot are issued by four lanes, so that one partial page takes no longer than four
// whole ones.
inline constexpr int kSlotLanes = 4;

// Lane `job` of the four that load a page slot to `to`: see TileRecord.
template <class C>
__device__ __forceinline__ void load_slot(const OperandMaps& maps, std::byte* to, std::int32_t slab,
                                          std::int32_t row, std::int32_t rows, std::int32_t whole,
                                          int job, ptx::Barrier& full) {
  if (rows == plan::kPageRows) {
    if (job == 0) {
      load_full_pages<C::kHeadDim>(to, maps.pages, slab, row, whole, full);
    }
    return;
  }
  const std::int32_t partial =
      rows % kGroupRows;  // rows of the group that is neither full nor empty
  if (job == 0) {
    if (rows >= kGroupRows) {
      ptx::load_tensor<3>(to, maps.pages.group, {0, row, slab}, full);
    }
  } else if (job == 1) {
    if (rows <= kGroupRows) {
      ptx::load_tensor<3>(to + C::kGroupBytes, maps.pages.group, {0, kNowhere, slab}, full);
    }
  } else if (job - 2 < C::kSlabs && partial > 0) {
    const std::int32_t group = rows / kGroupRows;
    std::byte* const at = to + group * C::kGroupBytes + (job - 2) * C::kSlabBytes;
    ptx::load_tensor<3>(at, maps.rows.rows[partial - 1],
                        {0, row + group * kGroupRows, slab + job - 2}, full);
    ptx::load_tensor<3>(at + partial * (C::kSlabBytes / kGroupRows),
                        maps.rows.rows[kGroupRows - 1 - partial], {0, kNowhere, slab + job - 2},
                        full);
  }
}

__device__ __forceinline__ std::int32_t first_slab(const SlabStrides& slabs, std::int32_t batch,
                                                   std::int32_t head) {
  return batch * slabs.batch + head * slabs.head;
}

// The warp of Q and the statistics (kQueries) or that of dO.
template <class C, bool kQueries>
class TileLoader {
 public:
  using Shared = typename C::SharedStorage;

  __device__ __forceinline__ TileLoader(Shared& shared, const MainParams& params)
      : shared_(shared), params_(params) {}

  template <int kSlots>
  __device__ __forceinline__ void run() {
    RouteBarriers& barriers = shared_.route[Route<kSlots>::kShared ? 0 : 1];
    ptx::RingPosition<Route<kSlots>::kStages> at;
    for (;;) {
      ptx::wait(shared_.owner_record_full[owner_at_.slot()], owner_at_.parity());
      std::int32_t tiles = shared_.owners[owner_at_.slot()].tiles;
      const std::int32_t batch_head = shared_.owners[owner_at_.slot()].batch_head;
      __syncwarp();
      if (lane_index() == 0) {
        ptx::arrive(shared_.owner_record_empty[owner_at_.slot()]);
      }
      owner_at_.advance();
      if (tiles == kNoMoreOwners) {
        break;
      }
      const std::int32_t heads = params_.forward.shape.heads;
      const std::int32_t slab = first_slab(kQueries ? params_.q_slabs : params_.d_o_slabs,
                                           batch_head / heads, batch_head % heads);
      for (; tiles > 0; --tiles) {
        load_tile<kSlots>(barriers, at.stage, at.parity, slab);
        at.advance();
      }
    }
  }

 private:
  template <int kSlots>
  __device__ __forceinline__ void load_tile(RouteBarriers& barriers, int stage,
                                            std::uint32_t parity, std::int32_t slab) {
    ptx::wait(shared_.tile_record_full[tile_at_.slot()], tile_at_.parity());
    ptx::wait(kQueries ? barriers.query_empty[stage] : barriers.gradient_empty[stage], parity ^ 1);
    ptx::Barrier& full = kQueries ? barriers.query_full[stage] : barriers.gradient_full[stage];
    const TileRecord& record = shared_.tiles[tile_at_.slot()];
    const int slot = lane_index() / kSlotLanes % kTilePages;
    const std::int32_t page = record.page[slot];
    std::uint32_t bytes = C::kTileBytes;
    if constexpr (kQueries) {
      bytes += prepare_statistics(record, stage, page);
    }
    __syncwarp();
    if (lane_index() == 0) {
      ptx::arrive_expect(full, bytes);
    }
    __syncwarp();
    if (lane_index() < kTilePages * kSlotLanes) {
      const int job = lane_index() % kSlotLanes;
      if (kQueries && job == kSlotLanes - 1 && record.statistics[slot] > 0) {
        ptx::load_bulk(shared_.statistics[stage][slot],
                       params_.statistics + std::int64_t{page} * kPageStatistics,
                       record.statistics[slot] * kPageStatistics * std::uint32_t{sizeof(float)},
                       full);
      }
      constexpr std::size_t kFirst = kQueries ? C::template kFirstQuery<Route<kSlots>>
                                              : C::template kFirstGradient<Route<kSlots>>;
      std::byte* const to = reinterpret_cast<std::byte*>(&shared_) + kFirst + stage * C::kTileBytes;
      load_slot<C>(kQueries ? params_.q : params_.d_o, to + slot * C::kPageBytes, slab,
                   record.row[slot], record.rows[slot], record.whole[slot], job, full);
    }
    __syncwarp();
    if (lane_index() == 0) {
      ptx::arrive(shared_.tile_record_empty[tile_at_.slot()]);
    }
    tile_at_.advance();
  }

  // Tells consumers what the stage holds; returns the bytes of statistics that will be loaded.
  __device__ __forceinline__ std::uint32_t prepare_statistics(const TileRecord& record, int stage,
                                                              std::int32_t page) {
    const int lane = lane_index();
    if (lane < kTilePages) {
      shared_.info[stage].page[lane] = record.page[lane];
    } else if (lane == kTilePages) {
      shared_.info[stage].slots = record.slots;
    }
    const std::uint32_t lanes =
        __ballot_sync(kAllLanes, page != kNoPage && lane < kTilePages * kSlotLanes);
    const int used = __popc(lanes) / kSlotLanes;
    if (used < kTilePages) {
#pragma unroll 1
      for (int i = 0; i < kTilePages; ++i) {
        if ((lanes >> (i * kSlotLanes) & 1) == 0) {
          shared_.statistics[stage][i][lane] = lane < plan::kPageRows ? -CUDART_INF_F : 0.0f;
        }
      }
      ptx::fence_shared_async();  // the copy engine will write here again
    }
    return static_cast<std::uint32_t>(used) * kPageStatistics * sizeof(float);
  }

  Shared& shared_;
  const MainParams& params_;
  RecordPosition<kOwnerRecords> owner_at_;
  RecordPosition<kTileRecords> tile_at_;
};

// The warp of K and V.
template <class C>
class OwnerLoader {
 public:
  using Shared = typename C::SharedStorage;

  __device__ __forceinline__ OwnerLoader(Shared& shared, const MainParams& params)
      : shared_(shared), params_(params) {}

  template <int kSlots>
  __device__ __forceinline__ void run() {
    RouteBarriers& barriers = shared_.route[Route<kSlots>::kShared ? 0 : 1];
    for (;;) {
      ptx::wait(shared_.owner_record_full[at_.slot()], at_.parity());
      const OwnerRecord& record = shared_.owners[at_.slot()];
      if (record.tiles == kNoMoreOwners) {
        break;
      }
      ptx::wait(barriers.owner_empty, record.parity ^ 1);
      if (lane_index() == 0) {
        ptx::arrive_expect(barriers.owner_full, 2 * kSlots * C::kPageBytes);
      }
      __syncwarp();
      load_owner<kSlots>(record, barriers.owner_full);
      release();
    }
    release();
  }

 private:
  template <int kSlots>
  __device__ __forceinline__ void load_owner(const OwnerRecord& record, ptx::Barrier& full) {
    const int slot = lane_index() / kSlotLanes;
    const int job = lane_index() % kSlotLanes;
    if (slot >= kSlots) {
      return;
    }
    const bool attended = record.attended != 0;
    const std::int32_t row = attended ? record.row[slot] : kNowhere;
    const std::int32_t rows = attended ? record.rows[slot] : plan::kPageRows;
    const std::int32_t whole = attended ? record.whole[slot] : 1;
    const std::int32_t heads = params_.forward.shape.heads;
    const std::int32_t batch = record.batch_head / heads;
    const std::int32_t kv_head = record.batch_head % heads / params_.group;
    load_slot<C>(params_.k, shared_.k + slot * C::kPageBytes,
                 first_slab(params_.k_slabs, batch, kv_head), row, rows, whole, job, full);
    load_slot<C>(params_.v, shared_.v + slot * C::kPageBytes,
                 first_slab(params_.v_slabs, batch, kv_head), row, rows, whole, job, full);
  }

  __device__ __forceinline__ void release() {
    __syncwarp();
    if (lane_index() == 0) {
      ptx::arrive(shared_.owner_record_empty[at_.slot()]);
    }
    at_.advance();
  }

  Shared& shared_;
  const MainParams& params_;
  RecordPosition<kOwnerRecords> at_;
};

}  // namespace kpage::kernels::sm90::backward_kernel
