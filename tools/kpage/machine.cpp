#include "machine.h"

#include <fstream>

#include <unistd.h>

#if KPAGE_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

#include "page.h"

namespace kpage::cli {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      return colon == std::string::npos ? "unknown" : line.substr(colon + 2);
    }
  }
  return "unknown";
}

double memory_bytes() {
  const auto pages = static_cast<double>(::sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  return pages > 0 && page > 0 ? pages * page : 0;
}

std::string cpu_instruction_sets() {
  std::string sets;
  [[maybe_unused]] const auto add = [&](const char* name, bool present) {
    if (present) {
      sets += (sets.empty() ? "" : ", ") + std::string(name);
    }
  };
#if defined(__x86_64__)
  add("avx2", __builtin_cpu_supports("avx2") != 0);
  add("fma", __builtin_cpu_supports("fma") != 0);
  add("avx512f", __builtin_cpu_supports("avx512f") != 0);
  add("avx512bw", __builtin_cpu_supports("avx512bw") != 0);
  add("avx512_bf16", __builtin_cpu_supports("avx512bf16") != 0);
#endif
  return sets.empty() ? "baseline" : sets;
}

CudaDevices cuda_devices() {
  CudaDevices devices;
#if KPAGE_HAS_CUDA
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    devices.why_none = cudaGetErrorString(error);
    return devices;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) {
      devices.names.push_back(std::string(properties.name) + ", sm_" +
                              std::to_string(properties.major) + std::to_string(properties.minor) +
                              ", " +
                              bytes_text(static_cast<std::int64_t>(properties.totalGlobalMem)));
    }
  }
  if (devices.names.empty()) {
    devices.why_none = "the CUDA runtime finds none";
  }
#else
  devices.why_none = "this build has no CUDA kernels";
#endif
  return devices;
}

}  // namespace kpage::cli
