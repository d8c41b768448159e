// What is wrong with the input, told in the header of the plan: the first fault of all.
#pragma once

#include <cstdint>

#include "kpage/layout.h"

#include "plan/format.h"

namespace kpage::kernels::plan_builder {

using namespace plan;

// The first fault is the one with the greatest key: lower arguments and positions make greater
// keys, and the zero of a fresh header means none. It waits in header->position for finish().
inline constexpr std::int32_t kPositionBits = 56;

__device__ inline void report(const MutableForward& plan, Argument argument, Fault fault,
                              std::int64_t position) {
  const auto rank = 7u - static_cast<std::uint64_t>(argument);
  const std::uint64_t before =
      (std::uint64_t{1} << kPositionBits) - 1 - static_cast<std::uint64_t>(position);
  const std::uint64_t key =
      (rank << (kPositionBits + 2)) | (before << 2) | static_cast<std::uint64_t>(fault);
  atomicMax(reinterpret_cast<unsigned long long*>(&plan.header->position), key);
}

__device__ inline std::int64_t value_at(const LayoutView& layout, Argument argument,
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

__device__ inline void finish_header(const LayoutView& layout, const MutableForward& plan) {
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

}  // namespace kpage::kernels::plan_builder
