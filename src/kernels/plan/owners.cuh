// Where the owners of each window go (one CTA), and the owners and their walks (a warp an owner).
#pragma once

#include "kernels/plan/scratch.cuh"

namespace kpage::kernels::plan_builder {

using namespace plan;

inline constexpr std::int32_t kScanThreads = 1024;

__device__ inline Totals operator+(const Totals& a, const Totals& b) {
  return {a.owners + b.owners, a.blocks + b.blocks, a.entries + b.entries};
}
__device__ inline Totals shift_up(const Totals& value, std::int32_t step) {
  const auto lanes = static_cast<unsigned>(step);
  return {__shfl_up_sync(kAllLanes, value.owners, lanes),
          __shfl_up_sync(kAllLanes, value.blocks, lanes),
          __shfl_up_sync(kAllLanes, value.entries, lanes)};
}

// Turns the totals of all windows into first places, and writes the sums to the header.
__global__ __launch_bounds__(kScanThreads) void places_kernel(MutableBackward plan,
                                                              Scratch scratch) {
  __shared__ Totals warp_sums[kWarp];
  const std::int64_t count = batch_heads(plan.shape) * scratch.window_count;
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / kWarp;
  Totals carried{0, 0, 0};
  for (std::int64_t base = 0; base < count; base += kScanThreads) {
    const std::int64_t i = base + threadIdx.x;
    const Totals mine = i < count ? scratch.windows[i].totals : Totals{0, 0, 0};
    Totals sum = mine;
    for (std::int32_t step = 1; step < kWarp; step *= 2) {
      const Totals below = shift_up(sum, step);
      sum = lane_id() >= step ? sum + below : sum;
    }
    __syncthreads();
    if (lane_id() == kWarp - 1) {
      warp_sums[warp] = sum;
    }
    __syncthreads();
    Totals before = carried;
    for (std::int32_t w = 0; w < kWarp; ++w) {
      before = w < warp ? before + warp_sums[w] : before;
      carried = carried + warp_sums[w];
    }
    if (i < count) {
      const Totals end = before + sum;
      scratch.windows[i].totals = {end.owners - mine.owners, end.blocks - mine.blocks,
                                   end.entries - mine.entries};
    }
  }
  if (threadIdx.x == 0) {
    BackwardHeader& header = *plan.header;
    header.magic = kBackwardMagic;
    header.version = kPlanVersion;
    header.shape = plan.shape;
    header.owners = carried.owners;
    header.owner_blocks = carried.blocks;
    header.q_entries = carried.entries;
  }
}

// Which slots of an owner query block q attends to.
__device__ inline std::uint32_t attended_slots(const Window& window, const WindowOwner& owner,
                                               const Extent* kv_blocks, const std::uint32_t* lists,
                                               std::int32_t words, std::int32_t q) {
  std::uint32_t slots = kAllValid;
  std::int32_t slot = 0;
  for (std::int32_t i = 0; i < owner.blocks; ++i) {
    const std::int32_t block = window.block[owner.member[i]];
    const std::int32_t pages = pages_of(kv_blocks[block].rows);
    const std::uint32_t word = lists[std::int64_t{block} * words + q / kWarp];
    if ((word >> (q % kWarp) & 1u) == 0) {
      slots &= ~(((1u << pages) - 1u) << slot);
    }
    slot += pages;
  }
  return slots;
}

__global__ __launch_bounds__(kWarps* kWarp) void owners_kernel(ForwardView forward,
                                                               MutableBackward plan,
                                                               Scratch scratch) {
  const std::int64_t task =
      std::int64_t{blockIdx.x} * kWarps + static_cast<std::int32_t>(threadIdx.x) / kWarp;
  const std::int64_t number = task / kPackWindow;
  const std::int32_t o = static_cast<std::int32_t>(task % kPackWindow);
  if (number >= batch_heads(forward.shape) * scratch.window_count ||
      o >= scratch.windows[number].owner_count) {
    return;
  }
  const Window& window = scratch.windows[number];
  const WindowOwner& packed = window.owners[o];
  const std::int64_t bh = number / scratch.window_count;
  const Extent* kv_blocks = forward.kv_blocks(bh);
  const Extent* q_blocks = forward.q_blocks(bh);
  const std::uint32_t* lists = scratch.lists + bh * forward.shape.kv_blocks * scratch.words;
  const std::uint32_t* list = scratch.unions + (number * kPackWindow + o) * scratch.words;

  Owner owner{};
  owner.batch_head = static_cast<std::int32_t>(bh);
  owner.slots = packed.slots;
  owner.blocks = packed.blocks;
  owner.pages = packed.pages;
  owner.block_begin = window.totals.blocks;
  owner.entry_begin = window.totals.entries;
  owner.entries = window.entries[o];
  for (std::int32_t i = 0; i < o; ++i) {
    owner.block_begin += window.owners[i].blocks;
    owner.entry_begin += static_cast<std::uint32_t>(window.entries[i]);
  }
  const bool full = kv_blocks[window.block[packed.member[0]]].rows == kBlockRows;
  owner.flags = owner.blocks > 1 ? kOwnerMixed : (full ? kOwnerFull : 0);
  const std::int32_t at = window.totals.owners + o;
  if (lane_id() == 0) {
    plan.owners[at] = owner;
  }
  if (lane_id() < owner.blocks) {
    plan.owner_blocks[owner.block_begin + lane_id()] = window.block[packed.member[lane_id()]];
  }

  std::int32_t pages = 0;
  std::uint32_t entry = owner.entry_begin;
  for (std::int32_t word = 0; word < scratch.words; ++word) {
    const std::uint32_t bits = list[word];
    if ((bits >> lane_id() & 1u) != 0) {
      const std::int32_t q = word * kWarp + lane_id();
      const std::uint32_t slots =
          attended_slots(window, packed, kv_blocks, lists, scratch.words, q);
      const auto before = static_cast<std::uint32_t>(__popc(bits & ((1u << lane_id()) - 1u)));
      plan.q_entries[entry + before] = make_q_entry(q, slots);
      pages += pages_of(q_blocks[q].rows);
    }
    entry += static_cast<std::uint32_t>(__popc(bits));
  }
  pages = warp_sum(pages);
  __syncwarp();

  if (lane_id() == 0) {
    std::int32_t groups = 1;
    if (pages > kGroupPages) {
      groups = 0;
      for (std::int32_t done = 0; done < owner.entries; ++groups) {
        const std::uint32_t begin = owner.entry_begin + static_cast<std::uint32_t>(done);
        done += cut_group(owner.entries - done, [&](std::int32_t i) {
                  const std::uint32_t entry = plan.q_entries[begin + static_cast<std::uint32_t>(i)];
                  return pages_of(q_blocks[entry_block(entry)].rows);
                }).entries;
      }
    }
    scratch.pages[at] = pages;
    scratch.groups[at] = groups;
    atomicAdd(&scratch.head_items[bh * 2 + (owner.slots == kOwnerSlots ? 0 : 1)], groups);
  }
}

}  // namespace kpage::kernels::plan_builder
