// The warpgroups that compute. Scores are transposed: a K/V page is the 16 rows of a warp and a
// query page 16 columns, so that P^T and dS^T stay in registers as operands and a page pair that
// the graph masks is the same for a whole warp.
//
// A tile, t, in the order in which its products start (docs/backward.md):
//   dQ(t-1); P of S(t); dV += P^T dO; dP(t); dQ(t-1) out; dS to shared memory; S(t+1); dK += dS^T Q
// With owners of four slots dK and half of dQ come before S(t+1). dQ of a tile thus runs under the
// exponentials of the next, and the two warpgroups, which need each other's dS for it with eight
// slots, need not be in step.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>

#include "kernels/ptx/barrier.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/registers.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/sm90/backward/bounds.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/epilogue.cuh"
#include "kernels/sm90/backward/params.h"

namespace kpage::kernels::sm90::backward_kernel {

// Warpgroup and warp numbers, and whatever else is the same for all lanes, pass through a shuffle,
// so that the compiler keeps them and what derives from them in uniform registers.
template <class T>
__device__ __forceinline__ T uniform(T value) {
  return __shfl_sync(0xffffffffu, value, 0);
}

template <class C, int kSlots>
class Consumer {
 public:
  using Element = typename C::Element;
  using Shared = typename C::SharedStorage;
  using R = Route<kSlots>;
  using Statistics = float[kTilePages][kPageStatistics];

  __device__ __forceinline__ Consumer(Shared& shared, const MainParams& params, int group)
      : shared_(shared),
        params_(params),
        barriers_(shared.route[R::kShared ? 0 : 1]),
        group_(group),
        warp_(uniform(static_cast<int>(threadIdx.x) % kGroupThreads / kWarpThreads)) {
    stage_ = R::kShared ? 0 : group;
  }

  // All owners of this route. `record` is the position in the ring of owner records.
  __device__ __forceinline__ void run(RecordPosition<kOwnerRecords>& record) {
    for (;;) {
      ptx::wait(shared_.owner_record_full[record.slot()], record.parity());
      const OwnerRecord& owner = shared_.owners[record.slot()];
      const std::int32_t tiles = uniform(owner.tiles);
      if (tiles != kNoMoreOwners) {
        ptx::wait(barriers_.owner_full, owner.parity);
        walk(owner, tiles);
      }
      // Every lane, in a branch that ptxas cannot see through: without one the kernel with fixed
      // point spills.
      if (lane_index() < kWarpThreads) {
        ptx::arrive(shared_.owner_record_empty[record.slot()]);
      }
      record.advance();
      if (tiles == kNoMoreOwners) {
        break;
      }
    }
  }

 private:
  static constexpr std::uint32_t kDsBytes = kOwnerRows * kTileRows * 2;  // of one buffer
  static constexpr std::uint32_t kDsGroup = 1024;                        // eight rows of it

  // The owner's page slot whose 16 rows this warp holds.
  __device__ __forceinline__ int slot() const {
    return R::kShared ? group_ * kGroupWarps + warp_ : warp_;
  }

  static __device__ __forceinline__ constexpr std::uint32_t address(std::size_t offset) {
    return kSharedBase + static_cast<std::uint32_t>(offset);
  }
  // Operands of D columns, and of dS^T, at constant addresses.
  static __device__ __forceinline__ constexpr ptx::Descriptor rows_at(std::size_t offset) {
    return ptx::Descriptor::at(address(offset), C::kSlabBytes, C::kGroupBytes);
  }
  static __device__ __forceinline__ constexpr ptx::Descriptor ds_at(std::size_t offset) {
    return ptx::Descriptor::at(address(offset), C::kSlabBytes, kDsGroup);
  }
  static __device__ __forceinline__ ptx::Descriptor query_rows(int stage) {
    return rows_at(C::template kFirstQuery<R>) + static_cast<std::uint32_t>(stage) * C::kTileBytes;
  }
  static __device__ __forceinline__ ptx::Descriptor gradient_rows(int stage) {
    return rows_at(C::template kFirstGradient<R>) +
           static_cast<std::uint32_t>(stage) * C::kTileBytes;
  }
  // The 64 rows of K or V that this warpgroup multiplies.
  __device__ __forceinline__ ptx::Descriptor own_rows(std::size_t offset) const {
    return rows_at(offset) +
           (R::kShared ? static_cast<std::uint32_t>(group_) * (C::kOwnerBytes / 2) : 0u);
  }

