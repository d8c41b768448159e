// Elements of any dtype in host memory, to and from float or double.
#pragma once

#include <cstdint>

#include "kpage/types.h"

#include "base/half.h"

namespace kpage {

// The value of element i, in its precision or better.
[[nodiscard]] inline double read_element(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::kBFloat16:
      return static_cast<double>(bf16_to_float(static_cast<const std::uint16_t*>(data)[i]));
    case DType::kFloat16:
      return static_cast<double>(fp16_to_float(static_cast<const std::uint16_t*>(data)[i]));
    case DType::kFloat32:
      return static_cast<double>(static_cast<const float*>(data)[i]);
    case DType::kFloat64:
      return static_cast<const double*>(data)[i];
  }
  return 0;
}

// Half precision is rounded by way of float.
inline void write_element(void* data, DType dtype, std::int64_t i, double value) {
  switch (dtype) {
    case DType::kBFloat16:
      static_cast<std::uint16_t*>(data)[i] = float_to_bf16(static_cast<float>(value));
      return;
    case DType::kFloat16:
      static_cast<std::uint16_t*>(data)[i] = float_to_fp16(static_cast<float>(value));
      return;
    case DType::kFloat32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::kFloat64:
      static_cast<double*>(data)[i] = value;
      return;
  }
}

// Where the elements of a row start, counted from `data`.
[[nodiscard]] constexpr std::int64_t row_start(const TensorRef& t, std::int64_t batch,
                                               std::int64_t head, std::int64_t row) {
  return batch * t.stride[0] + head * t.stride[1] + row * t.stride[2];
}
[[nodiscard]] constexpr std::int64_t row_start(const RowsRef& t, std::int64_t batch,
                                               std::int64_t head, std::int64_t row) {
  return batch * t.stride[0] + head * t.stride[1] + row * t.stride[2];
}

// Reads a row, `head_dim` elements, into `to`.
inline void read_row(const TensorRef& t, std::int64_t batch, std::int64_t head, std::int64_t row,
                     double* to) {
  const std::int64_t start = row_start(t, batch, head, row);
  const auto read = [&](const auto* data, const auto& convert) {
    for (std::int64_t d = 0; d < t.shape[3]; ++d) {
      to[d] = static_cast<double>(convert(data[start + d]));
    }
  };
  const auto same = [](auto value) { return value; };
  switch (t.dtype) {
    case DType::kBFloat16:
      return read(static_cast<const std::uint16_t*>(t.data),
                  [](std::uint16_t bits) { return bf16_to_float(bits); });
    case DType::kFloat16:
      return read(static_cast<const std::uint16_t*>(t.data),
                  [](std::uint16_t bits) { return fp16_to_float(bits); });
    case DType::kFloat32:
      return read(static_cast<const float*>(t.data), same);
    case DType::kFloat64:
      return read(static_cast<const double*>(t.data), same);
  }
}

}  // namespace kpage
