// What this machine is.
#pragma once

#include <string>
#include <vector>

namespace kpage::cli {

[[nodiscard]] std::string cpu_name();
[[nodiscard]] double memory_bytes();               // of the machine; 0 where it does not tell
[[nodiscard]] std::string cpu_instruction_sets();  // those that matter here: "avx2, fma"

struct CudaDevices {
  std::vector<std::string> names;  // with compute capability and memory
  std::string why_none;
};
[[nodiscard]] CudaDevices cuda_devices();

}  // namespace kpage::cli
