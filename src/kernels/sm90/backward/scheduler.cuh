// The scheduler warp: takes owners by ticket and turns owners and walks into records, ahead of the
// warps that load and compute. It alone reads the plan.
#pragma once

#include <cstdint>

#include "kernels/common/warp.cuh"
#include "kernels/ptx/barrier.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/sweep.cuh"
#include "plan/format.h"

namespace kpage::kernels::sm90::backward_kernel {

// A row before the tensor: boxes there are filled with zeros, and nothing is read.
inline constexpr std::int32_t kNowhere = -1024;

// Runs of pages that follow each other, a run a lane. `start` counts up with the lane; lanes behind
// the last run hold no rows.
struct Runs {
  std::int32_t start;  // position of its first page
  std::int32_t row;
  std::int32_t rows;
};

struct Slot {
  std::int32_t source;  // the lane that holds its run
  std::int32_t in_run;  // page of the run
  std::int32_t row;
  std::int32_t rows;
  std::uint8_t box[2];  // see TileRecord
  bool used;
};

// Where a slot stands in a run of slots that count and have the same key, which follow each other.
struct InRun {
  std::int32_t at;
  std::int32_t length;  // 0: the slot does not count
};
template <int kSlots>
__device__ __forceinline__ InRun in_run(std::int32_t key, bool counts) {
  const std::uint32_t same =
      __match_any_sync(kAllLanes, key) & __ballot_sync(kAllLanes, counts) & ((1u << kSlots) - 1);
  return {lane_index() % kSlots - (__ffs(same) - 1), counts ? __popc(same) : 0};
}

// The box of a group of which `rows` rows count.
__device__ __forceinline__ std::uint8_t group_box(std::int32_t rows) {
  return rows > 0 ? static_cast<std::uint8_t>(kRunMaps - 1 + min_of(rows, kGroupRows)) : kEmptyBox;
}

// What falls into slot `lane % kSlots` of the tile whose first page is number `first` of `total`:
// the clip() of plan/format.h, turned round, since each lane asks for its slot and not for its run.
template <int kSlots>
__device__ __forceinline__ Slot cut(const Runs& runs, std::int32_t first, std::int32_t total) {
  const std::int32_t own = lane_index() % kSlots;
  Slot slot;
  slot.source = 0;
#pragma unroll
  for (std::int32_t i = 0; i < kSlots; ++i) {
    const std::int32_t source = __popc(__ballot_sync(kAllLanes, runs.start <= first + i)) - 1;
    if (own == i) {
      slot.source = source;
    }
  }
  slot.used = first + own < total;
  slot.in_run = first + own - __shfl_sync(kAllLanes, runs.start, slot.source);
  const std::int32_t skipped = slot.in_run * plan::kPageRows;
  slot.row = __shfl_sync(kAllLanes, runs.row, slot.source) + skipped;
  slot.rows = min_of(__shfl_sync(kAllLanes, runs.rows, slot.source) - skipped, plan::kPageRows);
  if (!slot.used) {
    slot.source = kWarpThreads;
    slot.row = kNowhere;
    slot.rows = plan::kPageRows;
  }
  const bool whole = slot.rows == plan::kPageRows;
  const InRun run = in_run<kSlots>(slot.source, whole);
  if (whole) {
    // Boxes of powers of two, large ones first.
    const std::int32_t log2 = 31 - __clz(run.length - run.at);
    slot.box[0] = (run.at & ((2 << log2) - 1)) == 0 ? static_cast<std::uint8_t>(log2) : kNoBox;
    slot.box[1] = kNoBox;
  } else {
    slot.box[0] = group_box(slot.rows);
    slot.box[1] = group_box(slot.rows - kGroupRows);
  }
  return slot;
}

// The sum over the lanes before this one.
__device__ __forceinline__ std::int32_t sum_before(std::int32_t value) {
  std::int32_t sum = value;
#pragma unroll
  for (std::int32_t distance = 1; distance < kWarpThreads; distance *= 2) {
    const std::int32_t below = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
    if (lane_index() >= distance) {
      sum += below;
    }
  }
  return sum - value;
}

template <class C>
class Scheduler {
 public:
  using Shared = typename C::SharedStorage;

  __device__ __forceinline__ Scheduler(Shared& shared, const MainParams& params)
      : shared_(shared), params_(params), sweep_(params) {
    take_ticket();
  }

