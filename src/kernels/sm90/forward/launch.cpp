#include "kernels/sm90/forward/launch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <tuple>

#include <cuda_runtime_api.h>

#include "kernels/common/check.h"
#include "kernels/sm90/forward/instantiations/instantiations.h"
#include "kernels/sm90/forward/params.h"
#include "kernels/sm90/support.h"

namespace kpage::kernels::sm90 {
namespace {

using forward_kernel::Params;

constexpr std::int64_t kWorkspaceBytes = 128;  // one counter, in a line of its own
constexpr std::uint32_t kSignBits = 0x80008000;

constexpr std::array<Kernel<forward_kernel::Launch>, 4> kKernels = {{
    {DType::kBFloat16, 64, forward_kernel::launch_bf16_d64},
    {DType::kBFloat16, 128, forward_kernel::launch_bf16_d128},
    {DType::kFloat16, 64, forward_kernel::launch_fp16_d64},
    {DType::kFloat16, 128, forward_kernel::launch_fp16_d128},
}};

const Kernel<forward_kernel::Launch>* find_kernel(const ForwardArgs& args) {
  return sm90::find_kernel(kKernels, args.q);
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
  return find_kernel(args) == nullptr ? no_kernel(args.q) : check_device(args.q.device.index);
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
  const Kernel<forward_kernel::Launch>* kernel = find_kernel(args);
  if (kernel == nullptr) {
    return can_forward(args);
  }
  if (args.q.shape[0] == 0 || args.q.shape[1] == 0 || args.q.shape[2] == 0) {
    return {};
  }
  Status status = check_rows(args.o, "o");
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
