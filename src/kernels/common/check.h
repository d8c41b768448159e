// CUDA runtime errors, and what kernels do not do, as values.
#pragma once

#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include "kpage/status.h"

#include "base/message.h"

namespace kpage::kernels {

[[nodiscard]] inline Status cuda_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) {
    return {};
  }
  return {ErrorCode::kCuda, std::string(call) + ": " + cudaGetErrorString(error)};
}

// What a device cannot do that the CPU can.
template <class Got>
[[nodiscard]] Status unsupported(std::string_view step, std::string_view expected, const Got& got) {
  return {ErrorCode::kUnsupported,
          text(step, " on a CUDA device: expected ", expected, ", got ", got)};
}

}  // namespace kpage::kernels

// Returns from the function with the error of a call that failed.
#define KPAGE_CUDA_TRY(call)                                                                     \
  do {                                                                                           \
    if (::kpage::Status status_ = ::kpage::kernels::cuda_status((call), #call); !status_.ok()) { \
      return status_;                                                                            \
    }                                                                                            \
  } while (false)
