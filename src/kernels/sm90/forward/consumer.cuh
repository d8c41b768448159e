// The warpgroups that compute: scores, online softmax, output. They see tiles of 128 keys and, from
// the first masked tile on, which of those count; where the keys came from is the producers'
// affair.
#pragma once

#include <cuda_runtime.h>

#include "kernels/ptx/registers.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/sm90/forward/config.cuh"
#include "kernels/sm90/forward/epilogue.cuh"
#include "kernels/sm90/forward/scheduler.cuh"

namespace kpage::kernels::sm90::forward_kernel {

// One of the two consumer warpgroups. They take turns at issuing products, so that one's softmax
// runs under the other's. A warpgroup asks for a tile's stages no sooner than in its turn for the
// tile before: on the Q64 route it does not see every phase of every stage, and the turn tells that
// the other has seen the phase before.
template <class C>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(typename C::Shared& shared, const Params& params,
                                      std::uint32_t group)
      : shared_(shared),
        params_(params),
        group_(group),
        k_(ptx::Descriptor::of(shared.k[0], 0, C::Bytes::kGroup)),
        v_(ptx::Descriptor::of(shared.v[0], C::Bytes::kSlab, C::Bytes::kGroup)) {}

  __device__ __forceinline__ void run() {
    if (group_ == 1) {
      pass_turn();  // the other group issues first
    }
    for (std::uint32_t parity = 0;; parity ^= 1) {
      Item item = items_.next(shared_);
      item.tiles = uniform(item.tiles);
      item.q_rows = uniform(item.q_rows);
      if (item.tiles == kNoItem) {
        return;
      }
      ptx::wait(shared_.q_full, parity);
      if (plan::takes_q64(item.q_rows)) {
        run_q64(item);
      } else {
        run_q128(item);
      }
    }
  }

 private:
  using Ring = ptx::RingPosition<C::kStages>;
  // Independent maxima and sums of a row, or each would wait for the one before it.
  static constexpr std::int32_t kChains = 4;

  // The same in all lanes, and the compiler must know: what products take from uniform registers
  // depends on it.
  static __device__ __forceinline__ std::int32_t uniform(std::int32_t x) {
    return __shfl_sync(~0u, x, 0);
  }

  __device__ __forceinline__ void run_q128(const Item& item) {
    const std::int32_t first_row = static_cast<std::int32_t>(group_) * kGroupQRows;
    load_q(first_row, item.q_rows);
    state_.reset();
    if (item.tiles > 0) {
      run_tiles<false>(item, 0);
      release<false>(shared_.v_empty[v_ring_.stage]);
      v_ring_.advance();
    } else {
      release_q();
    }
    state_.reduce_sums();
    store_rows<C>(params_, item, first_row, state_);
  }

  // Both groups hold the same queries; each takes every second tile, and the first merges.
  __device__ __forceinline__ void run_q64(const Item& item) {
    load_q(0, item.q_rows);
    state_.reset();
    const auto first_tile = static_cast<std::int32_t>(group_);
    const std::int32_t first_v_stage = v_ring_.stage;
    if (item.tiles > first_tile) {
      k_ring_.advance(first_tile);
      v_ring_.advance(first_tile);
      run_tiles<true>(item, first_tile);
    } else {
      release_q();
      k_ring_.advance(item.tiles);
      v_ring_.advance(item.tiles);
    }
    state_.reduce_sums();
    const bool merges = item.tiles > 1;
    const std::int32_t last_of_second = (item.tiles - 2) | 1;
    if (group_ == 1) {
      if (merges) {
        hand_over<C>(shared_, shared_.v[v_ring_.stage], merge_parity_, state_);
        merge_parity_ ^= 1;
        v_ring_.advance(item.tiles - last_of_second);
      }
      if (item.tiles % 2 != 0) {
        take_turn();  // the first group had one more
        pass_turn();
      }
      return;
    }
    if (item.tiles > 0) {
      release<true>(shared_.v_empty[v_ring_.stage]);
      v_ring_.advance(2 - item.tiles % 2);
    }
    const std::int32_t merged_stage = (first_v_stage + last_of_second) % C::kStages;
    if (merges) {
      take_over<C>(shared_, shared_.v[merged_stage], merge_parity_, params_.scale_log2, state_);
      merge_parity_ ^= 1;
    }
    store_rows<C>(params_, item, 0, state_);
    if (merges) {
      // Each lane, for it has read the stage itself, and behind the stores, which need what it
      // read: an arrival by itself would overtake loads in flight.
      ptx::arrive(shared_.v_empty[merged_stage], kConsumers);
    }
  }

