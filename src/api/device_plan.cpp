#include "kpage/device_plan.h"

#include <string>

#include "api/checks.h"
#include "base/message.h"
#include "plan/validate.h"

#if KPAGE_HAS_CUDA
#include "kernels/plan/builder.h"
#endif

namespace kpage {
namespace {

constexpr std::uintptr_t kBlobAlignment = 128;

Status check_blob(const char* name, const void* blob) {
  if (blob == nullptr || reinterpret_cast<std::uintptr_t>(blob) % kBlobAlignment != 0) {
    return invalid_argument(name, "device memory aligned to 128 bytes",
                            blob == nullptr ? "null" : "another address");
  }
  return {};
}

}  // namespace

Status build_device_plan(const LayoutView& layout, std::byte* forward, Stream stream) {
  if (Status status = plan::check_shape(plan_shape(layout)); !status.ok()) {
    return status;
  }
  if (Status status = check_blob("forward", forward); !status.ok()) {
    return status;
  }
#if KPAGE_HAS_CUDA
  return kernels::build_forward_plan(layout, forward, stream);
#else
  static_cast<void>(stream);
  return api::no_cuda("plans");
#endif
}

std::int64_t backward_plan_scratch_bytes(const PlanShape& shape) {
#if KPAGE_HAS_CUDA
  return kernels::backward_plan_scratch_bytes(shape);
#else
  static_cast<void>(shape);
  return 0;
#endif
}

Status build_device_backward_plan(const PlanRef& plan, std::byte* backward, std::byte* scratch,
                                  std::int64_t scratch_bytes, Stream stream) {
  if (Status status = check_blob("plan.forward", plan.forward); !status.ok()) {
    return status;
  }
  if (Status status = check_blob("backward", backward); !status.ok()) {
    return status;
  }
  if (Status status = check_blob("scratch", scratch); !status.ok()) {
    return status;
  }
  const std::int64_t needed = backward_plan_scratch_bytes(plan.shape);
  if (scratch_bytes < needed) {
    return invalid_argument("scratch_bytes", std::to_string(needed) + " or more",
                            std::to_string(scratch_bytes));
  }
#if KPAGE_HAS_CUDA
  return kernels::build_backward_plan(plan.shape, plan.forward, backward, scratch, stream);
#else
  static_cast<void>(stream);
  return api::no_cuda("plans");
#endif
}

}  // namespace kpage
