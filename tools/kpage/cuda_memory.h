// What the tool needs of the CUDA runtime. In builds without CUDA all of it fails, and
// why_no_cuda() says so beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kpage::cli {

// Empty where a device can be used.
[[nodiscard]] std::string why_no_cuda();

// Their destructors do nothing only in builds without CUDA.
// NOLINTBEGIN(performance-trivially-destructible)
class DeviceMemory {
 public:
  explicit DeviceMemory(std::int64_t bytes);
  explicit DeviceMemory(std::span<const std::byte> host);  // a copy of it
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  void copy_to(std::span<std::byte> host) const;  // waits for the device

 private:
  std::byte* data_ = nullptr;
};

// Milliseconds between two points of the default stream.
class DeviceTimer {
 public:
  DeviceTimer();
  ~DeviceTimer();
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  void start();
  [[nodiscard]] double stop();

 private:
  void* begin_ = nullptr;
  void* end_ = nullptr;
};
// NOLINTEND(performance-trivially-destructible)

}  // namespace kpage::cli