  // The tiles of an item that this group takes, from `tile` on. Leaves the stage of the last V tile
  // to be released.
  template <bool kQ64>
  __device__ __forceinline__ void run_tiles(const Item& item, std::int32_t tile) {
    constexpr std::int32_t kStep = kQ64 ? kConsumers : 1;
    const std::int32_t first_masked = uniform(plan::first_masked_tile(item.walk));
    const auto* masks = reinterpret_cast<const uint4*>(params_.plan.walk_masks(item.number));
    const auto stages = [&] { return min_of(kStep, item.tiles - tile); };

    take_turn();
    ptx::wait(shared_.k_full[k_ring_.stage], k_ring_.parity);
    ptx::wgmma_fence();
    issue_scores();
    pass_turn();
    release_q();
    ptx::wgmma_wait<0>();
    release<kQ64>(shared_.k_empty[k_ring_.stage]);
    k_ring_.advance(stages());
    look_ahead();
    if (tile >= first_masked) {
      mask(__ldg(masks + tile - first_masked));
    }
    raise_maxima();
    float sums[2];
    exponentials(sums);
    add_sums(sums);
    tile += kStep;
    const std::int32_t full = min_of(first_masked, item.tiles);
    for (; tile < full; tile += kStep) {
      step<kQ64, false>(nullptr, stages());
    }
    for (; tile < item.tiles; tile += kStep) {
      step<kQ64, true>(masks + tile - first_masked, stages());
    }
    wait_v();
    ptx::wgmma_fence();
    issue_output();
    ptx::wgmma_wait<0>();
  }

  // One tile's scores, beside the output of the tile before it. The next tile of this group is
  // `stages` further on in the ring.
  template <bool kQ64, bool kMasked>
  __device__ __forceinline__ void step(const uint4* masks, std::int32_t stages) {
    uint4 tile_masks{};
    if constexpr (kMasked) {
      tile_masks = __ldg(masks);  // arrives while the products run
    }
    take_turn();
    if (!k_ready_) {
      ptx::wait(shared_.k_full[k_ring_.stage], k_ring_.parity);
    }
    ptx::wgmma_fence();
    issue_scores();
    wait_v();
    ptx::wgmma_fence();
    issue_output();
    pass_turn();
    ptx::wgmma_wait<1>();
    release<kQ64>(shared_.k_empty[k_ring_.stage]);
    k_ring_.advance(stages);
    if constexpr (kMasked) {
      mask(tile_masks);
    }
    ptx::wgmma_wait<0>();
    release<kQ64>(shared_.v_empty[v_ring_.stage]);
    v_ring_.advance(kQ64 ? kConsumers : 1);
    look_ahead();
    float sums[2];
    exponentials(sums);
    if (__any_sync(~0u, !(fmaxf(sums[0], sums[1]) < kMaxSum))) {
      raise_maxima();
      exponentials(sums);
    }
    add_sums(sums);
  }

