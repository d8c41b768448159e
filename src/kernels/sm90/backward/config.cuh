// Every compile-time fact of the backward kernels: tiles, shared memory, barriers, registers.
//
// A CTA has one producer warpgroup and two consumer warpgroups. It owns up to 128 K/V rows (an
// owner of eight page slots) or 64 (of four) and walks the query pages that attend to them, four
// pages, 64 rows, a tile. docs/backward.md draws the cycle.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/page_loads.cuh"
#include "plan/format.h"

namespace kpage::kernels::sm90::backward_kernel {

inline constexpr int kTilePages = 4;  // of query rows
inline constexpr int kTileRows = kTilePages * plan::kPageRows;
inline constexpr int kOwnerRows = plan::kOwnerSlots * plan::kPageRows;

inline constexpr int kWarpThreads = 32;
inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kGroupWarps = kGroupThreads / kWarpThreads;
inline constexpr int kConsumerGroups = 2;
inline constexpr int kConsumerWarps = kConsumerGroups * kGroupWarps;
inline constexpr int kThreads = (1 + kConsumerGroups) * kGroupThreads;
// 168 a thread at launch; the producers give theirs to the consumers.
inline constexpr int kProducerRegisters = 24;
inline constexpr int kConsumerRegisters = 240;

// Warps of the producer warpgroup.
inline constexpr int kSchedulerWarp = 0;  // tickets, owners and walks: turns them into records
inline constexpr int kQueryWarp = 1;      // Q and the row statistics
inline constexpr int kGradientWarp = 2;   // dO
inline constexpr int kOwnerWarp = 3;      // K and V

// Row statistics of a page in global and in shared memory: -LSE / scale of its 16 rows, then
// -delta. Rows that are not valid hold the infinity that makes P zero, and 0, which makes dS zero.
inline constexpr int kPageStatistics = 2 * plan::kPageRows;

// Volatile, or what follows from it is computed once, before the loops, and takes registers that
// warps do not have.
__device__ __forceinline__ int lane_index() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Hardware barriers.
inline constexpr std::uint32_t kConsumerBarrier = 1;  // both consumer warpgroups
inline constexpr std::uint32_t kGroupBarrier = 2;     // one of them: and 3
inline constexpr std::uint32_t kRouteBarrier = 15;    // all threads, between the routes

// What differs between owners of eight and of four slots. With eight, both warpgroups share every
// tile, 64 K/V rows each. With four, they take alternate tiles; a stage then always serves the same
// warpgroup, which needs an even number of stages. They have one more, in the rows of K
// and V that they leave free.
template <int kSlots>
struct Route {
  static_assert(kSlots == plan::kOwnerSlots || kSlots == plan::kSmallOwnerSlots);
  static constexpr bool kShared = kSlots == plan::kOwnerSlots;
  static constexpr int kStages = kShared ? 3 : 4;
  static constexpr int kStep = kShared ? 1 : 2;  // tiles from one of a warpgroup to its next
  static constexpr int kReaders =
      kShared ? kConsumerWarps : kGroupWarps;  // warps that read a stage
};
inline constexpr int kMaxStages = 4;

// Barriers of one route. A CTA changes its route once, and starts the second with fresh barriers.
struct RouteBarriers {
  std::uint64_t query_full[kMaxStages], query_empty[kMaxStages];
  std::uint64_t gradient_full[kMaxStages], gradient_empty[kMaxStages];
  std::uint64_t owner_full, owner_empty;
};

// A box to load is a number into OperandMaps, or one of these: nothing, or a group of zeros.
inline constexpr std::uint8_t kNoBox = 0xff;
inline constexpr std::uint8_t kEmptyBox = 0xfe;

// One owner, from the scheduler to all other warps.
struct OwnerRecord {
  std::int32_t tiles;  // kNoMoreOwners: the route is done
  std::int32_t batch_head;
  std::int32_t attended;  // 0: nobody selects it, so what its rows hold must not matter
  std::uint32_t parity;   // of its phase of owner_full: a register less than if each warp counted
  std::int32_t row[plan::kOwnerSlots];
  std::uint8_t box[2 * plan::kOwnerSlots];  // as in TileRecord
  std::uint8_t valid[plan::kOwnerSlots];    // rows of each slot; 0 where it is not used
};
inline constexpr std::int32_t kNoMoreOwners = -1;
inline constexpr int kOwnerRecords = 2;

// One tile of a walk, from the scheduler to the warps that load Q and dO.
struct TileRecord {
  // Two boxes for each slot, to its two groups. Whole pages of one run are loaded together, in
  // boxes at the first of them; a partial page by its groups. Unused slots are whole pages outside
  // the tensor.
  std::int32_t row[kTilePages];
  std::uint8_t box[2 * kTilePages];
  std::int32_t page[kTilePages];        // where statistics and dQ lie, or kNoPage
  std::uint8_t statistics[kTilePages];  // pages of one run, at the first: loaded together
  std::uint32_t slots;                  // a byte a page: the owner's slots that it attends to
  std::int32_t used;                    // slots
};
inline constexpr std::int32_t kNoPage = -1;
inline constexpr int kTileRecords = 4;

// A position in a ring of records, a power of two of them, in one register.
template <int kRecords>
class RecordPosition {
 public:
  static_assert((kRecords & (kRecords - 1)) == 0);
  __device__ __forceinline__ std::uint32_t slot() const { return count_ % kRecords; }
  __device__ __forceinline__ std::uint32_t parity() const { return count_ / kRecords & 1; }
  __device__ __forceinline__ void advance() { ++count_; }

