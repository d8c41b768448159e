// What the backward kernels receive, by value.
#pragma once

#include <cstdint>

#include "kernels/common/tensor_map.h"
#include "plan/format.h"

namespace kpage::kernels::sm90::backward_kernel {

// The boxes in which rows of one operand are loaded, all with coordinates {0, 0, slab, 0, row}: of
// 1, 2, 4 and 8 whole pages, then of an 8-row group of which the first 1 to 8 rows count.
struct OperandMaps {
  CUtensorMap box[kRunMaps + kGroupMaps];
};

// [batch, heads, rows, D] of 16-bit elements, in any strides.
struct RowTensor {
  void* data;
  std::int64_t batch, head, row;  // strides in elements
};
// [batch, heads, rows] of fp32.
struct RowNumbers {
  const float* data;
  std::int64_t batch, head, row;
};

// Sweeps of query blocks that are under way: of owners of eight slots and of four in each head.
KPAGE_HD std::int64_t sweep_count(const plan::Shape& shape) { return 2 * plan::batch_heads(shape); }

struct MainParams {
  OperandMaps q, d_o, k, v;
  SlabStrides q_slabs, d_o_slabs, k_slabs, v_slabs;
  plan::ForwardView forward;
  plan::BackwardView backward;
  std::int32_t group;          // query heads to a K/V head
  std::int32_t page_capacity;  // pages of a (batch, head) in the accumulator and the statistics
  const float* statistics;     // [B * H * page_capacity, kPageStatistics]
  float* d_q;                  // [B * H * page_capacity, kPageGradients]
  const std::uint32_t* row_scales;  // [B * H * page_capacity, 8]: see bounds.cuh; null: dQ is fp32
  std::uint32_t* ticket;            // counts the items that CTAs have taken
  std::int32_t* sweeps;  // [sweep_count]: the query block at which owners of 8 and of 4 slots are
  float scale_log2;      // of the scores, times log2(e); never 0
  float no_score;        // what S starts with where P is zero: an infinity
  float scale;
  std::int64_t kv_rows;
  RowTensor d_k, d_v;  // [B, Hkv, Sk, D]; where group is 1
  // Where query heads share K and V: their sums, [B, Hkv, Sk, D] contiguous; or, deterministic,
  // each of them, [B, H, Sk, D].
  float* d_k_sum;
  float* d_v_sum;
};

// The largest |K| and the largest norm of a row of V among the blocks that a query head attends to,
// as the bits of floats that are not negative, which order as they do.
struct HeadBounds {
  std::uint32_t k;
  std::uint32_t v;
};
struct BoundsParams {
  RowTensor k, v;  // [B, Hkv, Sk, D]
  plan::ForwardView forward;
  plan::BackwardView backward;
  std::int32_t group;
  std::int64_t kv_rows;
  HeadBounds* bounds;  // [B * H], zero before; null: not deterministic
};

struct PreprocessParams {
  RowTensor o, d_o;       // [B, H, Sq, D]
  RowNumbers lse, d_lse;  // [B, H, Sq]; d_lse.data may be null
  plan::ForwardView forward;
  std::int64_t q_rows;
  std::int32_t page_capacity;
  float scale_log2, no_score;
  float* statistics;
  float* d_q;
  const HeadBounds* bounds;  // null: not deterministic
  std::uint32_t* row_scales;
  std::uint32_t* ticket;
  std::int32_t* sweeps;
};

struct PostprocessParams {
  plan::ForwardView forward;
  std::int64_t q_rows, kv_rows;
  std::int32_t group;
  std::int32_t page_capacity;
  bool multiplied;  // the main kernel ran, and wrote dK and dV of all blocks
  const float* d_q;
  const std::uint32_t* row_scales;
  float scale;
  RowTensor d_q_out;   // [B, H, Sq, D]
  RowTensor d_k, d_v;  // [B, Hkv, Sk, D]
  const float* d_k_sum;
  const float* d_v_sum;
};

// A whole backward.
struct Params {
  BoundsParams bounds;
  PreprocessParams preprocess;
  MainParams main;
  PostprocessParams postprocess;
};

}  // namespace kpage::kernels::sm90::backward_kernel
