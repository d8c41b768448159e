// The forward builder: extents (a CTA a scope), walks (a warp a query block), queue (a CTA a head).
#include <cuda_runtime.h>

#include "kernels/common/check.h"
#include "kernels/plan/builder.h"
#include "kernels/plan/warp.cuh"
#include "plan/format.h"

namespace kpage::kernels {
namespace {

using namespace plan;

constexpr std::int32_t kExtentThreads = 1024;
constexpr std::int32_t kWalkWarps = 8;
constexpr std::int32_t kQueueThreads = 512;
constexpr std::int32_t kQueueChunk = 4096;  // a multiple of a warp
// Blocks up to here are checked for duplicates in a list: a bit each in shared memory, a warp.
constexpr std::int32_t kDuplicateBlocks = 32 * 1024;

// --- Faults ---------------------------------------------------------------------------------

// The first fault is the one with the greatest key: lower arguments and positions make greater
// keys, and the zero of a fresh header means none. It waits in header->position for finish().
constexpr std::int32_t kPositionBits = 56;

__device__ void report(const MutableForward& plan, Argument argument, Fault fault,
                       std::int64_t position) {
  const auto rank = 7u - static_cast<std::uint64_t>(argument);
  const std::uint64_t before =
      (std::uint64_t{1} << kPositionBits) - 1 - static_cast<std::uint64_t>(position);
  const std::uint64_t key =
      (rank << (kPositionBits + 2)) | (before << 2) | static_cast<std::uint64_t>(fault);
  atomicMax(reinterpret_cast<unsigned long long*>(&plan.header->position), key);
}

__device__ std::int64_t value_at(const LayoutView& layout, Argument argument,
                                 std::int64_t position) {
  switch (argument) {
    case Argument::kQBlockSizes:
      return layout.q.sizes[position];
    case Argument::kQBlockOffsets:
      return layout.q.offsets != nullptr ? layout.q.offsets[position] : 0;
    case Argument::kKvBlockSizes:
      return layout.kv.sizes[position];
    case Argument::kKvBlockOffsets:
      return layout.kv.offsets != nullptr ? layout.kv.offsets[position] : 0;
    case Argument::kBlockNums:
      return layout.q2k_block_nums[position];
    case Argument::kBlockIndex:
      return layout.q2k_block_index[position];
    case Argument::kNone:
      break;
  }
  return 0;
}

__device__ void finish_header(const LayoutView& layout, const MutableForward& plan) {
  ForwardHeader& header = *plan.header;
  header.magic = kForwardMagic;
  header.version = kPlanVersion;
  header.shape = plan.shape;
  const auto key = static_cast<std::uint64_t>(header.position);
  if (key == 0) {
    return;
  }
  header.argument =
      static_cast<Argument>(7u - static_cast<std::uint32_t>(key >> (kPositionBits + 2)));
  header.fault = static_cast<Fault>(key & 3u);
  header.position =
      static_cast<std::int64_t>((std::uint64_t{1} << kPositionBits) - 1 -
                                ((key >> 2) & ((std::uint64_t{1} << kPositionBits) - 1)));
  header.value = value_at(layout, header.argument, header.position);
}

// --- Extents --------------------------------------------------------------------------------

// Sum over the threads before this one, and over all, of a CTA of kExtentThreads.
struct Scanned {
  std::int32_t before;
  std::int32_t all;
};
__device__ Scanned cta_scan(std::int32_t value) {
  __shared__ std::int32_t warp_totals[kWarp];
  std::int32_t sum = value;
  for (std::int32_t step = 1; step < kWarp; step *= 2) {
    const std::int32_t below = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(step));
    sum += lane_id() >= step ? below : 0;
  }
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / kWarp;
  __syncthreads();
  if (lane_id() == kWarp - 1) {
    warp_totals[warp] = sum;
  }
  __syncthreads();
  std::int32_t before = 0;
  std::int32_t all = 0;
  for (std::int32_t w = 0; w < kExtentThreads / kWarp; ++w) {
    before += w < warp ? warp_totals[w] : 0;
    all += warp_totals[w];
  }
  return {before + sum - value, all};
}

struct Side {
  PartitionView view;
  Extent* extents;
  ScopeInfo* infos;
  Argument sizes;
  Argument offsets;
};

// Rows of a block as the plan takes them: 0 where size or offset is out of range.
__device__ Extent read_block(const MutableForward& plan, const Side& side, std::int64_t at,
                             std::int32_t block) {
  std::int32_t rows = side.view.sizes[at];
  if (rows < 0 || rows > kBlockRows) {
    report(plan, side.sizes, Fault::kOutOfRange, at);
    rows = 0;
  }
  // In 64 bits: a default offset of a far block may not fit.
  const std::int64_t row = side.view.offsets != nullptr ? std::int64_t{side.view.offsets[at]}
                                                        : std::int64_t{block} * kBlockRows;
  if (rows > 0 && (row < 0 || row > kMaxRows - rows)) {
    report(plan, side.view.offsets != nullptr ? side.offsets : side.sizes, Fault::kOutOfRange, at);
    rows = 0;
  }
  return {rows > 0 ? static_cast<std::int32_t>(row) : 0, rows, 0, 0};
}

// Block `next` of a scope follows block b; none does where it is the number of blocks.
__device__ void note_next(const MutableForward& plan, const Side& side, std::int64_t scope_begin,
                          std::int32_t b, std::int32_t next, Extent* extents) {
  const bool last = next == side.view.blocks;
  extents[b].gap_end = last ? kToTheEnd : extents[next].row;
  if (!last && extents[next].row >= extents[b].row &&
      extents[next].row < extents[b].row + extents[b].rows) {
    report(plan, side.view.offsets != nullptr ? side.offsets : side.sizes, Fault::kOverlap,
           scope_begin + next);
  }
}

// One CTA writes the extents of one scope.
__device__ void write_scope(const MutableForward& plan, const Side& side, std::int64_t scope) {
  __shared__ std::int32_t first_row;
  __shared__ std::int32_t end_row;
  __shared__ std::int32_t ascending;
  const std::int32_t count = side.view.blocks;
  const std::int32_t thread = static_cast<std::int32_t>(threadIdx.x);
  Extent* extents = side.extents + scope * count;
  if (thread == 0) {
    first_row = kToTheEnd;
    end_row = 0;
    ascending = 1;
  }
  std::int32_t pages = 0;
  std::int32_t valid_rows = 0;
  for (std::int32_t base = 0; base < count; base += kExtentThreads) {
    const std::int32_t b = base + thread;
    Extent e{};
    if (b < count) {
      e = read_block(plan, side, scope * count + b, b);
    }
    const Scanned place = cta_scan(pages_of(e.rows));
    valid_rows += cta_scan(e.rows).all;
    e.page = pages + place.before;
    pages += place.all;
    if (b < count) {
      extents[b] = e;
    }
    if (e.rows > 0) {
      atomicMin(&first_row, e.row);
      atomicMax(&end_row, e.row + e.rows);
    }
  }
  __syncthreads();

  // The next block in row order. Where rows ascend it is the next non-empty one.
  for (std::int32_t b = thread; b < count; b += kExtentThreads) {
    if (extents[b].rows == 0) {
      continue;
    }
    std::int32_t next = b + 1;
    while (next < count && extents[next].rows == 0) {
      ++next;
    }
    if (next < count && extents[next].row < extents[b].row) {
      ascending = 0;
    }
    note_next(plan, side, scope * count, b, next, extents);
  }
  __syncthreads();
  for (std::int32_t b = thread; b < count && ascending == 0; b += kExtentThreads) {
    const Extent e = extents[b];
    if (e.rows == 0) {
      continue;
    }
    std::int32_t next = count;
    for (std::int32_t other = 0; other < count; ++other) {
      const Extent o = extents[other];
      const bool after = o.row > e.row || (o.row == e.row && other > b);
      if (o.rows > 0 && after && (next == count || o.row < extents[next].row)) {
        next = other;
      }
    }
    note_next(plan, side, scope * count, b, next, extents);
  }
  if (thread == 0) {
    side.infos[scope] = {first_row, end_row, pages, valid_rows};
  }
}

__global__ __launch_bounds__(kExtentThreads) void extents_kernel(LayoutView layout,
                                                                 MutableForward plan) {
  const std::int64_t q_scopes = scopes(plan.shape.q_scope, plan.shape);
  if (blockIdx.x < q_scopes) {
    write_scope(
        plan,
        {layout.q, plan.q_extents, plan.q_scopes, Argument::kQBlockSizes, Argument::kQBlockOffsets},
        blockIdx.x);
  } else {
    write_scope(plan,
                {layout.kv, plan.kv_extents, plan.kv_scopes, Argument::kKvBlockSizes,
                 Argument::kKvBlockOffsets},
                blockIdx.x - q_scopes);
  }
}

// --- Walks ----------------------------------------------------------------------------------

// Shared memory of a warp: the sort's counters, then a bit for each K/V block.
__device__ std::int32_t seen_words(const Shape& shape) {
  return shape.kv_blocks <= kDuplicateBlocks ? ceil_div(shape.kv_blocks, kWarp) : 0;
}

class WalkWriter {
 public:
  __device__ WalkWriter(const LayoutView& layout, const MutableForward& plan, std::int64_t walk,
                        std::int32_t* shared)
      : layout_(layout),
        plan_(plan),
        walk_(walk),
        blocks_(plan.kv_blocks(walk / plan.shape.q_blocks)),
        list_(layout.q2k_block_index + walk * plan.shape.max_list),
        sort_(shared, kEntryClasses),
        seen_(reinterpret_cast<std::uint32_t*>(shared + kEntryClasses)) {}

