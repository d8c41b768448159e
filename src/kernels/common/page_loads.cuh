// Loads of pages into a stage, whoever issues them: a run of full pages, or a tail page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/tensor_map.h"
#include "kernels/ptx/barrier.cuh"
#include "kernels/ptx/tensor_load.cuh"
#include "plan/format.h"

namespace kpage::kernels {

inline constexpr std::int32_t kGroupRows = 8;

// Bytes of pages of D columns in shared memory.
template <std::int32_t kHeadDim>
struct PageBytes {
  static constexpr std::int32_t kSlabs = kHeadDim / kSlabColumns;
  static constexpr std::int32_t kSlab = kGroupRows * kSlabColumns * 2;
  static constexpr std::int32_t kGroup = kSlabs * kSlab;
  static constexpr std::int32_t kPage = plan::kPageRows / kGroupRows * kGroup;
};

// Full pages, one after the other in memory, a box for each power of two in their number.
template <std::int32_t kHeadDim>
__device__ __forceinline__ void load_full_pages(std::byte* page, const PageMaps& maps,
                                                std::int32_t slab, std::int32_t row,
                                                std::int32_t pages, ptx::Barrier& barrier) {
#pragma unroll
  for (std::int32_t i = kRunMaps - 1; i >= 0; --i) {
    if ((pages >> i) & 1) {
      ptx::load_tensor<5>(page, maps.run[i], {0, 0, slab, 0, row}, barrier);
      page += (1 << i) * PageBytes<kHeadDim>::kPage;
      row += (1 << i) * plan::kPageRows;
    }
  }
}

// A page of fewer than 16 valid rows: the 8-row groups that hold any. Nothing is read past the end
// of the tensor, which has `tensor_rows`.
template <std::int32_t kHeadDim>
__device__ __forceinline__ void load_tail_page(std::byte* page, const PageMaps& maps,
                                               std::int32_t slab, std::int32_t row,
                                               std::int32_t rows, std::int32_t tensor_rows,
                                               ptx::Barrier& barrier) {
  if (rows > kGroupRows && row <= tensor_rows - plan::kPageRows) {
    ptx::load_tensor<5>(page, maps.run[0], {0, 0, slab, 0, row}, barrier);
    return;
  }
  ptx::load_tensor<3>(page, maps.group, {0, row, slab}, barrier);
  if (rows > kGroupRows) {
    ptx::load_tensor<3>(page + PageBytes<kHeadDim>::kGroup, maps.group, {0, row + kGroupRows, slab},
                        barrier);
  }
}
template <std::int32_t kHeadDim>
__device__ __forceinline__ std::int32_t tail_page_bytes(std::int32_t rows) {
  return rows > kGroupRows ? PageBytes<kHeadDim>::kPage : PageBytes<kHeadDim>::kGroup;
}

}  // namespace kpage::kernels