  // Asks for the next stages while there is other work: an answer takes about 100 clocks. This
  // group has had its turn for the last one, so the other has seen their phases before.
  __device__ __forceinline__ void look_ahead() {
    k_ready_ = ptx::test(shared_.k_full[k_ring_.stage], k_ring_.parity);
    v_ready_ = ptx::test(shared_.v_full[v_ring_.stage], v_ring_.parity);
  }
  __device__ __forceinline__ void wait_v() {
    if (!v_ready_) {
      ptx::wait(shared_.v_full[v_ring_.stage], v_ring_.parity);
    }
  }

  __device__ __forceinline__ void take_turn() {
    ptx::named_sync<kConsumerThreads>(kTurnBarrier + group_);
  }
  __device__ __forceinline__ void pass_turn() {
    ptx::named_arrive<kConsumerThreads>(kTurnBarrier + (group_ ^ 1));
  }

  // One lane for its warp, after its own products have read the stage. On the Q64 route a stage has
  // one reader, who counts for both.
  template <bool kQ64>
  __device__ __forceinline__ void release(ptx::Barrier& empty) {
    if (threadIdx.x % kWarpThreads == 0) {
      ptx::arrive(empty, kQ64 ? kConsumers * kWarpThreads : kWarpThreads);
    }
  }

