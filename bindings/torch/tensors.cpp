#include "tensors.h"

#include <array>
#include <stdexcept>
#include <string>
#include <utility>

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/device.h>
#include <torch/csrc/stable/ops.h>

#include "api/checks.h"
#include "api/operands.h"
#include "base/message.h"
#include "plan/validate.h"

namespace kpage::bindings {
namespace {

using torch::headeronly::ScalarType;

template <std::size_t kDims>
void check_dims(std::string_view name, const Tensor& tensor) {
  if (tensor.dim() != std::int64_t{kDims}) {
    throw_if_error(
        invalid_argument(name, text("a tensor of ", kDims, " dimensions"), tensor.dim()));
  }
}

DType dtype_of(std::string_view name, const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Double:
      return DType::kFloat64;
    default:
      throw_if_error(invalid_argument(name, "bfloat16 or float16",
                                      torch::headeronly::toString(tensor.scalar_type())));
      return DType::kBFloat16;
  }
}

TensorRef reference(std::string_view name, const Tensor& tensor, void* data, Order order) {
  check_dims<4>(name, tensor);
  TensorRef ref;
  ref.data = data;
  ref.dtype = dtype_of(name, tensor);
  ref.device = device_of(tensor);
  const std::array<std::int64_t, 4> dims = order == Order::kBhsd
                                               ? std::array<std::int64_t, 4>{0, 1, 2, 3}
                                               : std::array<std::int64_t, 4>{0, 2, 1, 3};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    ref.shape[i] = tensor.size(dims[i]);
    ref.stride[i] = tensor.stride(dims[i]);
  }
  return ref;
}

RowsRef rows_reference(std::string_view name, const Tensor& tensor, void* data) {
  check_dims<3>(name, tensor);
  if (tensor.scalar_type() != ScalarType::Float) {
    throw_if_error(
        invalid_argument(name, "float32", torch::headeronly::toString(tensor.scalar_type())));
  }
  RowsRef ref;
  ref.data = static_cast<float*>(data);
  ref.device = device_of(tensor);
  for (std::size_t i = 0; i < ref.shape.size(); ++i) {
    ref.shape[i] = tensor.size(static_cast<std::int64_t>(i));
    ref.stride[i] = tensor.stride(static_cast<std::int64_t>(i));
  }
  return ref;
}

// Backends only read through the references of inputs.
void* readable(const Tensor& tensor) { return const_cast<void*>(tensor.const_data_ptr()); }

void check_blob(std::string_view name, const Tensor& blob, std::int64_t bytes) {
  if (blob.scalar_type() != ScalarType::Byte || !blob.is_contiguous() || blob.numel() != bytes) {
    throw_if_error(invalid_argument(
        name, text("a contiguous uint8 tensor of ", bytes, " elements"),
        text(blob.numel(), " of ", torch::headeronly::toString(blob.scalar_type()))));
  }
}

}  // namespace

void throw_if_error(const Status& status) {
  if (status.ok()) {
    return;
  }
  if (status.code() == ErrorCode::kInvalidArgument) {
    throw std::invalid_argument(status.message());
  }
  throw std::runtime_error(status.message());
}

Device device_of(const Tensor& tensor) {
  if (tensor.is_cuda()) {
    return {DeviceType::kCuda, tensor.get_device_index()};
  }
  return {};
}

Stream current_stream(const Tensor& tensor) {
  if (!tensor.is_cuda()) {
    return nullptr;
  }
  // The symbol lives in libtorch_cuda, which CPU builds of torch lack: so it is looked up in the
  // library that torch has loaded, and not linked.
  using Getter = AOTITorchError (*)(std::int32_t, void**);
  static const Getter kGetter = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library == nullptr
               ? nullptr
               : reinterpret_cast<Getter>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
  }();
  void* stream = nullptr;
  if (kGetter == nullptr || kGetter(tensor.get_device_index(), &stream) != AOTI_TORCH_SUCCESS) {
    throw std::runtime_error("torch gave no current CUDA stream");
  }
  return static_cast<Stream>(stream);
}

std::optional<torch::stable::accelerator::DeviceGuard> guard(const Tensor& tensor) {
  using torch::stable::accelerator::DeviceGuard;
  return tensor.is_cuda() ? std::optional<DeviceGuard>(std::in_place, tensor.get_device_index())
                          : std::nullopt;
}