  // All owners of kSlots slots.
  template <int kSlots>
  __device__ __forceinline__ void run() {
    while (ticket_ < item_end<kSlots>()) {
      // An owner's walk is not split: the item of its first group stands for all.
      const plan::OwnerItem& item = params_.backward.items[ticket_];
      if (item.group == 0) {
        const plan::Owner& owner = params_.backward.owners[item.owner];
        const std::int32_t pages = item.groups == 1 ? item.pages : walk_pages(owner);
        write_owner<kSlots>(owner, ceil_div(walk_end<kSlots>(pages), kTilePages));
        walk<kSlots>(owner, pages, kJoins ? sweep_.join(owner, ticket_) : 0);
      }
      take_ticket();
    }
    ptx::wait(shared_.owner_record_empty[owner_at_.slot()], owner_at_.parity() ^ 1);
    if (lane_index() == 0) {
      shared_.owners[owner_at_.slot()].tiles = kNoMoreOwners;
      shared_.owners[owner_at_.slot()].parity = 1;  // the next route starts with 0
    }
    ptx::arrive(shared_.owner_record_full[owner_at_.slot()]);
    owner_at_.advance();
  }

 private:
  // With dQ in fixed point walks begin at their first entry, so that dK and dV, sums in the order
  // of the walk, are the same in every run.
  static constexpr bool kJoins = !C::kFixedPoint;

  __device__ __forceinline__ void take_ticket() {
    std::uint32_t ticket = 0;
    if (lane_index() == 0) {
      ticket = atomicAdd(params_.ticket, 1u);
    }
    ticket_ = __shfl_sync(kAllLanes, ticket, 0);
  }

  template <int kSlots>
  __device__ __forceinline__ std::uint32_t item_end() const {
    const plan::BackwardHeader& header = *params_.backward.header;
    return static_cast<std::uint32_t>(kSlots == plan::kOwnerSlots ? header.items8
                                                                  : header.items8 + header.items4);
  }

  // Pages of a walk with the unused slots of its last tiles. Even an empty walk has tiles, for its
  // owner's gradients are zero and have to be written.
  template <int kSlots>
  static __device__ __forceinline__ std::int32_t walk_end(std::int32_t pages) {
    return round_up(max_of(pages, 1), Route<kSlots>::kStep * kTilePages);
  }

  // Q pages of a walk of several groups.
  __device__ __forceinline__ std::int32_t walk_pages(const plan::Owner& owner) const {
    const std::uint32_t* entries = params_.backward.q_entries + owner.entry_begin;
    const plan::Extent* blocks = params_.forward.q_blocks(owner.batch_head);
    std::int32_t pages = 0;
    for (std::int32_t i = lane_index(); i < owner.entries; i += kWarpThreads) {
      pages += plan::q_run_of(blocks[plan::entry_block(entries[i])]).pages;
    }
    return static_cast<std::int32_t>(
        __reduce_add_sync(kAllLanes, static_cast<std::uint32_t>(pages)));
  }

  template <int kSlots>
  __device__ __forceinline__ void write_owner(const plan::Owner& owner, std::int32_t tiles) {
    Runs runs{0, 0, 0};
    if (lane_index() < owner.blocks) {
      const std::int32_t block = params_.backward.owner_blocks[owner.block_begin + lane_index()];
      const plan::Extent& extent = params_.forward.kv_blocks(owner.batch_head)[block];
      runs.row = extent.row;
      runs.rows = extent.rows;
    }
    runs.start = sum_before(plan::pages_of(runs.rows));
    const Slot slot = cut<kSlots>(runs, 0, owner.pages);
    ptx::wait(shared_.owner_record_empty[owner_at_.slot()], owner_at_.parity() ^ 1);
    OwnerRecord& record = shared_.owners[owner_at_.slot()];
    if (lane_index() < kSlots) {
      record.box[2 * lane_index()] = slot.box[0];
      record.box[2 * lane_index() + 1] = slot.box[1];
      record.row[lane_index()] = slot.row;
      record.valid[lane_index()] = static_cast<std::uint8_t>(slot.used ? slot.rows : 0);
    }
    if (lane_index() == 0) {
      record.tiles = tiles;
      record.attended = owner.entries > 0 ? 1 : 0;
      record.batch_head = owner.batch_head;
      record.parity = shared_.owners[owner_at_.slot() ^ 1].parity ^ 1;
    }
    __syncwarp();
    ptx::arrive(shared_.owner_record_full[owner_at_.slot()]);
    owner_at_.advance();
  }

