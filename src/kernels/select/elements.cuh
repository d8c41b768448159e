// Reading elements of any dtype on the device.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kpage/types.h"

namespace kpage::kernels::select {

__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(double value) { return static_cast<float>(value); }

// Calls fn with a value of the type that `dtype` names: scores are never float64.
template <class Fn>
auto with_score(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::kBFloat16:
      return fn(__nv_bfloat16{});
    case DType::kFloat16:
      return fn(__half{});
    default:
      return fn(float{});
  }
}
template <class Fn>
auto with_element(DType dtype, const Fn& fn) {
  return dtype == DType::kFloat64 ? fn(double{}) : with_score(dtype, fn);
}

}  // namespace kpage::kernels::select
