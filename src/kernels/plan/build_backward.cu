// The backward builder: edges into a bitmap of reverse lists (a warp a walk), packing (a warp a
// window of K/V blocks), places (one CTA), owners and their walks (a warp an owner), items (a CTA a
// head).
#include <cuda_runtime.h>

#include "kernels/common/check.h"
#include "kernels/plan/builder.h"
#include "kernels/plan/warp.cuh"
#include "plan/format.h"
#include "plan/packing.h"

namespace kpage::kernels {
namespace {

using namespace plan;

constexpr std::int32_t kWarps = 4;  // a CTA, where a warp works alone
constexpr std::int32_t kScanThreads = 1024;
constexpr std::int32_t kItemThreads = 256;
constexpr std::int32_t kItemChunk = 4096;  // a multiple of a warp

// --- Scratch --------------------------------------------------------------------------------

// Counts of a window while it is packed, first places once they are known.
struct Totals {
  std::int32_t owners;
  std::int32_t blocks;
  std::uint32_t entries;
};

struct Window {
  Totals totals;
  std::int32_t owner_count;
  WindowOwner owners[kPackWindow];
  std::int32_t entries[kPackWindow];  // of each owner
  std::int32_t block[kPackWindow];    // of each place in the window's list
};

struct Scratch {
  std::uint32_t* lists;      // [B * H, NK, words]: bit q: query block q attends to the K/V block
  std::uint32_t* unions;     // [B * H, windows, 16, words]: the same for owners
  Window* windows;           // [B * H, windows]
  std::int32_t* pages;       // [owners]: Q pages of each owner's walk
  std::int32_t* groups;      // [owners]
  std::int32_t* head_items;  // [B * H, 2]: items of each head on each route
  std::int32_t words;        // ceil(NQ / 32)
  std::int32_t window_count;
  std::int64_t zeroed_bytes;  // `lists` and `head_items` come first and start as zeros
  std::int64_t bytes;
};

Scratch place_scratch(const Shape& shape, std::byte* base) {
  Scratch s{};
  s.words = ceil_div(shape.q_blocks, kWarp);
  s.window_count = window_count(shape);
  const std::int64_t heads = batch_heads(shape);
  std::int64_t end = 0;
  const auto place = [&end, base](auto*& pointer, std::int64_t count) {
    using T = std::remove_reference_t<decltype(*pointer)>;
    pointer = reinterpret_cast<T*>(base + end);
    end = round_up<std::int64_t>(end + count * std::int64_t{sizeof(T)}, 128);
  };
  place(s.lists, heads * shape.kv_blocks * s.words);
  place(s.head_items, heads * 2);
  s.zeroed_bytes = end;
  place(s.unions, heads * s.window_count * kPackWindow * s.words);
  place(s.windows, heads * s.window_count);
  place(s.pages, owner_capacity(shape));
  place(s.groups, owner_capacity(shape));
  s.bytes = end;
  return s;
}

// --- Reverse lists --------------------------------------------------------------------------

__global__ __launch_bounds__(kWarps* kWarp) void scatter_kernel(ForwardView forward,
                                                                Scratch scratch) {
  const std::int64_t walk =
      std::int64_t{blockIdx.x} * kWarps + static_cast<std::int32_t>(threadIdx.x) / kWarp;
  if (walk >= walk_count(forward.shape)) {
    return;
  }
  const std::int64_t bh = walk / forward.shape.q_blocks;
  const std::int32_t q = static_cast<std::int32_t>(walk % forward.shape.q_blocks);
  std::uint32_t* lists = scratch.lists + bh * forward.shape.kv_blocks * scratch.words;
  const std::int32_t* entries = forward.walk_entries(walk);
  for (std::int32_t i = lane_id(); i < forward.walks[walk].entries; i += kWarp) {
    atomicOr(&lists[std::int64_t{entries[i]} * scratch.words + q / kWarp], 1u << (q % kWarp));
  }
}

// --- Packing --------------------------------------------------------------------------------

// The lists that pack_window() asks about; every lane gets the answer.
class WarpLists {
 public:
  __device__ WarpLists(const std::uint32_t* lists, std::uint32_t* unions, std::int32_t words,
                       const WindowBlock* blocks)
      : lists_(lists), unions_(unions), words_(words), blocks_(blocks) {}