  // Whether S and dP start with the statistics of their query rows instead of zeros, so that
  // nothing is loaded and added between products. Fixed point has no registers for that. Tensor
  // cores truncate, and sums that start with an LSE of hundreds lose more bits than fp16's P may.
  static constexpr bool kStartRows = !C::kFixedPoint && std::is_same_v<Element, __nv_bfloat16>;
  static constexpr int kScoreColumn = 0;                // of the statistics: what S^T starts with
  static constexpr int kDeltaColumn = plan::kPageRows;  // and dP^T

  // What the rows of this lane in X^T start with, of columns 8 n and 8 n + 1 from its own on.
  __device__ __forceinline__ float2 start_of(const Statistics& statistics, int column,
                                             int n) const {
    return *reinterpret_cast<const float2*>(
        &statistics[n / 2][column + n % 2 * 8 + 2 * (lane_ & 3)]);
  }
  // Query pages [first, first + pages) of X^T, before and behind its product.
  __device__ __forceinline__ void start_rows(float (&x)[32], const Statistics& statistics,
                                             int column, int first, int pages) const {
    if constexpr (kStartRows) {
#pragma unroll
      for (int n = 2 * first; n < 2 * (first + pages); ++n) {
        const float2 start = start_of(statistics, column, n);
        x[4 * n] = start.x;
        x[4 * n + 1] = start.y;
        x[4 * n + 2] = start.x;
        x[4 * n + 3] = start.y;
      }
    }
  }
  __device__ __forceinline__ void finish_rows(float (&x)[32], const Statistics& statistics,
                                              int column, int first, int pages) const {
    if constexpr (!kStartRows) {
#pragma unroll
      for (int n = 2 * first; n < 2 * (first + pages); ++n) {
        const float2 start = start_of(statistics, column, n);
        x[4 * n] += start.x;
        x[4 * n + 1] += start.y;
        x[4 * n + 2] += start.x;
        x[4 * n + 3] += start.y;
      }
    }
  }
  // X^T += A B^T over D, for S^T = K Q^T and dP^T = V dO^T: [64 K/V rows, 64 query rows].
  __device__ __forceinline__ void multiply_rows(float (&x)[32], ptx::Descriptor a,
                                                ptx::Descriptor b) const {
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < C::kHeadDim / 16; ++k) {
      const std::uint32_t at = static_cast<std::uint32_t>(k / 4 * C::kSlabBytes + k % 4 * 32);
      ptx::wgmma<Element>(x, a + at, b + at, kStartRows || k > 0);
    }
    ptx::wgmma_commit();
  }
  // dV += P^T dO: [64 K/V rows, D], a query page a step.
  __device__ __forceinline__ void add_dv(const std::uint32_t (&p)[16], ptx::Descriptor d_o) {
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTilePages; ++k) {
      ptx::wgmma<Element, ptx::Major::kMnMajor>(
          dv_, p + 4 * k, d_o + static_cast<std::uint32_t>(k * C::kPageBytes), true);
    }
    ptx::wgmma_commit();
  }
  // dK += dS^T Q, the same.
  __device__ __forceinline__ void add_dk(const std::uint32_t (&ds)[16], ptx::Descriptor q) {
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTilePages; ++k) {
      ptx::wgmma<Element, ptx::Major::kMnMajor>(
          dk_, ds + 4 * k, q + static_cast<std::uint32_t>(k * C::kPageBytes), true);
    }
    ptx::wgmma_commit();
  }
  // dQ = dS K: [64 query rows, half of D], a K/V page a step.
  __device__ __forceinline__ void multiply_dq(ptx::Descriptor ds, ptx::Descriptor k_half) {
    float(&dq)[C::kHalf / 2] = dq_accumulators();
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      ptx::wgmma<Element, ptx::Major::kMnMajor, ptx::Major::kMnMajor>(
          dq, ds + static_cast<std::uint32_t>(k * 2 * kDsGroup),
          k_half + static_cast<std::uint32_t>(k * C::kPageBytes), k > 0);
    }
    ptx::wgmma_commit();
  }

  static constexpr bool kDqInDp = C::kHalf / 2 == 32;
  __device__ __forceinline__ float (&dq_accumulators())[C::kHalf / 2] {
    if constexpr (kDqInDp) {
      return dp_;
    } else {
      return dq_;
    }
  }

  // Puts the dQ of this warp's query page, half of its columns, on its way to the accumulator.
  __device__ __forceinline__ void stage_dq(std::int32_t page) {
    float(&dq)[C::kHalf / 2] = dq_accumulators();
    float* const staged = staging();
    if (lane_ == 0) {
      ptx::wait_bulk_reads();
    }
    __syncwarp();
    if constexpr (C::kFixedPoint) {
      const std::uint32_t scales = R::kShared ? row_scales_ : row_scales_of(page);
#pragma unroll
      for (int i = 0; i < C::kHalf / 2; ++i) {
        const float scale = i / 2 % 2 == 0 ? low_scale(scales) : high_scale(scales);
        dq[i] = __int_as_float(__float2int_rn(dq[i] * scale));
      }
    }
#pragma unroll
    for (int i = 0; i < C::kHalf / 8; ++i) {
      *reinterpret_cast<float4*>(staged + (i * kWarpThreads + lane_) * 4) =
          make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    }
  }

  // Adds what was staged to the accumulator.
  __device__ __forceinline__ void put_dq(std::int32_t page, int half) {
    ptx::fence_shared_async();
    __syncwarp();
    if (lane_ == 0 && page != kNoPage) {
      float* const staged = staging();
      float* const to =
          params_.d_q + std::int64_t{page} * C::kPageGradients + half * C::kWarpGradients;
      constexpr std::uint32_t kBytes = C::kWarpGradients * sizeof(float);
      if constexpr (C::kFixedPoint) {
        ptx::reduce_add(reinterpret_cast<std::int32_t*>(to),
                        reinterpret_cast<const std::int32_t*>(staged), kBytes);
      } else {
        ptx::reduce_add(to, staged, kBytes);
      }
    }
  }
  __device__ __forceinline__ std::uint32_t row_scales_of(std::int32_t page) const {
    return page == kNoPage
               ? 0u
               : params_.row_scales[std::int64_t{page} * (plan::kPageRows / 2) + lane_ / 4];
  }
  __device__ __forceinline__ float* staging() const {
    return shared_
        .d_q[R::kShared ? warp_ * kConsumerGroups + group_ : group_ * kGroupWarps + warp_];
  }

  __device__ __forceinline__ void release_query(int stage) {
    ptx::arrive(barriers_.query_empty[stage]);
  }
  static __device__ __forceinline__ int previous(int stage) {
    return stage >= R::kStep ? stage - R::kStep : stage - R::kStep + R::kStages;
  }
  __device__ __forceinline__ void advance() {
    stage_ += R::kStep;
    if (stage_ >= R::kStages) {
      stage_ -= R::kStages;
      parity_ ^= 1;
    }
  }

  // Moves on to the next tile's stage and waits for its Q; returns it. After the last tile, of the
  // `left` that there are, this one's: what S is then made of is unused, but must not be what loads
  // for the next owner write.
  __device__ __forceinline__ int next_query(std::int32_t left) {
    const int stage = stage_;
    advance();
    if (left <= R::kStep) {
      return stage;
    }
    ptx::wait(barriers_.query_full[stage_], parity_);
    return stage_;
  }

  // P from S, two query pages from `first` on.
  __device__ __forceinline__ void exponentials(const Statistics& statistics, int first) {
    finish_rows(s_, statistics, kScoreColumn, first, 2);
#pragma unroll
    for (int i = 8 * first; i < 8 * (first + 2); ++i) {
      s_[i] = ptx::ex2(s_[i] * params_.scale_log2);
    }
  }

  __device__ __forceinline__ void walk(const OwnerRecord& owner, std::int32_t tiles) {
    lane_ = lane_index();
    const ptx::Descriptor k = own_rows(offsetof(Shared, k));
    const ptx::Descriptor v = own_rows(offsetof(Shared, v));
    // With eight slots a warpgroup computes one half of the columns of dQ, with four both.
    const ptx::Descriptor k_half =
        rows_at(offsetof(Shared, k)) +
        (R::kShared ? static_cast<std::uint32_t>(group_) * kHalfBytes : 0u);
    const ptx::Descriptor ds_all =
        ds_at(offsetof(Shared, d_s)) +
        (R::kShared ? 0u : static_cast<std::uint32_t>(group_) * (kDsBytes / 2));

    // Where this lane stores its rows of dS^T: a row of a matrix for each.
    std::byte* const ds_row = shared_.d_s[0] + group_ * static_cast<int>(kDsBytes / 2) +
                              (warp_ * 16 + (lane_ >> 3 & 1) * 8 + (lane_ & 7)) * 128;
    const int ds_chunk = ((lane_ >> 4) ^ (lane_ & 7)) << 4;

#pragma unroll
    for (int i = 0; i < C::kHalf; ++i) {
      dk_[i] = 0.0f;
      dv_[i] = 0.0f;
    }
    ptx::wait(barriers_.query_full[stage_], parity_);
    start_rows(s_, shared_.statistics[stage_], kScoreColumn, 0, kTilePages);
    multiply_rows(s_, k, query_rows(stage_));
    ptx::wgmma_wait<0>();

    const auto previous_dq = [&](bool wait) {
      if (R::kShared && wait) {
        const std::uint32_t n = ds_count_ - 1;
        ptx::wait(shared_.d_s_full[n & 1], n >> 1 & 1);
      }
      multiply_dq(ds_all + (ds_buffer_ ^ kDsBytes), k_half + (R::kShared ? 0u : kHalfBytes));
    };

    // At the top of a tile S is done. With eight slots dK of the last tile is in flight, and its dQ
    // to come; with four, dK is done and so is half of dQ.
    std::int32_t page = kNoPage;
    bool first = true;
    for (std::int32_t left = tiles - (R::kShared ? 0 : group_); left > 0; left -= R::kStep) {
      const int stage = stage_;
      int next = stage;
      const auto& statistics = shared_.statistics[stage];

      previous_dq(!first);  // the first: of whatever is there, and unused
      const std::uint32_t pairs = uniform(shared_.info[stage].slots);
      const int valid = uniform(static_cast<int>(owner.valid[slot()]));
      exponentials(statistics, 0);
      if constexpr (R::kShared) {
        ptx::wgmma_wait<1>();  // dK of the last tile is done, and its queries may go
        if (!first) {
          release_query(previous(stage));
        }
      }
      exponentials(statistics, 2);
      if (valid < plan::kPageRows || pairs != kEveryPair) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          const bool pair = (pairs >> (i / 8 * 8 + slot()) & 1) != 0;
          s_[i] = pair && lane_ / 4 + i / 2 % 2 * 8 < valid ? s_[i] : 0.0f;
        }
      }
      std::uint32_t p[16];  // P^T, then dS^T
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        p[i] = ptx::pack<Element>(s_[2 * i], s_[2 * i + 1]);
      }

      ptx::wait(barriers_.gradient_full[stage], parity_);
      add_dv(p, gradient_rows(stage));
      ptx::wgmma_wait<1>();  // dQ of the last tile is done, dV runs
      stage_dq(page);
      if constexpr (!kStartRows) {
        put_dq(page, R::kShared ? group_ : 1);
      }
      start_rows(dp_, statistics, kDeltaColumn, 0, kTilePages);
      multiply_rows(dp_, v, gradient_rows(stage));
      if constexpr (R::kShared) {
        next = next_query(left);
      }
      if constexpr (kStartRows) {
        put_dq(page, R::kShared ? group_ : 1);  // its fence waits while the products run
      }
      page = shared_.info[stage].page[warp_];
      if constexpr (C::kFixedPoint && R::kShared) {
        row_scales_ = row_scales_of(page);
      }
      ptx::wgmma_wait<0>();
      if (lane_ == 0) {
        ptx::arrive(barriers_.gradient_empty[stage]);
      }
