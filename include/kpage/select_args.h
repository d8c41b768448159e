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

struct LeadingArgs {
  const void* scores = nullptr;  // [groups, rows, columns]
  DType dtype = DType::kFloat32;
  Device device;
  std::int64_t groups = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  // [groups, columns]: weights are counts * exp(scores), over their sum. Null: they are the scores.
  const std::int32_t* counts = nullptr;
  double limit = 0;             // of a sum of weights, in [0, 1]
  std::int64_t least = 0;       // that are kept in any case
  bool crosses = false;         // whether the one that takes the sum over the limit is kept too
  std::uint8_t* map = nullptr;  // [groups, rows, columns], out: 1 for a member
  Stream stream = nullptr;
  std::int32_t threads = 0;
};

struct ListsArgs {
  const std::uint8_t* map = nullptr;  // [groups, rows, columns]: not 0 for a member
  Device device;
  std::int64_t groups = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  // [groups, lists]: the row of each list. Null: lists are rows. One that is no row has no members.
  const std::int32_t* row_of_list = nullptr;
  std::int64_t lists = 0;
  // [groups, ids]: the column of each id. Null: ids are columns. One of no column is no member.
  const std::int32_t* column_of_id = nullptr;
  std::int64_t ids = 0;
  std::int64_t max_list = 0;
  std::int32_t* index = nullptr;  // [groups, lists, max_list], out: ascending; 0 past the members
  std::int32_t* nums = nullptr;   // [groups, lists], out: members, also those that had no room
  Stream stream = nullptr;
  std::int32_t threads = 0;
};

struct BlockSumsArgs {
  TensorRef x;                            // [B, H, S, D], of any dtype
  const std::int32_t* sizes = nullptr;    // [blocks], or [B, H, blocks]; blocks of any size
  const std::int32_t* offsets = nullptr;  // the same; places outside of [0, S) count as zeros
  bool per_head = false;                  // whether sizes and offsets have leading dimensions
  std::int64_t blocks = 0;
  float* sums = nullptr;  // [B, H, blocks, D], out
  Stream stream = nullptr;
  std::int32_t threads = 0;
};

struct ClusterOrderArgs {
  const std::int32_t* labels = nullptr;  // [slices, rows], in [0, clusters)
  Device device;
  std::int64_t slices = 0;
  std::int64_t rows = 0;
  std::int64_t clusters = 0;        // at least 1
  std::int32_t* order = nullptr;    // [slices, rows], out: the row at each place
  std::int32_t* places = nullptr;   // [slices, rows], out: the place of each row
  std::int32_t* sizes = nullptr;    // [slices, clusters], out
  std::int32_t* offsets = nullptr;  // [slices, clusters], out: where each begins in `order`
  Stream stream = nullptr;
  std::int32_t threads = 0;
};

struct ClusterMeansArgs {
  TensorRef x;                            // [B, H, S, D], of any dtype
  const std::int32_t* order = nullptr;    // [B, H, S]: the row at each place
  const std::int32_t* sizes = nullptr;    // [B, H, clusters]
  const std::int32_t* offsets = nullptr;  // [B, H, clusters], in places
  const void* centroids = nullptr;        // [B, H, clusters, D], dtype of x
  std::int64_t clusters = 0;
  void* means = nullptr;    // [B, H, clusters, D], dtype of x, out
  float* shifts = nullptr;  // [B, H, clusters], out: |mean - centroid|
  Stream stream = nullptr;
  std::int32_t threads = 0;
};

struct ClusterBlocksArgs {
  const std::int32_t* sizes = nullptr;  // [slices, clusters]
  Device device;
  std::int64_t slices = 0;
  std::int64_t clusters = 0;
  std::int64_t blocks = 0;                // room for so many
  std::int32_t* cluster = nullptr;        // [slices, blocks], out: -1 past the last block
  std::int32_t* block_sizes = nullptr;    // the same, 0 past it
  std::int32_t* block_offsets = nullptr;  // the same
  Stream stream = nullptr;
  std::int32_t threads = 0;
};

struct NearestArgs {
  TensorRef x;                      // [B, H, S, D], with strides that attention takes
  const void* centroids = nullptr;  // [B, H, clusters, D], dtype and alignment of x
  std::int64_t clusters = 0;        // at least 1
  float* half_squares = nullptr;    // [B, H, clusters], out: |centroid|^2 / 2
  std::int32_t* labels = nullptr;   // [B, H, S], out
  Stream stream = nullptr;
};

}  // namespace kpage
