// Element types, devices and tensor references.
#pragma once

#include <array>
#include <cstdint>

#include "kpage/export.h"

struct CUstream_st;  // what a cudaStream_t points to

namespace KPAGE_EXPORT kpage {

enum class DType : std::int32_t { kBFloat16, kFloat16, kFloat32, kFloat64 };

enum class DeviceType : std::int32_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  std::int32_t index = 0;  // CUDA ordinal; 0 on the CPU

  friend bool operator==(const Device&, const Device&) = default;
};

// Rows of a head: logical shape [batch, heads, rows, head_dim], whatever the order in memory.
// BHSD and BSHD tensors, and slices of them, differ in their strides alone.
struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::kBFloat16;
  Device device;
  std::array<std::int64_t, 4> shape{};   // batch, heads, rows, head_dim
  std::array<std::int64_t, 4> stride{};  // in elements; that of head_dim must be 1
};

// One fp32 number a row (LSE and its gradient): logical shape [batch, heads, rows].
struct RowsRef {
  float* data = nullptr;
  Device device;
  std::array<std::int64_t, 3> shape{};   // batch, heads, rows
  std::array<std::int64_t, 3> stride{};  // in elements
};

// A cudaStream_t without its header: null is the default stream.
using Stream = ::CUstream_st*;

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kFloat32:
      return 4;
    case DType::kFloat64:
      return 8;
  }
  return 0;
}

}  // namespace kpage
