#include "kernels/sm90/forward/launch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <tuple>
#include <utility>

#include <cuda_runtime_api.h>

#include "base/message.h"
#include "kernels/common/check.h"
#include "kernels/sm90/forward/instantiations/instantiations.h"
#include "kernels/sm90/forward/params.h"

namespace kpage::kernels::sm90 {
namespace {

using forward_kernel::Params;

constexpr std::int64_t kWorkspaceBytes = 128;  // one counter, in a line of its own
constexpr int kComputeCapability = 9;          // 9.0; these instructions exist nowhere else
constexpr std::uint32_t kSignBits = 0x80008000;

struct Kernel {
  DType dtype;
  std::int64_t head_dim;
  forward_kernel::Launch launch;
};
constexpr std::array<Kernel, 4> kKernels = {{
    {DType::kBFloat16, 64, forward_kernel::launch_bf16_d64},
    {DType::kBFloat16, 128, forward_kernel::launch_bf16_d128},
    {DType::kFloat16, 64, forward_kernel::launch_fp16_d64},
    {DType::kFloat16, 128, forward_kernel::launch_fp16_d128},
}};

const Kernel* find_kernel(const ForwardArgs& args) {
  const auto found = std::ranges::find_if(kKernels, [&](const Kernel& kernel) {
    return kernel.dtype == args.q.dtype && kernel.head_dim == args.q.shape[3];
  });
  return found == kKernels.end() ? nullptr : &*found;
}

Status unsupported(std::string message) { return {ErrorCode::kUnsupported, std::move(message)}; }

// O is written by ordinary stores, which ask less than tensor maps.
Status check_output(const TensorRef& o) {
  constexpr std::int64_t kStoreBytes = 16;
  constexpr std::int64_t kStoreElements = kStoreBytes / 2;
  if (reinterpret_cast<std::uintptr_t>(o.data) % kStoreBytes != 0) {
    return invalid_argument("o", "data aligned to 16 bytes", o.data);
  }
  if (o.stride[3] != 1) {
    return invalid_argument("o", "a stride of head_dim of 1", o.stride[3]);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    if (o.shape[i] > 1 && o.stride[i] % kStoreElements != 0) {
      return invalid_argument("o", "strides that are multiples of 8 elements", o.stride[i]);
    }
  }
  return {};
}

Status device_figure(cudaDeviceAttr attribute, std::int32_t device, int& value) {
  return cuda_status(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
}

// The scale as the kernel takes it: not negative, and 1 with no bits of Q kept where it is 0, so
// that the score of a masked key, -inf, times the scale stays -inf.
void set_scale(double scale, Params& params) {
  const auto magnitude = static_cast<float>(std::abs(scale));
  const auto log2 = static_cast<float>(std::abs(scale) * std::numbers::log2e);
  const bool zero = magnitude == 0.0f || log2 == 0.0f;
  params.scale = zero ? 1.0f : magnitude;
  params.scale_log2 = zero ? std::numbers::log2e_v<float> : log2;
  params.q_keep = zero ? 0u : ~0u;
  params.q_flip = scale < 0.0 && !zero ? kSignBits : 0u;
}

}  // namespace

Status can_forward(const ForwardArgs& args) {
  if (find_kernel(args) == nullptr) {
    return unsupported(
        text("bf16 and fp16 with head dimensions 64 and 128, not ", args.q.shape[3]));
  }
  int major = 0;
  int minor = 0;
  Status status = device_figure(cudaDevAttrComputeCapabilityMajor, args.q.device.index, major);
  if (status.ok()) {
    status = device_figure(cudaDevAttrComputeCapabilityMinor, args.q.device.index, minor);
  }
  if (!status.ok()) {
    return status;
  }
  if (major != kComputeCapability || minor != 0) {
    return unsupported(text("devices of compute capability 9.0, not ", major, ".", minor));
  }
  return {};
}

std::int64_t forward_workspace_bytes(const ForwardArgs& /*args*/) { return kWorkspaceBytes; }

Status forward(const ForwardArgs& args) {
  int processors = 0;
  if (Status status =
          device_figure(cudaDevAttrMultiProcessorCount, args.q.device.index, processors);
      !status.ok()) {
    return status;
  }
  return forward_on(args, processors);
}

Status forward_on(const ForwardArgs& args, std::int32_t ctas) {
  const Kernel* kernel = find_kernel(args);
  if (kernel == nullptr) {
    return can_forward(args);
  }
  if (args.q.shape[0] == 0 || args.q.shape[1] == 0 || args.q.shape[2] == 0) {
    return {};
  }
  Status status = check_output(args.o);
  if (!status.ok()) {
    return status;
  }

  Params params{};
  for (const auto& [tensor, name, maps, slabs] :
       {std::tuple{&args.q, "q", &params.q, &params.q_slabs},
        std::tuple{&args.k, "k", &params.k, &params.k_slabs},
        std::tuple{&args.v, "v", &params.v, &params.v_slabs}}) {
    status = encode_page_maps(*tensor, name, *maps);
    if (!status.ok()) {
      return status;
    }
    *slabs = slab_strides(*tensor);
  }
  params.plan = plan::ForwardView::at(args.plan.shape, args.plan.forward);
  params.heads_per_kv =
      static_cast<std::int32_t>(args.q.shape[1] / std::max<std::int64_t>(args.k.shape[1], 1));
  params.q_rows = static_cast<std::int32_t>(args.q.shape[2]);
  params.kv_rows = static_cast<std::int32_t>(args.k.shape[2]);
  set_scale(args.scale.value_or(1.0 / std::sqrt(static_cast<double>(args.q.shape[3]))), params);
  params.o = args.o.data;
  params.lse = args.lse.data;
  for (std::size_t i = 0; i < 3; ++i) {
    params.o_stride[i] = args.o.stride[i];
    params.lse_stride[i] = args.lse.stride[i];
  }
  params.counter = reinterpret_cast<std::uint32_t*>(args.workspace);
  status = cuda_status(cudaMemsetAsync(args.workspace, 0, kWorkspaceBytes, args.stream),
                       "cudaMemsetAsync");
  if (!status.ok()) {
    return status;
  }
  return cuda_status(kernel->launch(params, ctas, args.stream), "launch of the forward kernel");
}

}  // namespace kpage::kernels::sm90
