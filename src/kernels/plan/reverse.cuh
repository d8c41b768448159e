// Reverse lists as a bitmap (a warp a walk), and which blocks share an owner (a warp a window).
#pragma once

#include "kernels/plan/scratch.cuh"

namespace kpage::kernels::plan_builder {

using namespace plan;

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

}  // namespace kpage::kernels::plan_builder
