// Items of work: a CTA a head.
#pragma once

#include "kernels/plan/scratch.cuh"

namespace kpage::kernels::plan_builder {

using namespace plan;

inline constexpr std::int32_t kItemThreads = 256;
inline constexpr std::int32_t kItemChunk = 4096;  // a multiple of a warp

inline constexpr std::int32_t kSplitOwner = -2;  // in place of a key: several groups, a key each

__device__ inline std::int32_t item_key(const Owner& owner, std::int32_t pages) {
  return (owner.slots == kOwnerSlots ? 0 : kItemBuckets) + item_bucket(pages);
}

// Where the items of a head go.
struct HeadItems {
  std::int32_t before8;  // of heads before it
  std::int32_t before4;
  std::int32_t mine8;
  std::int32_t all8;
  std::int32_t all4;
};
__device__ inline HeadItems count_items(const Scratch& scratch, std::int64_t heads,
                                        std::int64_t bh) {
  HeadItems c{};
  for (std::int64_t i = 0; i < heads; ++i) {
    const std::int32_t eight = scratch.head_items[i * 2];
    const std::int32_t four = scratch.head_items[i * 2 + 1];
    c.before8 += i < bh ? eight : 0;
    c.before4 += i < bh ? four : 0;
    c.mine8 += i == bh ? eight : 0;
    c.all8 += eight;
    c.all4 += four;
  }
  return c;
}

// Sorts the items of a head by route and length, a warp of owners at a time.
class ItemSorter {
 public:
  __device__ ItemSorter(const ForwardView& forward, const MutableBackward& plan,
                        const Scratch& scratch, const HeadItems& places, WarpSort& sort)
      : forward_(forward), plan_(plan), scratch_(scratch), places_(places), sort_(sort) {}

  // Takes the owners first + lane, of which each lane holds the key; -1 past the last.
  __device__ void take(std::int32_t first, std::int32_t key, bool placing) {
    if (__any_sync(kAllLanes, key == kSplitOwner)) {
      for (std::int32_t lane = 0; lane < kWarp; ++lane) {
        const std::int32_t one = __shfl_sync(kAllLanes, key, lane);
        if (one == kSplitOwner) {
          take_groups(first + lane, placing);
        } else {
          take_whole(first + lane_id(), lane_id() == lane ? one : -1, placing);
        }
      }
      return;
    }
    take_whole(first + lane_id(), key, placing);
  }

 private:
  __device__ void take_whole(std::int32_t owner, std::int32_t key, bool placing) {
    if (!placing) {
      sort_.count(key);
      return;
    }
    const std::int32_t place = sort_.place(key);
    if (key >= 0) {
      const Owner& o = plan_.owners[owner];
      write(place, key, {owner, o.entry_begin, o.entries, scratch_.pages[owner], 0, 1, {}});
    }
  }

  __device__ void take_groups(std::int32_t owner, bool placing) {
    const Owner& o = plan_.owners[owner];
    const Extent* q_blocks = forward_.q_blocks(o.batch_head);
    std::int32_t done = 0;
    for (std::int32_t number = 0; done < o.entries; ++number) {
      const std::uint32_t begin = o.entry_begin + static_cast<std::uint32_t>(done);
      const Group group = cut_group(o.entries - done, [&](std::int32_t i) {
        const std::uint32_t entry = plan_.q_entries[begin + static_cast<std::uint32_t>(i)];
        return pages_of(q_blocks[entry_block(entry)].rows);
      });
      const std::int32_t key = lane_id() == 0 ? item_key(o, group.pages) : -1;
      if (!placing) {
        sort_.count(key);
      } else {
        const std::int32_t place = sort_.place(key);
        if (key >= 0) {
          write(place, key,
                {owner, begin, group.entries, group.pages, number, scratch_.groups[owner], {}});
        }
      }
      done += group.entries;
    }
  }

  __device__ void write(std::int32_t place, std::int32_t key, const OwnerItem& item) {
    const std::int32_t at = key < kItemBuckets
                                ? places_.before8 + place
                                : places_.all8 + places_.before4 + place - places_.mine8;
    plan_.items[at] = item;
  }

  const ForwardView& forward_;
  const MutableBackward& plan_;
  const Scratch& scratch_;
  const HeadItems& places_;
  WarpSort& sort_;
};

__global__ __launch_bounds__(kItemThreads) void items_kernel(ForwardView forward,
                                                             MutableBackward plan,
                                                             Scratch scratch) {
  __shared__ std::int32_t counters[2 * kItemBuckets];
  __shared__ std::int32_t keys[kItemChunk];
  const std::int64_t bh = blockIdx.x;
  const std::int64_t heads = batch_heads(plan.shape);
  const HeadItems places = count_items(scratch, heads, bh);
  const std::int32_t first = scratch.windows[bh * scratch.window_count].totals.owners;
  const std::int32_t end = bh + 1 < heads
                               ? scratch.windows[(bh + 1) * scratch.window_count].totals.owners
                               : plan.header->owners;
  WarpSort sort(counters, 2 * kItemBuckets);
  ItemSorter sorter(forward, plan, scratch, places, sort);
  for (std::int32_t pass = 0; pass < 2; ++pass) {
    for (std::int32_t base = first; base < end; base += kItemChunk) {
      const std::int32_t length = min(kItemChunk, round_up(end - base, kWarp));
      __syncthreads();
      for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < length; i += kItemThreads) {
        const std::int32_t owner = base + i;
        keys[i] = owner >= end                ? -1
                  : scratch.groups[owner] > 1 ? kSplitOwner
                                              : item_key(plan.owners[owner], scratch.pages[owner]);
      }
      __syncthreads();
      for (std::int32_t i = 0; threadIdx.x < kWarp && i < length; i += kWarp) {
        sorter.take(base + i, keys[i + lane_id()], pass == 1);
      }
    }
    if (pass == 0 && threadIdx.x < kWarp) {
      sort.scan(0);
    }
  }
  if (bh == 0 && threadIdx.x == 0) {
    plan.header->items8 = places.all8;
    plan.header->items4 = places.all4;
  }
}

}  // namespace kpage::kernels::plan_builder
