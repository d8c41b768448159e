// Walks: a warp a query block.
#pragma once

#include "kernels/plan/faults.cuh"
#include "kernels/plan/warp.cuh"

namespace kpage::kernels::plan_builder {

using namespace plan;

inline constexpr std::int32_t kWalkWarps = 8;
// Blocks up to here are checked for duplicates in a list: a bit each in shared memory, a warp.
inline constexpr std::int32_t kDuplicateBlocks = 32 * 1024;

// Shared memory of a warp: the sort's counters, then a bit for each K/V block.
__device__ inline std::int32_t seen_words(const Shape& shape) {
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

}  // namespace kpage::kernels::plan_builder
