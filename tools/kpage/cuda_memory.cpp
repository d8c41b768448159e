#include "cuda_memory.h"

#include "failure.h"

#if KPAGE_HAS_CUDA

#include <cuda_runtime_api.h>

namespace kpage::cli {
namespace {

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw run_failed(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

}  // namespace

std::string why_no_cuda() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return cudaGetErrorString(error);
  }
  return count > 0 ? "" : "the CUDA runtime finds no device";
}

DeviceMemory::DeviceMemory(std::int64_t bytes) {
  if (bytes > 0) {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "device memory");
    data_ = static_cast<std::byte*>(memory);
  }
}

DeviceMemory::DeviceMemory(std::span<const std::byte> host)
    : DeviceMemory(static_cast<std::int64_t>(host.size())) {
  check_cuda(cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice),
             "copy to the device");
}

DeviceMemory::~DeviceMemory() { cudaFree(data_); }

void DeviceMemory::copy_to(std::span<std::byte> host) const {
  check_cuda(cudaMemcpy(host.data(), data_, host.size(), cudaMemcpyDeviceToHost),
             "copy from the device");
}

DeviceTimer::DeviceTimer() {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check_cuda(cudaEventCreate(&begin), "event");
  begin_ = begin;
  check_cuda(cudaEventCreate(&end), "event");
  end_ = end;
}

DeviceTimer::~DeviceTimer() {
  cudaEventDestroy(static_cast<cudaEvent_t>(begin_));
  cudaEventDestroy(static_cast<cudaEvent_t>(end_));
}

void DeviceTimer::start() {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(begin_)), "event");
}

double DeviceTimer::stop() {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(end_)), "event");
  check_cuda(cudaEventSynchronize(static_cast<cudaEvent_t>(end_)), "run on the device");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin_),
                                  static_cast<cudaEvent_t>(end_)),
             "event");
  return static_cast<double>(milliseconds);
}

}  // namespace kpage::cli

#else

namespace kpage::cli {

std::string why_no_cuda() { return "this build has no CUDA kernels"; }

DeviceMemory::DeviceMemory(std::int64_t) { throw run_failed(why_no_cuda()); }
DeviceMemory::DeviceMemory(std::span<const std::byte>) { throw run_failed(why_no_cuda()); }
DeviceMemory::~DeviceMemory() = default;
void DeviceMemory::copy_to(std::span<std::byte>) const { throw run_failed(why_no_cuda()); }
DeviceTimer::DeviceTimer() { throw run_failed(why_no_cuda()); }
DeviceTimer::~DeviceTimer() = default;
void DeviceTimer::start() {}
double DeviceTimer::stop() { return 0; }

}  // namespace kpage::cli

#endif
