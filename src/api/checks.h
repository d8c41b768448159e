// Everything that a run's arguments must satisfy, whatever the backend. The first violation is
// returned, and its message names the argument, what was expected, and what came.
#pragma once

#include <string>
#include <string_view>

#include "kpage/attention_args.h"
#include "kpage/status.h"

namespace kpage::api {

[[nodiscard]] Status check(const ForwardArgs& args);
[[nodiscard]] Status check(const BackwardArgs& args);
// For the backend's answer to `*_workspace_bytes`.
[[nodiscard]] Status check_workspace(const std::byte* workspace, std::int64_t bytes,
                                     std::int64_t required);

// That `what` ("plans") need a build with CUDA, and this is none.
[[nodiscard]] Status no_cuda(std::string_view what);

[[nodiscard]] std::string_view dtype_name(DType dtype);       // "bfloat16"
[[nodiscard]] std::string_view device_name(DeviceType type);  // "cuda"
[[nodiscard]] std::string device_text(const Device& device);  // "cuda:1"; "cpu"

}  // namespace kpage::api
