// CUDA runtime errors as values.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "kpage/status.h"

namespace kpage::kernels {

[[nodiscard]] inline Status cuda_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) {
    return {};
  }
  return {ErrorCode::kCuda, std::string(call) + ": " + cudaGetErrorString(error)};
}

}  // namespace kpage::kernels

// Returns from the function with the error of a call that failed.
#define KPAGE_CUDA_TRY(call)                                                                     \
  do {                                                                                           \
    if (::kpage::Status status_ = ::kpage::kernels::cuda_status((call), #call); !status_.ok()) { \
      return status_;                                                                            \
    }                                                                                            \
  } while (false)
