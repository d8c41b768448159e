#include "kernels/sm90/support.h"

#include "base/message.h"
#include "kernels/common/check.h"

namespace kpage::kernels::sm90 {
namespace {

constexpr int kComputeCapability = 9;  // 9.0; these instructions exist nowhere else

}  // namespace

Status no_kernel(const TensorRef& q) {
  return {ErrorCode::kUnsupported,
          text("bf16 and fp16 with head dimensions 64 and 128, not ", q.shape[3])};
}

Status device_figure(cudaDeviceAttr attribute, std::int32_t device, int& value) {
  return cuda_status(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
}

Status check_device(std::int32_t device) {
  int major = 0;
  int minor = 0;
  Status status = device_figure(cudaDevAttrComputeCapabilityMajor, device, major);
  if (status.ok()) {
    status = device_figure(cudaDevAttrComputeCapabilityMinor, device, minor);
  }
  if (status.ok() && (major != kComputeCapability || minor != 0)) {
    return {ErrorCode::kUnsupported,
            text("devices of compute capability 9.0, not ", major, ".", minor)};
  }
  return status;
}

Status check_rows(const TensorRef& tensor, const char* name) {
  constexpr std::int64_t kAccessBytes = 16;
  constexpr std::int64_t kAccessElements = kAccessBytes / 2;
  if (std::ranges::any_of(tensor.shape, [](std::int64_t extent) { return extent == 0; })) {
    return {};
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % kAccessBytes != 0) {
    return invalid_argument(name, "data aligned to 16 bytes", tensor.data);
  }
  if (tensor.stride[3] != 1) {
    return invalid_argument(name, "a stride of head_dim of 1", tensor.stride[3]);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    if (tensor.shape[i] > 1 && tensor.stride[i] % kAccessElements != 0) {
      return invalid_argument(name, "strides that are multiples of 8 elements", tensor.stride[i]);
    }
  }
  return {};
}

}  // namespace kpage::kernels::sm90
