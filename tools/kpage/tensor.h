// Tensors in host memory that the tool owns, and moving rows between orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kpage/types.h"

namespace kpage::cli {

// Contiguous [batch, heads, rows, head_dim].
struct Tensor {
  Tensor() = default;
  Tensor(DType dtype, std::int64_t batch, std::int64_t heads, std::int64_t rows,
         std::int64_t head_dim);

  [[nodiscard]] TensorRef ref();
  [[nodiscard]] std::span<const std::byte> bytes() const { return data; }

  DType type = DType::kBFloat16;
  std::vector<std::int64_t> shape = {0, 0, 0, 0};
  std::vector<std::byte> data;
};

// One fp32 number a row, contiguous [batch, heads, rows].
struct RowValues {
  RowValues() = default;
  RowValues(std::int64_t batch, std::int64_t heads, std::int64_t rows);

  [[nodiscard]] RowsRef ref();

  std::vector<std::int64_t> shape = {0, 0, 0};
  std::vector<float> data;
};

[[nodiscard]] TensorRef contiguous(const void* data, DType dtype,
                                   std::span<const std::int64_t> shape);

// Row r of the result is row source_of_row[r] of `from`, or zero where that is negative; the same
// for every batch element and head.
[[nodiscard]] Tensor gather_rows(const TensorRef& from,
                                 std::span<const std::int32_t> source_of_row);
[[nodiscard]] RowValues gather_rows(const RowValues& from,
                                    std::span<const std::int32_t> source_of_row);

// Numbers of mean 0 and variance 1 that depend on the seed and on their place alone: batch, head,
// number_of_row[row] (or the row itself where that is empty) and dimension.
void fill_random(Tensor& tensor, std::uint64_t seed,
                 std::span<const std::int32_t> number_of_row = {});

}  // namespace kpage::cli
