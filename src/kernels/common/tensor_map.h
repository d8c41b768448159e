// Tensor maps of pages: how the copy engine finds rows of a strided tensor.
//
// In shared memory a page of 16 rows is two 8-row groups, each of D / 64 slabs, each of 8 rows x 64
// columns with 128-byte swizzle. Groups follow one another across pages, so a stage that pages fill
// one by one looks like one that a whole block fills:
//
//   [8-row group][slab of 64 columns][8 rows][64 columns]      group: D / 64 * 1,024 bytes
//
// Batch element and head go through the slab coordinate: slab_of(b, h) is the first slab of that
// head, in units of 64 elements from the base.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kpage/status.h"
#include "kpage/types.h"

namespace kpage::kernels {

inline constexpr std::int32_t kSlabColumns = 64;
inline constexpr std::int32_t kRunMaps = 4;    // boxes of 1, 2, 4 and 8 pages
inline constexpr std::int32_t kGroupMaps = 8;  // boxes of a group, of which 1 to 8 rows count

// Where heads and batch elements begin, in slabs from the tensor's base.
struct SlabStrides {
  std::int32_t batch = 0;
  std::int32_t head = 0;
};

// Maps of one tensor [batch, heads, rows, D].
//   run[i]: 2^i pages from any row on, coordinates {0, 0, slab, 0, row}. Rows must all lie within
//           the tensor: such a box reads past its end otherwise.
//   group:  8 rows from any row on, coordinates {0, row, slab}. Rows past the end come as zeros.
struct PageMaps {
  CUtensorMap run[kRunMaps];
  CUtensorMap group;
};

// Maps of one tensor for a group of which only the first rows count: rows[i] has i + 1 of them, and
// zeros for the rest of the group, coordinates as those of runs. With these a partial page is
// loaded without the rows that follow it. As with runs, the rows that count must lie within the
// tensor.
struct GroupMaps {
  CUtensorMap rows[kGroupMaps];
};

// What page maps ask of a tensor: 16-bit elements, D a multiple of 64, base aligned to 16 bytes,
// row pitch a multiple of 8 elements, batch and head strides multiples of 64. Strides of dimensions
// of size 1 or 0 do not count. `name` is the argument that messages name.
[[nodiscard]] Status check_pageable(const TensorRef& tensor, const char* name);
[[nodiscard]] SlabStrides slab_strides(const TensorRef& tensor);
// Fills maps in host memory; the kernel takes them by value (__grid_constant__). The tensor is
// checked first.
[[nodiscard]] Status encode_page_maps(const TensorRef& tensor, const char* name, PageMaps& maps);
[[nodiscard]] Status encode_group_maps(const TensorRef& tensor, const char* name, GroupMaps& maps);

// A map of one tensor whose boxes are `rows` rows, at most 256, of all slabs, coordinates
// {0, row, slab}. In shared memory a box is [slab][rows][64 columns] with the same swizzle. Rows
// past the tensor come as zeros. The tensor is checked first, and must have elements.
[[nodiscard]] Status encode_box_map(const TensorRef& tensor, const char* name, std::int32_t rows,
                                    CUtensorMap& map);

}  // namespace kpage::kernels
