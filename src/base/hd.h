// What lets one header serve g++, nvcc's host pass and nvcc's device pass.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define KPAGE_HD __host__ __device__ __forceinline__
#else
#define KPAGE_HD inline
#endif

namespace kpage {

template <class T>
KPAGE_HD constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
KPAGE_HD constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

template <class T>
KPAGE_HD constexpr T min_of(T a, T b) {
  return a < b ? a : b;
}

template <class T>
KPAGE_HD constexpr T max_of(T a, T b) {
  return a < b ? b : a;
}

}  // namespace kpage