  __device__ void write() {
    const std::int32_t q = static_cast<std::int32_t>(walk_ % plan_.shape.q_blocks);
    const bool empty = plan_.q_blocks(walk_ / plan_.shape.q_blocks)[q].rows == 0;
    const std::int32_t length = list_length();
    Walk walk{};
    if (!empty) {
      count_entries(length, walk);
      place_entries(length);
    } else {
      check_ids(length);
    }
    for (std::int32_t i = walk.entries + lane_id(); i < plan_.shape.max_list; i += kWarp) {
      plan_.walk_entries(walk_)[i] = 0;
    }
    __syncwarp();
    write_masks(walk);
    if (lane_id() == 0) {
      plan_.walks[walk_] = walk;
    }
  }

 private:
  __device__ std::int32_t list_length() {
    const std::int32_t nums = layout_.q2k_block_nums[walk_];
    if (nums < 0 || nums > plan_.shape.max_list) {
      if (lane_id() == 0) {
        report(plan_, Argument::kBlockNums, Fault::kOutOfRange, walk_);
      }
      return min(max(nums, 0), plan_.shape.max_list);
    }
    return nums;
  }

  // The id at place i of the list; -1 past its end, or where it is out of range.
  __device__ std::int32_t id_at(std::int32_t i, std::int32_t length) {
    if (i >= length) {
      return -1;
    }
    const std::int32_t id = list_[i];
    if (id < 0 || id >= plan_.shape.kv_blocks) {
      report(plan_, Argument::kBlockIndex, Fault::kOutOfRange, walk_ * plan_.shape.max_list + i);
      return -1;
    }
    return id;
  }