  // Q into registers. Rows past the block's become zeros: what they hold must not make their sums
  // outgrow kMaxSum.
  __device__ __forceinline__ void load_q(std::int32_t first_row, std::int32_t rows) {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % kWarpThreads);
    const auto warp = static_cast<std::int32_t>(threadIdx.x % kGroupThreads / kWarpThreads);
    const std::int32_t row = first_row + warp * 16 + lane % 16;
    std::uint32_t keep[2];
#pragma unroll
    for (std::int32_t h = 0; h < 2; ++h) {
      keep[h] = first_row + group_row() + 8 * h < rows ? params_.q_keep : 0;
    }
    const std::byte* start =
        shared_.q + row / kGroupRows * C::Bytes::kGroup + row % kGroupRows * (kSlabColumns * 2);
#pragma unroll
    for (std::int32_t i = 0; i < C::kQFragments; ++i) {
      const std::int32_t chunk = (i % 4 * 2 + lane / 16) ^ (row % kGroupRows);
      std::uint32_t fragment[4];
      ptx::load_matrices(fragment, start + i / 4 * C::Bytes::kSlab + chunk * 16);
#pragma unroll
      for (std::int32_t j = 0; j < 4; ++j) {
        q_[i * 4 + j] = (fragment[j] & keep[j % 2]) ^ params_.q_flip;
      }
    }
  }
  // Frees the buffer of Q for the next item, once the first products, which wait for the registers,
  // have been issued: an arrival by itself would overtake load_matrices().
  __device__ __forceinline__ void release_q() {
    __syncwarp();
    if (threadIdx.x % kWarpThreads == 0) {
      ptx::arrive(shared_.q_empty);
    }
  }

  __device__ __forceinline__ void issue_scores() {
    const ptx::Descriptor k = k_ + static_cast<std::uint32_t>(k_ring_.stage * C::kStageBytes);
#pragma unroll
    for (std::int32_t i = 0; i < C::kQFragments; ++i) {
      ptx::wgmma<typename C::Element>(
          s_, q_ + i * 4, k + static_cast<std::uint32_t>(i / 4 * C::Bytes::kSlab + i % 4 * 32),
          i != 0);
    }
    ptx::wgmma_commit();
  }
  __device__ __forceinline__ void issue_output() {
    const ptx::Descriptor v = v_ + static_cast<std::uint32_t>(v_ring_.stage * C::kStageBytes);
#pragma unroll
    for (std::int32_t page = 0; page < plan::kTilePages; ++page) {
      ptx::wgmma<typename C::Element, ptx::Major::kMnMajor>(
          state_.o, p_ + page * 4, v + static_cast<std::uint32_t>(page * C::Bytes::kPage), true);
    }
    ptx::wgmma_commit();
  }

  // Keys that do not count get -inf, before any of them can become a row's maximum. Bit b of word w
  // is key 32 * w + b.
  __device__ __forceinline__ void mask(uint4 masks) {
    const std::uint32_t words[plan::kMaskWordsPerTile] = {masks.x, masks.y, masks.z, masks.w};
#pragma unroll
    for (std::int32_t word = 0; word < plan::kMaskWordsPerTile; ++word) {
      const std::uint32_t mine = words[word] >> (threadIdx.x % 4 * 2);
#pragma unroll
      for (std::int32_t i = 0; i < 16; ++i) {
        const auto bit = 1u << (i / 4 * 8 + i % 2);
        s_[word * 16 + i] = (mine & bit) != 0 ? s_[word * 16 + i] : -INFINITY;
      }
    }
  }

  // Makes the maxima those of the rows up to this tile. Older sums and outputs shrink to match.
  __device__ __forceinline__ void raise_maxima() {
    float tops[2][kChains];
#pragma unroll
    for (std::int32_t i = 0; i < C::kScores; ++i) {
      float& top = tops[i / 2 % 2][i / 4 % kChains];
      top = i % 2 == 0 && i < 4 * kChains ? s_[i] : fmaxf(top, s_[i]);
    }
    float decay[2];
#pragma unroll
    for (std::int32_t h = 0; h < 2; ++h) {
      float top = fmaxf(fmaxf(tops[h][0], tops[h][1]), fmaxf(tops[h][2], tops[h][3]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      top = fmaxf(top, state_.max[h]);
      decay[h] = ptx::ex2(__fmul_rn(state_.max[h], params_.scale_log2) -
                          __fmul_rn(top, params_.scale_log2));
      state_.max[h] = top;
      state_.sum[h] *= decay[h];
    }
#pragma unroll
    for (std::int32_t i = 0; i < C::kOutputs; ++i) {
      state_.o[i] *= decay[i / 2 % 2];
    }
  }

  // Probabilities relative to the maxima in hand, and this lane's part of their row sums. They are
  // relative to the rounded product of maximum and scale, so that its rounding cancels.
  __device__ __forceinline__ void exponentials(float (&sums)[2]) {
    float shift[2];
    float parts[2][kChains] = {};
#pragma unroll
    for (std::int32_t h = 0; h < 2; ++h) {
      shift[h] = __fmul_rn(state_.max[h], params_.scale_log2);
    }
#pragma unroll
    for (std::int32_t i = 0; i < C::kScores / 2; ++i) {
      const std::int32_t h = i % 2;
      const float low = ptx::ex2(fmaf(s_[2 * i], params_.scale_log2, -shift[h]));
      const float high = ptx::ex2(fmaf(s_[2 * i + 1], params_.scale_log2, -shift[h]));
      parts[h][i / 2 % kChains] += low;
      parts[h][i / 2 % kChains] += high;
      p_[i] = ptx::pack<typename C::Element>(low, high);
    }
#pragma unroll
    for (std::int32_t h = 0; h < 2; ++h) {
      sums[h] = (parts[h][0] + parts[h][1]) + (parts[h][2] + parts[h][3]);
    }
  }
  __device__ __forceinline__ void add_sums(const float (&sums)[2]) {
    state_.sum[0] += sums[0];
    state_.sum[1] += sums[1];
  }

  typename C::Shared& shared_;
  const Params& params_;
  std::uint32_t group_;
  ptx::Descriptor k_, v_;  // of stage 0
  ItemReader items_;
  Ring k_ring_, v_ring_;
  std::uint32_t merge_parity_ = 0;
  bool k_ready_ = false;  // the stages of the next tile's K and of this one's V have landed
  bool v_ready_ = false;
  RowState<C> state_;
  float s_[C::kScores];
  std::uint32_t p_[C::kScores / 2];
  std::uint32_t q_[C::kQFragments * 4];
};

}  // namespace kpage::kernels::sm90::forward_kernel
