// One run of attention over host memory: on the CPU, or through copies on a CUDA device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kpage/attention_args.h"
#include "kpage/plan.h"

#include "console.h"
#include "tensor.h"

namespace kpage::cli {

struct RunInputs {
  TensorRef q;                   // [B, H, S, D]
  TensorRef k;                   // [B, Hkv, S, D]
  TensorRef v;                   // [B, Hkv, S, D]
  std::optional<TensorRef> d_o;  // [B, H, S, D]: run backward too
};

struct RunOutputs {
  Tensor o;
  RowValues lse;
  Tensor dq;  // empty without backward, as dk and dv
  Tensor dk;
  Tensor dv;
  double forward_ms = 0;  // of the run itself: copies and workspace are not in it
  double backward_ms = 0;
};

struct RunOptions {
  DeviceType device = DeviceType::kCpu;
  CpuPolicy policy = CpuPolicy::kAsKernel;
  std::int32_t threads = 0;
  bool deterministic = false;
  std::int32_t repeats = 1;  // timed calls, of which the median counts
};

// "cpu" or "cuda"; anything else is an error.
[[nodiscard]] DeviceType parse_device(const std::string& text);

// Fails where --threads is negative; 0 is one a core.
void check_threads(std::int32_t threads);

// `plan` is in host memory, with its backward part where d_o is given. Throws Failure.
[[nodiscard]] RunOutputs run_attention(const Plan& plan, const RunInputs& inputs,
                                       const RunOptions& options, const Console& console);

}  // namespace kpage::cli