  __device__ void clear_seen() {
    for (std::int32_t w = lane_id(); w < seen_words(plan_.shape); w += kWarp) {
      seen_[w] = 0;
    }
    __syncwarp();
  }
  // Whether place i is the first of its id in the list; tells of it where it is not.
  __device__ bool first_of_its_id(std::int32_t i, std::int32_t id) {
    if (id < 0 || seen_words(plan_.shape) == 0) {
      return id >= 0;
    }
    const std::uint32_t bit = 1u << (id % kWarp);
    if ((atomicOr(&seen_[id / kWarp], bit) & bit) == 0) {
      return true;
    }
    report(plan_, Argument::kBlockIndex, Fault::kDuplicate, walk_ * plan_.shape.max_list + i);
    return false;
  }

  // The sort's key of place i: the class of its block, or -1.
  __device__ std::int32_t key_at(std::int32_t i, std::int32_t length, std::int32_t& id) {
    id = id_at(i, length);
    if (!first_of_its_id(i, id) || blocks_[id].rows == 0) {
      return -1;
    }
    return entry_class(blocks_[id].rows);
  }

  __device__ void check_ids(std::int32_t length) {
    clear_seen();
    for (std::int32_t base = 0; base < length; base += kWarp) {
      std::int32_t id = 0;
      key_at(base + lane_id(), length, id);
    }
  }

