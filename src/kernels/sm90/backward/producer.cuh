// The warps that load: queries with their statistics, output gradients, and the owner's K and V.
//
// Invalid rows arrive as zeros, since the copy engine fills what lies outside a tensor: whatever
// padding holds, even NaN, never enters shared memory. Zero rows make zero products; only P, the
// exponential of a zero score, needs a mask (-inf in the statistics, or a select in the consumers).
#pragma once

#include <cstdint>

#include "kernels/ptx/barrier.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/tensor_load.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/scheduler.cuh"

namespace kpage::kernels::sm90::backward_kernel {

// Box `number` of a record, to its place in the slots from `to` on. `row` is that of its slot.
template <class C>
__device__ __forceinline__ void load_box(const OperandMaps& maps, std::byte* to, int number,
                                         std::uint8_t box, std::int32_t slab, std::int32_t row,
                                         ptx::Barrier& full) {
  const bool empty = box == kEmptyBox;
  ptx::load_tensor<5>(to + number * C::kGroupBytes, maps.box[empty ? kRunMaps : box],
                      {0, 0, slab, 0, empty ? kNowhere : row + number % 2 * kGroupRows}, full);
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
      ptx::arrive(shared_.owner_record_empty[owner_at_.slot()]);
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
    const TileRecord& record = shared_.tiles[tile_at_.slot()];
    const int lane = lane_index();
    const std::int32_t row = record.row[lane / 2 % kTilePages];
    const std::uint8_t box = record.box[lane % (2 * kTilePages)];
    ptx::wait(kQueries ? barriers.query_empty[stage] : barriers.gradient_empty[stage], parity ^ 1);
    ptx::Barrier& full = kQueries ? barriers.query_full[stage] : barriers.gradient_full[stage];
    if (lane < 2 * kTilePages && box != kNoBox) {
      constexpr std::size_t kFirst = kQueries ? C::template kFirstQuery<Route<kSlots>>
                                              : C::template kFirstGradient<Route<kSlots>>;
      load_box<C>(kQueries ? params_.q : params_.d_o,
                  reinterpret_cast<std::byte*>(&shared_) + kFirst + stage * C::kTileBytes, lane,
                  box, slab, row, full);
    }
    __syncwarp();
    std::uint32_t bytes = C::kTileBytes;
    if constexpr (kQueries) {
      bytes += load_statistics(record, stage, full);
    }
    // A barrier may hear of bytes before it knows how many to expect: it waits for the arrival.
    __syncwarp();
    if (lane_index() == 0) {
      ptx::arrive_expect(full, bytes);
    } else if constexpr (kQueries) {
      ptx::arrive(full);
    }
    ptx::arrive(shared_.tile_record_empty[tile_at_.slot()]);
    tile_at_.advance();
  }

  // Tells consumers what the stage holds, and loads its statistics; returns their bytes.
  __device__ __forceinline__ std::uint32_t load_statistics(const TileRecord& record, int stage,
                                                           ptx::Barrier& full) {
    const int lane = lane_index();
    if (lane < kTilePages) {
      const std::int32_t page = record.page[lane];
      const std::uint32_t pages = record.statistics[lane];
      shared_.info[stage].page[lane] = page;
      if (lane == 0) {
        shared_.info[stage].slots = record.slots;
      }
      if (pages > 0) {
        ptx::load_bulk(shared_.statistics[stage][lane],
                       params_.statistics + std::int64_t{page} * kPageStatistics,
                       pages * kPageStatistics * std::uint32_t{sizeof(float)}, full);
      }
    }
    const std::int32_t used = record.used;
    if (used < kTilePages) {
      __syncwarp();
#pragma unroll 1
      for (int i = 0; i < kTilePages; ++i) {
        if (record.page[i] == kNoPage) {
          shared_.statistics[stage][i][lane] = lane < plan::kPageRows ? params_.no_score : 0.0f;
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
    const int lane = lane_index();
    const std::uint8_t box = record.box[lane % (2 * kSlots)];
    if (lane >= 2 * kSlots || box == kNoBox) {
      return;
    }
    const std::int32_t row = record.attended != 0 ? record.row[lane / 2] : kNowhere;
    const std::int32_t heads = params_.forward.shape.heads;
    const std::int32_t batch = record.batch_head / heads;
    const std::int32_t kv_head = record.batch_head % heads / params_.group;
    load_box<C>(params_.k, shared_.k, lane, box, first_slab(params_.k_slabs, batch, kv_head), row,
                full);
    load_box<C>(params_.v, shared_.v, lane, box, first_slab(params_.v_slabs, batch, kv_head), row,
                full);
  }

  __device__ __forceinline__ void release() {
    __syncwarp();
    ptx::arrive(shared_.owner_record_empty[at_.slot()]);
    at_.advance();
  }

  Shared& shared_;
  const MainParams& params_;
  RecordPosition<kOwnerRecords> at_;
};

}  // namespace kpage::kernels::sm90::backward_kernel
