// What a run over a plan takes: the arguments that api checks and every backend receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kpage/export.h"
#include "kpage/plan.h"
#include "kpage/types.h"

namespace KPAGE_EXPORT kpage {

// How the CPU backend computes. Device kernels have their own arithmetic.
enum class CpuPolicy : std::int32_t {
  kAsKernel,  // tiles, order and roundings of the kernels: fp32 sums, P and dS rounded to the dtype
  kExact,     // fp64 throughout; tensors may be fp64 too
};

struct ForwardArgs {
  TensorRef q;   // [B, H, Sq, D], bf16 or fp16; D 64 or 128; CPU: multiples of 8 up to 256
  TensorRef k;   // [B, Hkv, Sk, D]; H is a multiple of Hkv
  TensorRef v;   // [B, Hkv, Sk, D]
  PlanRef plan;  // on the device of the tensors
  std::optional<double> scale;     // of the scores; 1 / sqrt(D) where absent; finite
  TensorRef o;                     // [B, H, Sq, D], out; padding rows become 0
  RowsRef lse;                     // [B, H, Sq], out; natural logarithm; -inf in rows without keys
  std::byte* workspace = nullptr;  // [forward_workspace_bytes], on the device; aligned to 128
  std::int64_t workspace_bytes = 0;
  Stream stream = nullptr;
  CpuPolicy cpu_policy = CpuPolicy::kAsKernel;
  std::int32_t threads = 0;  // of the CPU backend; 0: as many as there are cores
};

struct BackwardArgs {
  TensorRef q;
  TensorRef k;
  TensorRef v;
  TensorRef o;    // from forward
  RowsRef lse;    // from forward
  TensorRef d_o;  // [B, H, Sq, D]
  RowsRef d_lse;  // [B, H, Sq]; null data: no gradient comes through LSE
  PlanRef plan;   // with its backward part
  std::optional<double> scale;
  TensorRef dq;  // [B, H, Sq, D], out; zero in padding rows
  TensorRef dk;  // [B, Hkv, Sk, D], out; zero in padding rows and in blocks nobody selects
  TensorRef dv;
  std::byte* workspace = nullptr;  // [backward_workspace_bytes], on the device; aligned to 128
  std::int64_t workspace_bytes = 0;
  bool deterministic = false;  // bitwise equal gradients over runs
  Stream stream = nullptr;
  CpuPolicy cpu_policy = CpuPolicy::kAsKernel;
  std::int32_t threads = 0;
};

}  // namespace kpage
