// What choosing blocks takes: the arguments that api checks and every backend receives. All arrays
// are contiguous and of one device; outputs share no memory with inputs.
#pragma once

#include <cstdint>

#include "kpage/export.h"
#include "kpage/types.h"

namespace KPAGE_EXPORT kpage {

struct TopKArgs {
  const void* scores = nullptr;  // [rows, columns]
  DType dtype = DType::kFloat32;
  Device device;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t keep = 0;          // at most columns
  std::int32_t* index = nullptr;  // [rows, keep], out
  Stream stream = nullptr;        // of CUDA memory
  std::int32_t threads = 0;       // of the CPU backend; 0: as many as there are cores
};

struct ListsArgs {
  const std::uint8_t* map = nullptr;  // [rows, columns]: not 0 for a member
  Device device;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t max_list = 0;
  std::int32_t* index = nullptr;  // [rows, max_list], out: ascending; 0 past the members
  std::int32_t* nums = nullptr;   // [rows], out: members, also those that had no room
  Stream stream = nullptr;
  std::int32_t threads = 0;
};

struct BlockSumsArgs {
  TensorRef x;                            // [B, H, S, D], of any dtype
  const std::int32_t* sizes = nullptr;    // [blocks], or [B, H, blocks]; blocks of any size
  const std::int32_t* offsets = nullptr;  // the same; places outside of [0, S) count as zeros
  bool per_head = false;                  // whether sizes and offsets have leading dimensions
  std::int64_t blocks = 0;
  // [B, H, S]: the row of x at each place; rows outside of [0, S) count as zeros. Null: places are
  // rows.
  const std::int32_t* row_of_place = nullptr;
  float* sums = nullptr;  // [B, H, blocks, D], out
  Stream stream = nullptr;
  std::int32_t threads = 0;
};

struct NearestArgs {
  TensorRef x;                          // [B, H, S, D], rows aligned to 16 bytes
  const void* centroids = nullptr;      // [B, H, clusters, D], dtype and alignment of x
  std::int64_t clusters = 0;            // at least 1
  const float* half_squares = nullptr;  // [B, H, clusters]: |centroid|^2 / 2
  std::int32_t* labels = nullptr;       // [B, H, S], out
  Stream stream = nullptr;
};

}  // namespace kpage
