// From torch's tensors to KPage's references, and from KPage's errors to exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/tensor.h>

#include "kpage/plan.h"
#include "kpage/status.h"
#include "kpage/types.h"

namespace kpage::bindings {

using torch::stable::Tensor;

// Python sees ValueError for an invalid argument and RuntimeError for the rest.
void throw_if_error(const Status& status);

[[nodiscard]] Device device_of(const Tensor& tensor);
// The stream that torch would launch on now; null on the CPU.
[[nodiscard]] Stream current_stream(const Tensor& tensor);

// The current device is the tensor's while this lives; none where it is on the CPU.
[[nodiscard]] std::optional<torch::stable::accelerator::DeviceGuard> guard(const Tensor& tensor);

// How a [batch, heads, rows, head_dim] tensor is laid out: with heads before rows or after.
enum class Order { kBhsd, kBshd };

// A tensor to read, and one to write.
[[nodiscard]] TensorRef input(std::string_view name, const Tensor& tensor, Order order);
[[nodiscard]] TensorRef output(std::string_view name, const Tensor& tensor, Order order);
[[nodiscard]] RowsRef input_rows(std::string_view name, const Tensor& tensor);
[[nodiscard]] RowsRef output_rows(std::string_view name, const Tensor& tensor);

// Uninitialised, on the device of `like`.
[[nodiscard]] Tensor empty(const Tensor& like, std::span<const std::int64_t> sizes,
                           torch::headeronly::ScalarType type);
[[nodiscard]] Tensor empty_bytes(const Tensor& like, std::int64_t bytes);
// The tensor itself where it is contiguous, else a copy.
[[nodiscard]] Tensor contiguous(std::string_view name, const Tensor& tensor);
// Zeroed bytes on the CPU.
[[nodiscard]] Tensor zero_bytes(std::int64_t bytes);

// A plan's shape as ops take it: the members of PlanShape in order.
inline constexpr std::size_t kShapeValues = 7;
[[nodiscard]] Result<PlanShape> checked_shape(std::span<const std::int64_t> values);
[[nodiscard]] PlanShape shape_of(const std::vector<std::int64_t>& values);
[[nodiscard]] std::vector<std::int64_t> list_of(const PlanShape& shape);

// Checks that the blobs are what this shape needs; their contents are api's to check.
[[nodiscard]] PlanRef plan_ref(const Tensor& forward, const std::optional<Tensor>& backward,
                               const std::vector<std::int64_t>& shape);

}  // namespace kpage::bindings
