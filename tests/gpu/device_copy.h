// Copies of host memory on the device that end where mapped memory ends: a load or a store past
// their end faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace kpage::test {

// The driver's calls, found through the runtime.
template <class Function>
Function driver_call(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    ADD_FAILURE() << "the driver has no " << name;
  }
  return reinterpret_cast<Function>(entry);
}

class DeviceCopy {
 public:
  explicit DeviceCopy(const std::vector<std::byte>& host)
      : bytes_(host.size()), placed_((host.size() + kAlignment - 1) / kAlignment * kAlignment) {
    cudaFree(nullptr);  // makes the context
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    std::size_t granularity = 0;
    expect(driver_call<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(
        &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    if (granularity == 0) {
      return;
    }
    mapped_ = (placed_ + granularity) / granularity * granularity;
    reserved_ = mapped_ + granularity;  // the last piece stays unmapped
    expect(driver_call<decltype(&cuMemAddressReserve)>("cuMemAddressReserve")(&base_, reserved_, 0,
                                                                              0, 0));
    expect(driver_call<decltype(&cuMemCreate)>("cuMemCreate")(&memory_, mapped_, &properties, 0));
    expect(driver_call<decltype(&cuMemMap)>("cuMemMap")(base_, mapped_, 0, memory_, 0));
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    expect(driver_call<decltype(&cuMemSetAccess)>("cuMemSetAccess")(base_, mapped_, &access, 1));
    EXPECT_EQ(cudaMemcpy(data(), host.data(), bytes_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;
  ~DeviceCopy() {
    if (mapped_ != 0) {
      driver_call<decltype(&cuMemUnmap)>("cuMemUnmap")(base_, mapped_);
      driver_call<decltype(&cuMemRelease)>("cuMemRelease")(memory_);
      driver_call<decltype(&cuMemAddressFree)>("cuMemAddressFree")(base_, reserved_);
    }
  }

  [[nodiscard]] std::byte* data() const {
    return reinterpret_cast<std::byte*>(base_ + mapped_ - placed_);
  }
  void download(std::vector<std::byte>& host) const {
    ASSERT_EQ(host.size(), bytes_);
    EXPECT_EQ(cudaMemcpy(host.data(), data(), bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
  }

 private:
  static constexpr std::size_t kAlignment = 128;

  static void expect(CUresult result) { EXPECT_EQ(result, CUDA_SUCCESS); }

  std::size_t bytes_ = 0;
  std::size_t placed_ = 0;  // the same, rounded up
  std::size_t mapped_ = 0;
  std::size_t reserved_ = 0;
  CUdeviceptr base_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
};

}  // namespace kpage::test
