// What the host tells the forward kernel.
#pragma once

#include <cstdint>

#include "kernels/common/tensor_map.h"
#include "plan/format.h"

namespace kpage::kernels::sm90::forward_kernel {

// Everything that depends on the values in a plan is read there.
struct Params {
  PageMaps q, k, v;
  SlabStrides q_slabs, k_slabs, v_slabs;
  plan::ForwardView plan;
  std::int32_t heads_per_kv;
  std::int32_t q_rows;  // of the tensors
  std::int32_t kv_rows;
  float scale;                   // of the scores; >= 0
  float scale_log2;              // the same times log2(e)
  std::uint32_t q_keep, q_flip;  // bits of Q: a negative scale flips signs, a scale of 0 keeps none
  void* o;                       // [batch, heads, q_rows, D]
  std::int64_t o_stride[3];
  float* lse;  // [batch, heads, q_rows]
  std::int64_t lse_stride[3];
  std::uint32_t* counter;  // tickets drawn beyond the first of each CTA
};

}  // namespace kpage::kernels::sm90::forward_kernel