  // Cuts the walk into tiles, from an entry on and round to it again. A lane holds an entry; when a
  // tile reaches past the last lane's, the window moves on to the entry at which the tile begins.
  // (Few variables live in this loop: a producer has 24 registers.)
  template <int kSlots>
  __device__ __forceinline__ void walk(const plan::Owner& owner, std::int32_t pages,
                                       std::int32_t first_entry) {
    const std::uint32_t* entries = params_.backward.q_entries + owner.entry_begin + first_entry;
    const auto round = [this, &owner](const std::uint32_t* entry) {
      const std::uint32_t* end = params_.backward.q_entries + owner.entry_begin + owner.entries;
      return !kJoins || entry < end ? entry : entry - owner.entries;
    };
    std::int32_t left = owner.entries;  // from the window's first on
    const plan::Extent* const blocks = params_.forward.q_blocks(owner.batch_head);
    const std::int32_t first_page = owner.batch_head * params_.page_capacity;
    std::int32_t end = 0;  // page at which the window ends
    Runs runs{0, 0, 0};
    std::uint32_t entry = 0;
    std::int32_t page = 0;  // of the entry, in the accumulator
    const auto read_window = [&](std::int32_t start) {
      runs.row = 0;
      runs.rows = 0;
      if (lane_index() < left) {
        entry = *round(entries + lane_index());
        const plan::Extent extent = blocks[plan::entry_block(entry)];
        runs.row = extent.row;
        runs.rows = extent.rows;
        page = first_page + extent.page;
      }
      runs.start = start + sum_before(plan::pages_of(runs.rows));
      end = __shfl_sync(kAllLanes, runs.start + plan::pages_of(runs.rows), kWarpThreads - 1);
    };
    read_window(0);
    for (std::int32_t first = 0; first < walk_end<kSlots>(pages); first += kTilePages) {
      if (first + kTilePages > end && end < pages) {
        std::int32_t passed = kWarpThreads;
        std::int32_t start = end;
        if (first < end) {
          passed = __popc(__ballot_sync(kAllLanes, runs.start <= first)) - 1;
          start = __shfl_sync(kAllLanes, runs.start, passed);
        }
        entries = round(entries + passed);
        left -= passed;
        read_window(start);
      }
      const Slot slot = cut<kTilePages>(runs, first, pages);
      const std::int32_t source = slot.source % kWarpThreads;
      const std::int32_t slot_page = __shfl_sync(kAllLanes, page, source) + slot.in_run;
      const std::uint32_t slot_entry = __shfl_sync(kAllLanes, entry, source);
      // Pages of rows past the end of the tensor, if a plan has any, may be more than there is room
      // for.
      const bool kept = slot.used && slot_page < first_page + params_.page_capacity;
      const InRun run = in_run<kTilePages>(slot.source, kept);
      const std::uint32_t used = __ballot_sync(kAllLanes, kept) & ((1u << kTilePages) - 1);
      ptx::wait(shared_.tile_record_empty[tile_at_.slot()], tile_at_.parity() ^ 1);
      if (lane_index() < kTilePages) {
        TileRecord& record = shared_.tiles[tile_at_.slot()];
        record.box[2 * lane_index()] = slot.box[0];
        record.box[2 * lane_index() + 1] = slot.box[1];
        record.row[lane_index()] = slot.row;
        record.page[lane_index()] = kept ? slot_page : kNoPage;
        record.statistics[lane_index()] = static_cast<std::uint8_t>(run.at == 0 ? run.length : 0);
        if (lane_index() == 0) {
          record.used = __popc(used);
        }
        reinterpret_cast<std::uint8_t*>(&record.slots)[lane_index()] =
            static_cast<std::uint8_t>(slot.used ? plan::entry_slots(slot_entry) : plan::kAllValid);
      }
      __syncwarp();
      if (lane_index() == 0) {
        if (kJoins && slot.used) {
          sweep_.tell(plan::entry_block(slot_entry));
        }
      }
      ptx::arrive(shared_.tile_record_full[tile_at_.slot()]);
      tile_at_.advance();
    }
  }

  Shared& shared_;
  const MainParams& params_;
  Sweep sweep_;
  std::uint32_t ticket_;
  RecordPosition<kOwnerRecords> owner_at_;
  RecordPosition<kTileRecords> tile_at_;
};

}  // namespace kpage::kernels::sm90::backward_kernel
