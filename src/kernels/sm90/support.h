// What the kernels for compute capability 9.0 run, and in which words they refuse the rest.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "kpage/attention_args.h"
#include "kpage/status.h"

namespace kpage::kernels::sm90 {

// A compiled configuration.
template <class Launch>
struct Kernel {
  DType dtype;
  std::int64_t head_dim;
  Launch launch;
};

// The one for q [B, H, Sq, D]; null where there is none.
template <class Launch, std::size_t kCount>
const Kernel<Launch>* find_kernel(const std::array<Kernel<Launch>, kCount>& kernels,
                                  const TensorRef& q) {
  const auto found = std::ranges::find_if(kernels, [&](const Kernel<Launch>& kernel) {
    return kernel.dtype == q.dtype && kernel.head_dim == q.shape[3];
  });
  return found == kernels.end() ? nullptr : &*found;
}

// That no kernel is compiled for q's dtype and head_dim.
[[nodiscard]] Status no_kernel(const TensorRef& q);
// Whether the kernels run on the device.
[[nodiscard]] Status check_device(std::int32_t device);
[[nodiscard]] Status device_figure(cudaDeviceAttr attribute, std::int32_t device, int& value);

// Tensors [B, H, S, D] that ordinary loads and stores of 16 bytes touch ask less than those of
// tensor maps.
[[nodiscard]] Status check_rows(const TensorRef& tensor, const char* name);

}  // namespace kpage::kernels::sm90
