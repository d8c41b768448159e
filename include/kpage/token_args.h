// What moving tokens takes: the arguments that api checks and every backend receives.
#pragma once

#include <array>
#include <cstdint>

#include "kpage/export.h"
#include "kpage/types.h"

namespace KPAGE_EXPORT kpage {

// The number of a row for each row of a head: logical shape [batch, heads, rows]. A dimension that
// all batch elements or heads share has stride 0.
struct IndexRef {
  std::int32_t* data = nullptr;
  Device device;
  std::array<std::int64_t, 3> shape{};   // batch, heads, rows
  std::array<std::int64_t, 3> stride{};  // in elements
};

struct GatherArgs {
  TensorRef x;               // [B, H, S, D], of any dtype
  IndexRef index;            // [B, H, R]: rows of x; outside [0, S), as -1 is, there is no row
  TensorRef out;             // [B, H, R, D], out; zeros where there is no row
  Stream stream = nullptr;   // of CUDA tensors
  std::int32_t threads = 0;  // of the CPU backend; 0: as many as there are cores
};

struct InvertArgs {
  IndexRef index;    // [B, H, R]: each of the rows [0, S) of a head at most once; others are no row
  IndexRef inverse;  // [B, H, S], contiguous, out: where index has the row; -1 where nowhere
  Stream stream = nullptr;
  std::int32_t threads = 0;
};

}  // namespace kpage
