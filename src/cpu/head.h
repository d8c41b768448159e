// The rows of one head of a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kpage/types.h"

#include "base/elements.h"

namespace kpage::cpu {

struct HeadRows {
  std::byte* data = nullptr;  // row 0
  DType dtype = DType::kFloat32;
  std::int64_t stride = 0;  // from row to row, in elements
  std::int64_t rows = 0;
  std::int32_t head_dim = 0;

  [[nodiscard]] void* row(std::int64_t r) const { return data + r * stride * size_of(dtype); }
};

[[nodiscard]] inline HeadRows head_rows(const TensorRef& t, std::int64_t batch, std::int64_t head) {
  return {static_cast<std::byte*>(t.data) + row_start(t, batch, head, 0) * size_of(t.dtype),
          t.dtype, t.stride[2], t.shape[2], static_cast<std::int32_t>(t.shape[3])};
}

// Every dtype's zero is bytes of zero.
inline void zero_rows(const HeadRows& rows, std::int64_t begin, std::int64_t end) {
  const std::int64_t bytes = rows.head_dim * size_of(rows.dtype);
  for (std::int64_t r = begin; r < end; ++r) {
    std::memset(rows.row(r), 0, static_cast<std::size_t>(bytes));
  }
}

[[nodiscard]] inline float& at(const RowsRef& t, std::int64_t batch, std::int64_t head,
                               std::int64_t row) {
  return t.data[row_start(t, batch, head, row)];
}

}  // namespace kpage::cpu