  __device__ std::int32_t size(std::int32_t i) const {
    std::int32_t count = 0;
    for (std::int32_t w = lane_id(); w < words_; w += kWarp) {
      count += __popc(list(i)[w]);
    }
    return warp_sum(count);
  }
  __device__ std::int32_t added(std::int32_t owner, std::int32_t i) const {
    std::int32_t count = 0;
    for (std::int32_t w = lane_id(); w < words_; w += kWarp) {
      count += __popc(list(i)[w] & ~union_of(owner)[w]);
    }
    return warp_sum(count);
  }
  __device__ void open(std::int32_t owner, std::int32_t i) const {
    for (std::int32_t w = lane_id(); w < words_; w += kWarp) {
      union_of(owner)[w] = list(i)[w];
    }
  }
  __device__ void join(std::int32_t owner, std::int32_t i) const {
    for (std::int32_t w = lane_id(); w < words_; w += kWarp) {
      union_of(owner)[w] |= list(i)[w];
    }
  }
  __device__ std::int32_t union_size(std::int32_t owner) const {
    std::int32_t count = 0;
    for (std::int32_t w = lane_id(); w < words_; w += kWarp) {
      count += __popc(union_of(owner)[w]);
    }
    return warp_sum(count);
  }

 private:
  __device__ const std::uint32_t* list(std::int32_t i) const {
    return lists_ + std::int64_t{blocks_[i].block} * words_;
  }
  __device__ std::uint32_t* union_of(std::int32_t owner) const {
    return unions_ + std::int64_t{owner} * words_;
  }

