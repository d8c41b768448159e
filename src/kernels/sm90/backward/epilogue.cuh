// The end of an owner: dK and dV leave the registers, each row once. Query heads that share K and V
// add theirs up in fp32 instead; the postprocess converts the sums.
#pragma once

#include <cstdint>

#include "kernels/ptx/barrier.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/registers.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"

namespace kpage::kernels::sm90::backward_kernel {

template <class C, int kSlots>
class Epilogue {
 public:
  using Element = typename C::Element;
  using Shared = typename C::SharedStorage;
  using Fragment = float[C::kHalf];  // 16 rows x D of a warp

  __device__ __forceinline__ Epilogue(Shared& shared, const MainParams& params)
      : shared_(shared), params_(params) {
    lane_ = lane_index();
    // Volatile for the same reason.
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    warp_ = thread % kGroupThreads / kWarpThreads;
    group_ = thread / kGroupThreads - 1;
  }

  // The staging of dQ must be free.
  __device__ __forceinline__ void store(const OwnerRecord& owner, Fragment& dk,
                                        Fragment& dv) const {
    if constexpr (Route<kSlots>::kShared) {
      const int slot = group_ * kGroupWarps + warp_;
      std::byte* const staged =
          reinterpret_cast<std::byte*>(shared_.d_q[warp_ * kConsumerGroups + group_]);
      store_rows(owner, slot, dv, 1.0f, params_.d_v, params_.d_v_sum, staged);
      store_rows(owner, slot, dk, params_.scale, params_.d_k, params_.d_k_sum, staged);
    } else {
      // Each warpgroup has walked every second tile. The first gives its dK for the other's dV.
      float* const first_inbox = shared_.d_q[0] + warp_ * kFragmentNumbers;
      float* const second_inbox =
          reinterpret_cast<float*>(shared_.d_s[0]) + warp_ * kFragmentNumbers;
      ptx::named_sync<kConsumerGroups * kGroupThreads>(kConsumerBarrier);
      if (group_ == 0) {
        give(dk, second_inbox);
      } else {
        give(dv, first_inbox);
      }
      ptx::named_sync<kConsumerGroups * kGroupThreads>(kConsumerBarrier);
      if (group_ == 0) {
        take(dv, first_inbox);
        store_rows(owner, warp_, dv, 1.0f, params_.d_v, params_.d_v_sum,
                   reinterpret_cast<std::byte*>(first_inbox));
      } else {
        take(dk, second_inbox);
        store_rows(owner, warp_, dk, params_.scale, params_.d_k, params_.d_k_sum,
                   reinterpret_cast<std::byte*>(second_inbox));
      }
      ptx::named_sync<kConsumerGroups * kGroupThreads>(kConsumerBarrier);
    }
  }

 private:
  static constexpr int kFragmentNumbers = plan::kPageRows * C::kHeadDim;
  static constexpr int kRowChunks = C::kHeadDim / 8;  // of 16 bytes

  __device__ __forceinline__ void give(const Fragment& x, float* to) const {
#pragma unroll
    for (int i = 0; i < C::kHalf / 4; ++i) {
      *reinterpret_cast<float4*>(to + (i * kWarpThreads + lane_) * 4) =
          make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    }
  }
  __device__ __forceinline__ void take(Fragment& x, const float* from) const {
#pragma unroll
    for (int i = 0; i < C::kHalf / 4; ++i) {
      const float4 other = *reinterpret_cast<const float4*>(from + (i * kWarpThreads + lane_) * 4);
      x[4 * i] += other.x;
      x[4 * i + 1] += other.y;
      x[4 * i + 2] += other.z;
      x[4 * i + 3] += other.w;
    }
    __syncwarp();
  }

  __device__ __forceinline__ void store_rows(const OwnerRecord& owner, int slot, const Fragment& x,
                                             float factor, const RowTensor& to, float* sum,
                                             std::byte* staged) const {
    const std::int32_t heads = params_.forward.shape.heads;
    const std::int64_t batch = owner.batch_head / heads;
    const std::int64_t head = owner.batch_head % heads / params_.group;
    const std::int64_t row = owner.row[slot];
    // What a plan says of rows past the end of the tensor is ignored.
    const auto valid =
        static_cast<int>(min_of<std::int64_t>(owner.valid[slot], params_.kv_rows - row));
    if (valid > 0 && params_.group > 1) {
      const std::int64_t batch_head =
          C::kFixedPoint ? owner.batch_head : batch * (heads / params_.group) + head;
      add_rows(x, sum + (batch_head * params_.kv_rows + row) * C::kHeadDim, valid);
    } else if (valid > 0) {
      write_rows(x, factor,
                 static_cast<Element*>(to.data) + batch * to.batch + head * to.head + row * to.row,
                 to.row, valid, staged);
    }
  }

  __device__ __forceinline__ void add_rows(const Fragment& x, float* to, int valid) const {
    const int row = lane_ / 4;
    float* const at = to + row * C::kHeadDim + 2 * (lane_ & 3);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row + 8 * h < valid) {
#pragma unroll
        for (int n = 0; n < kRowChunks; ++n) {
          atomicAdd(reinterpret_cast<float2*>(at + 8 * h * C::kHeadDim + 8 * n),
                    make_float2(x[4 * n + 2 * h], x[4 * n + 2 * h + 1]));
        }
      }
    }
  }

  // Through shared memory, so that rows leave in wide stores. Chunks of 16 bytes are swizzled
  // within a row.
  __device__ __forceinline__ void write_rows(const Fragment& x, float factor, Element* to,
                                             std::int64_t pitch, int valid,
                                             std::byte* staged) const {
    const int matrix_row = (lane_ >> 3 & 1) * 8 + (lane_ & 7);
    std::byte* const at = staged + matrix_row * kRowChunks * 16;
#pragma unroll
    for (int i = 0; i < C::kHeadDim / 16; ++i) {
      const int chunk = 2 * i + (lane_ >> 4);
      ptx::store_matrices(at + ((chunk ^ (lane_ & 7)) << 4),
                          ptx::pack<Element>(x[8 * i] * factor, x[8 * i + 1] * factor),
                          ptx::pack<Element>(x[8 * i + 2] * factor, x[8 * i + 3] * factor),
                          ptx::pack<Element>(x[8 * i + 4] * factor, x[8 * i + 5] * factor),
                          ptx::pack<Element>(x[8 * i + 6] * factor, x[8 * i + 7] * factor));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < plan::kPageRows * kRowChunks / kWarpThreads; ++i) {
      const int index = i * kWarpThreads + lane_;
      const int row = index / kRowChunks;
      const int chunk = index % kRowChunks;
      if (row < valid) {
        *reinterpret_cast<uint4*>(to + row * pitch + chunk * 8) =
            *reinterpret_cast<const uint4*>(staged + (row * kRowChunks + (chunk ^ (row & 7))) * 16);
      }
    }
    __syncwarp();
  }

  Shared& shared_;
  const MainParams& params_;
  int group_;
  int warp_;
  int lane_;
};

}  // namespace kpage::kernels::sm90::backward_kernel