 private:
  std::uint32_t count_ = 0;
};

// What consumers need to know of a stage, besides the rows in it.
struct StageInfo {
  std::int32_t page[kTilePages];
  std::uint32_t slots;
};

template <class Element_, int kHeadDim_, bool kFixedPoint_ = false>
struct Config {
  using Element = Element_;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr bool kFixedPoint = kFixedPoint_;  // dQ: see bounds.cuh
  static constexpr int kSlabs = PageBytes<kHeadDim>::kSlabs;
  static constexpr int kHalf = kHeadDim / 2;  // columns of dQ that a warpgroup computes at a time

  static constexpr int kSlabBytes = PageBytes<kHeadDim>::kSlab;
  static constexpr int kGroupBytes = PageBytes<kHeadDim>::kGroup;
  static constexpr int kPageBytes = PageBytes<kHeadDim>::kPage;
  static constexpr int kTileBytes = kTilePages * kPageBytes;
  static constexpr int kOwnerBytes = plan::kOwnerSlots * kPageBytes;
  // dQ of a page in the accumulator: two halves of its columns, each in the order of mma fragments.
  static constexpr int kPageGradients = plan::kPageRows * kHeadDim;
  static constexpr int kWarpGradients = plan::kPageRows * kHalf;

  struct SharedStorage {
    // The rows of K that an owner of four slots leaves free are one more stage before those of Q,
    // and those of V before dO.
    alignas(1024) std::byte k[kOwnerBytes];
    std::byte q[3][kTileBytes];
    std::byte v[kOwnerBytes];
    std::byte d_o[3][kTileBytes];
    // dS^T, double-buffered: [128 K/V rows][64 query rows], swizzled. With four slots, [2 tiles].
    std::byte d_s[2][kOwnerRows * kTileRows * 2];
    float d_q[kConsumerWarps][kWarpGradients];  // on their way to the accumulator
    alignas(128) float statistics[kMaxStages][kTilePages][kPageStatistics];
    StageInfo info[kMaxStages];
    alignas(16) TileRecord tiles[kTileRecords];
    OwnerRecord owners[kOwnerRecords];
    alignas(8) RouteBarriers route[2];
    std::uint64_t owner_record_full[kOwnerRecords], owner_record_empty[kOwnerRecords];
    std::uint64_t tile_record_full[kTileRecords], tile_record_empty[kTileRecords];
    std::uint64_t d_s_full[2];
  };
  static_assert(offsetof(SharedStorage, q) == kOwnerBytes && kOwnerBytes == 2 * kTileBytes &&
                offsetof(SharedStorage, d_o) == offsetof(SharedStorage, v) + kOwnerBytes);
  // Offset of the first stage of a route.
  template <class Route>
  static constexpr std::size_t kFirstQuery =
      offsetof(SharedStorage, q) - (Route::kShared ? 0 : kTileBytes);
  template <class Route>
  static constexpr std::size_t kFirstGradient =
      offsetof(SharedStorage, d_o) - (Route::kShared ? 0 : kTileBytes);
  static constexpr int kSharedBytes = static_cast<int>(sizeof(SharedStorage));
  static_assert(kSharedBytes <= 227 * 1024);
};

// Dynamic shared memory starts here where a kernel has no static shared memory (the first kilobyte
// belongs to the system). As a constant it keeps addresses and descriptors out of registers: as
// variables, they made the consumers spill.
inline constexpr std::uint32_t kSharedBase = 1024;

}  // namespace kpage::kernels::sm90::backward_kernel
