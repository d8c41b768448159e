// What forward and backward share: the inputs and the plan, seen a head at a time.
#pragma once

#include <cmath>
#include <cstdint>

#include "kpage/attention_args.h"
#include "kpage/status.h"

#include "cpu/head.h"
#include "cpu/tile_ops.h"
#include "plan/format.h"
#include "plan/views.h"

namespace kpage::cpu {

struct Problem {
  TensorRef q;  // [B, H, Sq, D]
  TensorRef k;  // [B, Hkv, Sk, D]
  TensorRef v;  // [B, Hkv, Sk, D]
  plan::ForwardView plan;
  double scale = 1;
  DType round_to = DType::kFloat64;  // of P and dS; fp64: not rounded
  std::int32_t head_dim = 0;
  std::int64_t group = 1;  // query heads to a key/value head

  [[nodiscard]] std::int64_t batch(std::int64_t batch_head) const {
    return batch_head / plan.shape.heads;
  }
  [[nodiscard]] std::int64_t head(std::int64_t batch_head) const {
    return batch_head % plan.shape.heads;
  }
  [[nodiscard]] HeadRows of_query_head(const TensorRef& t, std::int64_t batch_head) const {
    return head_rows(t, batch(batch_head), head(batch_head));
  }
  [[nodiscard]] HeadRows of_kv_head(const TensorRef& t, std::int64_t batch_head) const {
    return head_rows(t, batch(batch_head), head(batch_head) / group);
  }
};

template <class Args>
[[nodiscard]] Problem problem_of(const Args& args) {
  Problem p;
  p.q = args.q;
  p.k = args.k;
  p.v = args.v;
  p.plan = plan::forward_view(args.plan);
  p.head_dim = static_cast<std::int32_t>(args.q.shape[3]);
  p.scale = args.scale.value_or(1.0 / std::sqrt(static_cast<double>(p.head_dim)));
  p.round_to = args.cpu_policy == CpuPolicy::kExact ? DType::kFloat64 : args.q.dtype;
  p.group = args.q.shape[1] / args.k.shape[1];
  return p;
}

[[nodiscard]] inline Status out_of_memory() {
  return {ErrorCode::kUnsupported, "cpu: not enough memory for the scratch space of the threads"};
}

}  // namespace kpage::cpu
