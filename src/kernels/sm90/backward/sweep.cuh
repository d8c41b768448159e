// Where an owner's walk begins: where the other CTAs of its head are. As long as they are at about
// the same query blocks, they find each other's Q, dO and dQ in L2; if each began at its owner's
// first entry whenever it is free, they would be anywhere. So one CTA of a head says how far it is,
// and owners that start later are walked from there to the end, and then from the first entry on.
#pragma once

#include <cstdint>

#include <cuda/atomic>

#include "kernels/common/warp.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"
#include "plan/format.h"

namespace kpage::kernels::sm90::backward_kernel {

class Sweep {
 public:
  explicit __device__ __forceinline__ Sweep(const MainParams& params) : params_(params) {}

  // The first entry of the owner of item `ticket` that the others have yet to come to; 0 where they
  // are past all. All lanes.
  __device__ __forceinline__ std::int32_t join(const plan::Owner& owner, std::uint32_t ticket) {
    const plan::BackwardView& backward = params_.backward;
    const std::int32_t sweep = sweep_of(owner);
    if (ticket == 0 || sweep_of(backward.owners[backward.items[ticket - 1].owner]) != sweep) {
      led_ = sweep;
    } else if (led_ != sweep) {
      led_ = kNone;
    }
    const std::int32_t block = position(sweep).load(cuda::memory_order_relaxed);
    // The entries before `first` are before the block, those from `end` on are not.
    std::int32_t first = 0;
    std::int32_t end = owner.entries;
    while (first < end) {
      const std::int32_t step = ceil_div(end - first, kWarpThreads);
      const std::int32_t probe = first + lane_index() * step;
      const bool before =
          probe < end &&
          plan::entry_block(
              backward.q_entries[owner.entry_begin + static_cast<std::uint32_t>(probe)]) < block;
      const std::int32_t probes = __popc(__ballot_sync(kAllLanes, before));
      end = min_of(end, first + probes * step);
      if (probes > 0) {
        first += (probes - 1) * step + 1;
      }
    }
    return first < owner.entries ? first : 0;
  }

  // Says that the owner is at `block`, if this CTA is the one to say so. One lane.
  __device__ __forceinline__ void tell(std::int32_t block) const {
    if (led_ != kNone) {
      position(led_).store(block, cuda::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::int32_t kNone = -1;

  static __device__ __forceinline__ std::int32_t sweep_of(const plan::Owner& owner) {
    return 2 * owner.batch_head + (owner.slots == plan::kOwnerSlots ? 0 : 1);
  }

  __device__ __forceinline__ cuda::atomic_ref<std::int32_t, cuda::thread_scope_device> position(
      std::int32_t sweep) const {
    return cuda::atomic_ref<std::int32_t, cuda::thread_scope_device>(params_.sweeps[sweep]);
  }

  const MainParams& params_;
  std::int32_t led_ = kNone;  // the sweep whose first owner this CTA took
};

}  // namespace kpage::kernels::sm90::backward_kernel