  __device__ void count_entries(std::int32_t length, Walk& walk) {
    clear_seen();
    std::int32_t entries = 0;
    std::int32_t runs = 0;
    std::int32_t tails = 0;
    std::int32_t full_pages = 0;
    for (std::int32_t base = 0; base < length; base += kWarp) {
      std::int32_t id = 0;
      const std::int32_t key = key_at(base + lane_id(), length, id);
      if (key >= 0) {
        const std::int32_t rows = blocks_[id].rows;
        ++entries;
        runs += full_pages_of(rows) > 0 ? 1 : 0;
        tails += tail_rows_of(rows) > 0 ? 1 : 0;
        full_pages += full_pages_of(rows);
      }
      sort_.count(key);
    }
    walk = {warp_sum(entries), warp_sum(runs), warp_sum(tails), warp_sum(full_pages)};
  }

  __device__ void place_entries(std::int32_t length) {
    sort_.scan(0);
    clear_seen();
    for (std::int32_t base = 0; base < length; base += kWarp) {
      std::int32_t id = 0;
      const std::int32_t key = key_at(base + lane_id(), length, id);
      const std::int32_t at = sort_.place(key);
      if (key >= 0) {
        plan_.walk_entries(walk_)[at] = id;
      }
    }
  }

  __device__ void write_masks(const Walk& walk) {
    const std::int32_t* entries = plan_.walk_entries(walk_);
    const auto block_at = [&](std::int32_t i) { return blocks_[entries[i]]; };
    const std::int32_t words = mask_words(walk);
    for (std::int32_t word = lane_id(); word < mask_words_per_walk(plan_.shape); word += kWarp) {
      plan_.walk_masks(walk_)[word] = word < words ? mask_word(walk, word, block_at) : 0u;
    }
  }

