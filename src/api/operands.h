// Tensors of a run, seen alike: where they lie, and whether calls may read and write them as asked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpage/status.h"
#include "kpage/types.h"

namespace kpage::api {

enum class Use { kIn, kOut };

// One tensor of a run, or one of its tensors of numbers a row.
struct Operand {
  std::string_view name;
  const void* data;
  Device device;
  std::int64_t element_bytes;
  std::span<const std::int64_t> shape;   // of the argument it was made of, which must outlive it
  std::span<const std::int64_t> stride;  // in elements
  Use use;
};

[[nodiscard]] Operand operand(std::string_view name, const TensorRef& t, Use use);
[[nodiscard]] Operand operand(std::string_view name, const RowsRef& t, Use use);

[[nodiscard]] std::string list_text(std::span<const std::int64_t> values);  // "[1, 8, 640, 128]"

[[nodiscard]] Status check_dtype(std::string_view name, DType dtype);  // that it is one
[[nodiscard]] Status check_shape(std::string_view name, std::span<const std::int64_t> got,
                                 const std::vector<std::int64_t>& expected);

// Devices, strides and addresses, and that no output shares memory with another operand. Tensors
// have to lie on `device`, which is that of the argument `device_of`.
[[nodiscard]] Status check_operands(std::span<const Operand> operands, const Device& device,
                                    std::string_view device_of);

}  // namespace kpage::api