#pragma unroll
      for (int i = 0; i < kTilePages; ++i) {
        std::uint32_t* const ds = p + 4 * i;
        finish_rows(dp_, statistics, kDeltaColumn, i, 1);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int n = 2 * i + j;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            ds[2 * j + h] = ptx::pack<Element>(s_[4 * n + 2 * h] * dp_[4 * n + 2 * h],
                                               s_[4 * n + 2 * h + 1] * dp_[4 * n + 2 * h + 1]);
          }
        }
        if constexpr (R::kShared) {
          start_rows(s_, shared_.statistics[next], kScoreColumn, i, 1);  // of the next tile
        }
        ptx::store_matrices(ds_row + ds_buffer_ + (ds_chunk ^ i << 5), ds[0], ds[1], ds[2], ds[3]);
      }
      if constexpr (!R::kShared) {
        add_dk(p, query_rows(stage));
      }
      ptx::fence_shared_async();
      if constexpr (R::kShared) {
        __syncwarp();
        if (lane_ == 0) {
          ptx::arrive(shared_.d_s_full[ds_count_ & 1]);
        }
        ++ds_count_;
      } else {
        ptx::named_sync<kGroupThreads>(kGroupBarrier + static_cast<std::uint32_t>(group_));
        multiply_dq(ds_all + ds_buffer_, k_half);
      }

      if constexpr (!R::kShared) {
        next = next_query(left);
        start_rows(s_, shared_.statistics[next], kScoreColumn, 0, kTilePages);
      }
      // After the last tile: of the same queries, and unused. A branch around the product would
      // make the compiler serialise all products.
      multiply_rows(s_, k, query_rows(next));
      if constexpr (R::kShared) {
        add_dk(p, query_rows(stage));
      } else {
        ptx::wgmma_wait<2>();  // dK is done, and the queries may go
        release_query(stage);
        ptx::wgmma_wait<1>();
        stage_dq(page);
      }
      ds_buffer_ ^= kDsBytes;
      first = false;
      // Accumulators that ordinary code reads must be waited for in the iteration that issued their
      // product (ptxas serialises products otherwise); those of dK need not.
      ptx::wgmma_wait<R::kShared ? 1 : 0>();
      if constexpr (!R::kShared) {
        put_dq(page, 0);
      }
    }
    previous_dq(true);
    ptx::wgmma_wait<0>();
    stage_dq(page);
    put_dq(page, R::kShared ? group_ : 1);
    if constexpr (R::kShared) {
      release_query(previous(stage_));
    }
    if (lane_ == 0) {
      ptx::arrive(barriers_.owner_empty);
      ptx::wait_bulk_reads();
    }
    __syncwarp();
    Epilogue<C, kSlots>(shared_, params_).store(owner, dk_, dv_);
  }

  static constexpr std::uint32_t kHalfBytes =
      C::kSlabs > 1 ? C::kSlabs / 2 * C::kSlabBytes : kSlabColumns / 2 * 2;
  static constexpr std::uint32_t kEveryPair = 0xffffffffu;

  Shared& shared_;
  const MainParams& params_;
  RouteBarriers& barriers_;
  const int group_;
  const int warp_;
  int lane_ = 0;
  int stage_;  // of Q and of dO of the next tile
  std::uint32_t parity_ = 0;
  std::uint32_t ds_buffer_ = 0;  // byte offset of the buffer that is written next
  std::uint32_t ds_count_ = 0;   // buffers written
  // Fixed point: of this lane's rows of the page. Loaded ahead where there is a register for them.
  std::uint32_t row_scales_ = 0;
  float dk_[C::kHalf];
  float dv_[C::kHalf];
  float s_[32];
  float dp_[32];                          // and dQ, where it takes as many
  float dq_[kDqInDp ? 1 : C::kHalf / 2];  // else dQ
};

}  // namespace kpage::kernels::sm90::backward_kernel