  const LayoutView& layout_;
  const MutableForward& plan_;
  std::int64_t walk_;
  const Extent* blocks_;
  const std::int32_t* list_;
  WarpSort sort_;
  std::uint32_t* seen_;
};

__global__ __launch_bounds__(kWalkWarps* kWarp) void walks_kernel(LayoutView layout,
                                                                  MutableForward plan) {
  extern __shared__ std::int32_t shared[];
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / kWarp;
  const std::int64_t walk = std::int64_t{blockIdx.x} * kWalkWarps + warp;
  if (walk < walk_count(plan.shape)) {
    WalkWriter(layout, plan, walk, shared + warp * (kEntryClasses + seen_words(plan.shape)))
        .write();
  }
}

// --- Queue ----------------------------------------------------------------------------------

// Key of a walk within its head: route, then length; -1 for a block without rows.
__device__ std::int32_t queue_key(const MutableForward& plan, std::int64_t batch_head,
                                  std::int32_t q) {
  if (q >= plan.shape.q_blocks) {
    return -1;
  }
  const std::int32_t rows = plan.q_blocks(batch_head)[q].rows;
  if (rows == 0) {
    return -1;
  }
  const Walk& walk = plan.walks[batch_head * plan.shape.q_blocks + q];
  return (takes_q64(rows) ? kLengthBuckets : 0) + length_bucket(walk_tiles(walk));
}

// Query blocks on each route, over the heads [first_head, end_head); known to all of a CTA.
struct RouteCounts {
  std::int32_t q128;
  std::int32_t q64;
};
__device__ RouteCounts count_routes(const MutableForward& plan, std::int64_t first_head,
                                    std::int64_t end_head) {
  __shared__ RouteCounts counts;
  __syncthreads();
  if (threadIdx.x == 0) {
    counts = {0, 0};
  }
  __syncthreads();
  RouteCounts mine{0, 0};
  for (std::int64_t bh = first_head; bh < end_head; ++bh) {
    const Extent* blocks = plan.q_blocks(bh);
    for (std::int32_t q = static_cast<std::int32_t>(threadIdx.x); q < plan.shape.q_blocks;
         q += kQueueThreads) {
      const std::int32_t rows = blocks[q].rows;
      mine.q128 += rows > 0 && !takes_q64(rows) ? 1 : 0;
      mine.q64 += rows > 0 && takes_q64(rows) ? 1 : 0;
    }
  }
  mine = {warp_sum(mine.q128), warp_sum(mine.q64)};
  if (lane_id() == 0) {
    atomicAdd(&counts.q128, mine.q128);
    atomicAdd(&counts.q64, mine.q64);
  }
  __syncthreads();
  return counts;
}
// Over the heads [0, end). A shared partition is counted once.
__device__ RouteCounts count_heads(const MutableForward& plan, std::int64_t end) {
  if (plan.shape.q_scope == PartitionScope::kShared) {
    const RouteCounts one = count_routes(plan, 0, 1);
    return {one.q128 * static_cast<std::int32_t>(end), one.q64 * static_cast<std::int32_t>(end)};
  }
  return count_routes(plan, 0, end);
}

// One CTA a head: all threads find keys, a chunk at a time, and the first warp sorts them.
__global__ __launch_bounds__(kQueueThreads) void queue_kernel(LayoutView layout,
                                                              MutableForward plan) {
  __shared__ std::int32_t counters[2 * kLengthBuckets];
  __shared__ std::int32_t keys[kQueueChunk];
  const std::int64_t bh = blockIdx.x;
  const RouteCounts all = count_heads(plan, batch_heads(plan.shape));
  const RouteCounts before = count_heads(plan, bh);
  const RouteCounts mine = count_routes(plan, bh, bh + 1);
  const bool sorts = threadIdx.x < kWarp;
  WarpSort sort(counters, 2 * kLengthBuckets);
  for (std::int32_t pass = 0; pass < 2; ++pass) {
    for (std::int32_t base = 0; base < plan.shape.q_blocks; base += kQueueChunk) {
      const std::int32_t length = min(kQueueChunk, round_up(plan.shape.q_blocks - base, kWarp));
      __syncthreads();
      for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < length;
           i += kQueueThreads) {
        keys[i] = queue_key(plan, bh, base + i);
      }
      __syncthreads();
      for (std::int32_t i = lane_id(); sorts && i < length; i += kWarp) {
        if (pass == 0) {
          sort.count(keys[i]);
          continue;
        }
        const std::int32_t place = sort.place(keys[i]);
        if (keys[i] >= 0) {
          const std::int32_t at = keys[i] < kLengthBuckets
                                      ? before.q128 + place
                                      : all.q128 + before.q64 + place - mine.q128;
          plan.queue[at] = static_cast<std::uint32_t>(bh * plan.shape.q_blocks + base + i);
        }
      }
    }
    if (pass == 0 && sorts) {
      sort.scan(0);
    }
  }
  if (bh == 0 && threadIdx.x == 0) {
    plan.header->q128 = all.q128;
    plan.header->q64 = all.q64;
    finish_header(layout, plan);
  }
}

}  // namespace

Status build_forward_plan(const LayoutView& layout, std::byte* blob, Stream stream) {
  const Shape shape{layout.batch,    layout.heads,   layout.q.blocks, layout.kv.blocks,
                    layout.max_list, layout.q.scope, layout.kv.scope};
  const MutableForward plan = MutableForward::at(shape, blob);
  const std::int64_t scope_total = scopes(shape.q_scope, shape) + scopes(shape.kv_scope, shape);
  KPAGE_CUDA_TRY(
      cudaMemsetAsync(blob, 0, static_cast<std::size_t>(forward_sections(shape).bytes), stream));
  extents_kernel<<<static_cast<unsigned>(scope_total), kExtentThreads, 0, stream>>>(layout, plan);
  KPAGE_CUDA_TRY(cudaGetLastError());
  if (walk_count(shape) > 0) {
    const std::int32_t seen =
        shape.kv_blocks <= kDuplicateBlocks ? ceil_div(shape.kv_blocks, kWarp) : 0;
    const std::size_t shared =
        sizeof(std::int32_t) * kWalkWarps * static_cast<std::size_t>(kEntryClasses + seen);
    const std::int64_t ctas = ceil_div<std::int64_t>(walk_count(shape), kWalkWarps);
    walks_kernel<<<static_cast<unsigned>(ctas), kWalkWarps * kWarp, shared, stream>>>(layout, plan);
    KPAGE_CUDA_TRY(cudaGetLastError());
  }
  queue_kernel<<<static_cast<unsigned>(batch_heads(shape)), kQueueThreads, 0, stream>>>(layout,
                                                                                        plan);
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