  const std::uint32_t* lists_;  // of the head
  std::uint32_t* unions_;       // of the window
  std::int32_t words_;
  const WindowBlock* blocks_;
};

__global__ __launch_bounds__(kWarps* kWarp) void pack_kernel(ForwardView forward, Scratch scratch) {
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / kWarp;
  const std::int64_t number = std::int64_t{blockIdx.x} * kWarps + warp;
  if (number >= batch_heads(forward.shape) * scratch.window_count) {
    return;
  }
  const std::int64_t bh = number / scratch.window_count;
  // Every lane makes the same decisions, on its own copy.
  WindowBlock blocks[kPackWindow];
  WindowOwner owners[kPackWindow];
  const std::int32_t count =
      list_window(forward.kv_blocks(bh), forward.shape.kv_blocks,
                  static_cast<std::int32_t>(number % scratch.window_count), blocks);
  WarpLists lists(scratch.lists + bh * forward.shape.kv_blocks * scratch.words,
                  scratch.unions + number * kPackWindow * scratch.words, scratch.words, blocks);
  const std::int32_t owner_count = pack_window(blocks, count, lists, owners);
  Window& window = scratch.windows[number];
  std::uint32_t entries = 0;
  for (std::int32_t o = 0; o < owner_count; ++o) {
    const std::int32_t size = lists.union_size(o);
    entries += static_cast<std::uint32_t>(size);
    if (lane_id() == 0) {
      window.owners[o] = owners[o];
      window.entries[o] = size;
    }
  }
  if (lane_id() == 0) {
    for (std::int32_t i = 0; i < count; ++i) {
      window.block[i] = blocks[i].block;
    }
    window.owner_count = owner_count;
    window.totals = {owner_count, count, entries};
  }
}

// --- Places ---------------------------------------------------------------------------------

__device__ Totals operator+(const Totals& a, const Totals& b) {
  return {a.owners + b.owners, a.blocks + b.blocks, a.entries + b.entries};
}
__device__ Totals shift_up(const Totals& value, std::int32_t step) {
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

// --- Owners ---------------------------------------------------------------------------------

// Which slots of an owner query block q attends to.
__device__ std::uint32_t attended_slots(const Window& window, const WindowOwner& owner,
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
  __shared__ std::int32_t counters[kWarps][kQEntryClasses];
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / kWarp;
  const std::int64_t task = std::int64_t{blockIdx.x} * kWarps + warp;
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

  WarpSort sort(counters[warp], kQEntryClasses);
  const auto key_at = [&](std::int32_t word) {
    const std::int32_t q = word * kWarp + lane_id();
    return (list[word] >> lane_id() & 1u) != 0 ? q_entry_class(q_blocks[q].rows) : -1;
  };
  std::int32_t pages = 0;
  for (std::int32_t word = 0; word < scratch.words; ++word) {
    const std::int32_t key = key_at(word);
    pages += key >= 0 ? pages_of(q_blocks[word * kWarp + lane_id()].rows) : 0;
    sort.count(key);
  }
  pages = warp_sum(pages);
  sort.scan(0);
  for (std::int32_t word = 0; word < scratch.words; ++word) {
    const std::int32_t key = key_at(word);
    const std::int32_t place = sort.place(key);
    if (key >= 0) {
      const std::int32_t q = word * kWarp + lane_id();
      const std::uint32_t slots =
          attended_slots(window, packed, kv_blocks, lists, scratch.words, q);
      plan.q_entries[owner.entry_begin + static_cast<std::uint32_t>(place)] =
          make_q_entry(q, slots);
    }
  }
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

// --- Items ----------------------------------------------------------------------------------

constexpr std::int32_t kSplitOwner = -2;  // in place of a key: several groups, a key each

__device__ std::int32_t item_key(const Owner& owner, std::int32_t pages) {
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
__device__ HeadItems count_items(const Scratch& scratch, std::int64_t heads, std::int64_t bh) {
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

[[nodiscard]] unsigned ctas(std::int64_t warps) {
  return static_cast<unsigned>(ceil_div<std::int64_t>(warps, kWarps));
}

}  // namespace

std::int64_t backward_plan_scratch_bytes(const PlanShape& shape) {
  return place_scratch(shape, nullptr).bytes;
}

Status build_backward_plan(const PlanShape& shape, const std::byte* forward_blob, std::byte* blob,
                           std::byte* scratch_memory, Stream stream) {
  const ForwardView forward = ForwardView::at(shape, forward_blob);
  const MutableBackward plan = MutableBackward::at(shape, blob);
  const Scratch scratch = place_scratch(shape, scratch_memory);
  const std::int64_t windows = batch_heads(shape) * scratch.window_count;
  KPAGE_CUDA_TRY(
      cudaMemsetAsync(blob, 0, static_cast<std::size_t>(backward_sections(shape).bytes), stream));
  KPAGE_CUDA_TRY(
      cudaMemsetAsync(scratch_memory, 0, static_cast<std::size_t>(scratch.zeroed_bytes), stream));
  constexpr std::int32_t kThreads = kWarps * kWarp;
  if (windows > 0 && walk_count(shape) > 0) {
    scatter_kernel<<<ctas(walk_count(shape)), kThreads, 0, stream>>>(forward, scratch);
    KPAGE_CUDA_TRY(cudaGetLastError());
  }
  if (windows > 0) {
    pack_kernel<<<ctas(windows), kThreads, 0, stream>>>(forward, scratch);
    KPAGE_CUDA_TRY(cudaGetLastError());
  }
  places_kernel<<<1, kScanThreads, 0, stream>>>(plan, scratch);
  KPAGE_CUDA_TRY(cudaGetLastError());
  if (windows > 0) {
    owners_kernel<<<ctas(windows * kPackWindow), kThreads, 0, stream>>>(forward, plan, scratch);
    KPAGE_CUDA_TRY(cudaGetLastError());
    items_kernel<<<static_cast<unsigned>(batch_heads(shape)), kItemThreads, 0, stream>>>(
        forward, plan, scratch);
    KPAGE_CUDA_TRY(cudaGetLastError());
  }
  return {};
}

}  // namespace kpage::kernels
