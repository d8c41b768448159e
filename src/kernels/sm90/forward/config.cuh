// Every fact of the forward kernel that is fixed at compile time. docs/forward.md draws it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/page_loads.cuh"
#include "kernels/common/tensor_map.h"
#include "kernels/ptx/barrier.cuh"
#include "plan/format.h"

namespace kpage::kernels::sm90::forward_kernel {

inline constexpr std::int32_t kWarpThreads = 32;
inline constexpr std::int32_t kGroupThreads = 128;  // of a warpgroup
inline constexpr std::int32_t kGroupWarps = kGroupThreads / kWarpThreads;
inline constexpr std::int32_t kConsumers = 2;  // warpgroups
inline constexpr std::int32_t kConsumerThreads = kConsumers * kGroupThreads;
inline constexpr std::int32_t kConsumerWarps = kConsumers * kGroupWarps;
inline constexpr std::int32_t kThreads = kGroupThreads + kConsumerThreads;
inline constexpr std::int32_t kGroupQRows = 64;  // query rows of a warpgroup
inline constexpr std::int32_t kKeys = plan::kTileColumns;

// 65,536 registers an SM: 128 threads x 56 + 256 x 224.
inline constexpr int kProducerRegisters = 56;
inline constexpr int kConsumerRegisters = 224;

// Warps of the first warpgroup. The others are consumers.
enum class Role : std::int32_t { kKeyLoads, kValueLoads, kItems, kPadding };

// Hardware barriers.
inline constexpr std::uint32_t kTurnBarrier = 1;      // and 2: whose turn it is to issue products
inline constexpr std::uint32_t kHandOverBarrier = 3;  // warps of the second are past their products

// Items that may be known ahead of the slowest reader.
inline constexpr std::int32_t kItemStages = 4;
// The readers of an item: all lanes of the loading warps, the padding warp and the consumers.
inline constexpr std::uint32_t kItemReaders = 3 * kWarpThreads + kConsumerThreads;

// A row's probabilities are relative to the maximum of its first tile until a lane's sum over a
// tile reaches this; then the maximum is taken anew. So the search for maxima, the shrinking of
// outputs and the wait for both drop out of almost every tile.
inline constexpr float kMaxSum = 1024.0f;

// Rows before the first and past the last block of a head are cleared in pieces of this many.
inline constexpr std::int32_t kPaddingRows = 4096;

// One query block with its walk.
struct alignas(16) Item {
  plan::Walk walk;
  std::uint32_t number;  // of the walk
  std::int32_t q_row;
  std::int32_t q_rows;
  std::int32_t gap_end;  // of the block's extent
  std::int32_t batch;
  std::int32_t head;
  std::int32_t kv_head;
  std::int32_t tiles;  // kNoItem: there is none any more
};
inline constexpr std::int32_t kNoItem = -1;

template <class ElementT, std::int32_t kHeadDimT>
struct Config {
  using Element = ElementT;
  static constexpr std::int32_t kHeadDim = kHeadDimT;
  using Bytes = PageBytes<kHeadDim>;
  static constexpr std::int32_t kStageBytes = plan::kTilePages * Bytes::kPage;
  static constexpr std::int32_t kStages = 384 / kHeadDim;  // of K, and as many of V
  static constexpr std::int32_t kQBytes = kStageBytes;

  static constexpr std::int32_t kScores = kKeys / 2;  // accumulators a thread
  static constexpr std::int32_t kOutputs = kHeadDim / 2;
  static constexpr std::int32_t kQFragments = kHeadDim / 16;  // of four registers

  struct Shared {
    alignas(1024) std::byte q[kQBytes];
    alignas(1024) std::byte k[kStages][kStageBytes];
    alignas(1024) std::byte v[kStages][kStageBytes];
    ptx::Barrier q_full, q_empty;
    ptx::Barrier k_full[kStages], k_empty[kStages];
    ptx::Barrier v_full[kStages], v_empty[kStages];
    ptx::Barrier v_landed[kStages];  // V tiles whose invalid rows must be cleared before v_full
    ptx::Barrier item_full[kItemStages], item_empty[kItemStages];
    Item items[kItemStages];
    ptx::Barrier merge_full, merge_empty;
    float merge_max[kGroupQRows], merge_sum[kGroupQRows];
  };
  static constexpr std::size_t kSharedBytes = sizeof(Shared);
  static_assert(kSharedBytes <= 227 * 1024, "more shared memory than a CTA gets");
  static_assert(kStageBytes == kGroupQRows * kHeadDim * static_cast<std::int32_t>(sizeof(float)),
                "a stage takes the fp32 output of a warpgroup when halves of a walk are merged");
};

}  // namespace kpage::kernels::sm90::forward_kernel