TensorRef input(std::string_view name, const Tensor& tensor, Order order) {
  return reference(name, tensor, readable(tensor), order);
}
TensorRef output(std::string_view name, const Tensor& tensor, Order order) {
  return reference(name, tensor, tensor.mutable_data_ptr(), order);
}
RowsRef input_rows(std::string_view name, const Tensor& tensor) {
  return rows_reference(name, tensor, readable(tensor));
}
RowsRef output_rows(std::string_view name, const Tensor& tensor) {
  return rows_reference(name, tensor, tensor.mutable_data_ptr());
}

// What torch says of a failure, such as of memory that is used up, does not pass its stable ABI.
Tensor empty(const Tensor& like, std::span<const std::int64_t> sizes, ScalarType type) {
  try {
    return torch::stable::new_empty(like, {sizes.data(), sizes.size()}, type);
  } catch (const std::exception&) {
    throw std::runtime_error(text("cannot allocate ", api::list_text(sizes), " of ",
                                  torch::headeronly::toString(type), " on ",
                                  api::device_text(device_of(like))));
  }
}
Tensor empty_bytes(const Tensor& like, std::int64_t bytes) {
  return empty(like, std::array{bytes}, ScalarType::Byte);
}
Tensor zero_bytes(std::int64_t bytes) {
  const torch::stable::Device cpu(torch::headeronly::DeviceType::CPU);
  try {
    return torch::stable::full(std::array{bytes}, 0.0, ScalarType::Byte, std::nullopt, cpu);
  } catch (const std::exception&) {
    throw std::runtime_error(text("cannot allocate a plan of ", bytes, " bytes on cpu"));
  }
}
Tensor contiguous(std::string_view name, const Tensor& tensor) {
  try {
    return torch::stable::contiguous(tensor);
  } catch (const std::exception&) {
    const auto sizes = tensor.sizes();
    throw std::runtime_error(text(name, ": cannot allocate a contiguous copy of ",
                                  api::list_text({sizes.begin(), sizes.end()}), " on ",
                                  api::device_text(device_of(tensor))));
  }
}

Result<PlanShape> checked_shape(std::span<const std::int64_t> values) {
  if (values.size() != kShapeValues) {
    return invalid_argument("plan shape", text(kShapeValues, " integers"), values.size());
  }
  std::array<std::int32_t, kShapeValues> narrow{};
  for (std::size_t i = 0; i < kShapeValues; ++i) {
    if (!std::in_range<std::int32_t>(values[i])) {
      return invalid_argument("plan shape", "integers of 32 bits", values[i]);
    }
    narrow[i] = static_cast<std::int32_t>(values[i]);
  }
  const PlanShape shape = {narrow[0],
                           narrow[1],
                           narrow[2],
                           narrow[3],
                           narrow[4],
                           static_cast<PartitionScope>(narrow[5]),
                           static_cast<PartitionScope>(narrow[6])};
  if (Status status = plan::check_shape(shape); !status.ok()) {
    return status;
  }
  return shape;
}

PlanShape shape_of(const std::vector<std::int64_t>& values) {
  const Result<PlanShape> shape = checked_shape(values);
  throw_if_error(shape.status());
  return shape.value();
}

std::vector<std::int64_t> list_of(const PlanShape& s) {
  return {s.batch,
          s.heads,
          s.q_blocks,
          s.kv_blocks,
          s.max_list,
          static_cast<std::int64_t>(s.q_scope),
          static_cast<std::int64_t>(s.kv_scope)};
}

PlanRef plan_ref(const Tensor& forward, const std::optional<Tensor>& backward,
                 const std::vector<std::int64_t>& shape) {
  PlanRef ref;
  ref.shape = shape_of(shape);
  ref.device = device_of(forward);
  check_blob("plan", forward, forward_plan_bytes(ref.shape));
  ref.forward = static_cast<const std::byte*>(forward.const_data_ptr());
  if (backward) {
    check_blob("plan's backward part", *backward, backward_plan_bytes(ref.shape));
    if (device_of(*backward) != ref.device) {
      throw_if_error(invalid_argument("plan's backward part",
                                      api::device_text(ref.device) + " as its forward part",
                                      api::device_text(device_of(*backward))));
    }
    ref.backward = static_cast<const std::byte*>(backward->const_data_ptr());
  }
  return ref;
}

}  // namespace kpage::bindings
