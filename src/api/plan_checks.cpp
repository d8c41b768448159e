#include "api/plan_checks.h"

#include <algorithm>
#include <string_view>

#include "api/checks.h"
#include "base/message.h"
#include "plan/format.h"
#include "plan/validate.h"

namespace kpage::api {
namespace {

// Of the structures in a blob. Kernels ask for more of what devices allocate anyway.
constexpr std::uintptr_t kBlobAlignment = alignof(plan::ForwardHeader);

template <class Header>
Status check_header(std::string_view part, const Header& header, const PlanShape& shape,
                    std::uint32_t magic) {
  if (header.magic != magic || header.version != plan::kPlanVersion) {
    return invalid_argument(
        part, text("a blob of plan format ", plan::kPlanVersion),
        header.magic == magic ? text("format ", header.version) : "something else");
  }
  if (!(header.shape == shape)) {
    const PlanShape& s = header.shape;
    return invalid_argument(part,
                            text("batch, heads, q blocks, kv blocks, list length ",
                                 shape_text({shape.batch, shape.heads, shape.q_blocks,
                                             shape.kv_blocks, shape.max_list})),
                            shape_text({s.batch, s.heads, s.q_blocks, s.kv_blocks, s.max_list}));
  }
  return {};
}

// One past the last valid row of any scope of one side.
std::int64_t end_row(const plan::ScopeInfo* infos, std::int64_t count) {
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    end = std::max<std::int64_t>(end, infos[i].end_row);
  }
  return end;
}

}  // namespace

Status check_plan(const PlanRef& ref, const Device& device, bool needs_backward) {
  if (Status status = plan::check_shape(ref.shape); !status.ok()) {
    return status;
  }
  if (ref.forward == nullptr) {
    return invalid_argument("plan", "a forward part", "a null pointer");
  }
  if (ref.device != device) {
    return invalid_argument("plan", text("a plan on ", device_text(device), " as q"),
                            device_text(ref.device));
  }
  if (needs_backward && ref.backward == nullptr) {
    return invalid_argument("plan", "a backward part (build it first)", "a forward part only");
  }
  for (const std::byte* blob : {ref.forward, ref.backward}) {
    if (reinterpret_cast<std::uintptr_t>(blob) % kBlobAlignment != 0) {
      return invalid_argument("plan",
                              text("blobs at addresses that are multiples of ", kBlobAlignment),
                              reinterpret_cast<std::uintptr_t>(blob));
    }
  }
  if (ref.device.type != DeviceType::kCpu) {
    return {};
  }
  const plan::ForwardView forward = plan::ForwardView::at(ref.shape, ref.forward);
  if (Status status = check_header("plan", *forward.header, ref.shape, plan::kForwardMagic);
      !status.ok()) {
    return status;
  }
  if (Status status = plan_fault(ref.shape, {ref.forward, sizeof(plan::ForwardHeader)});
      !status.ok()) {
    return status;
  }
  if (!needs_backward) {
    return {};
  }
  return check_header("plan's backward part",
                      *plan::BackwardView::at(ref.shape, ref.backward).header, ref.shape,
                      plan::kBackwardMagic);
}

Status check_plan_rows(const PlanRef& ref, std::int64_t q_rows, std::int64_t kv_rows) {
  if (ref.device.type != DeviceType::kCpu) {
    return {};
  }
  const PlanShape& shape = ref.shape;
  const plan::ForwardView forward = plan::ForwardView::at(shape, ref.forward);
  const std::int64_t q_end = end_row(forward.q_scopes, plan::scopes(shape.q_scope, shape));
  const std::int64_t kv_end = end_row(forward.kv_scopes, plan::scopes(shape.kv_scope, shape));
  if (q_rows < q_end) {
    return invalid_argument(
        "q", text("at least ", q_end, " rows, the end of the plan's last block"), q_rows);
  }
  if (kv_rows < kv_end) {
    return invalid_argument(
        "k", text("at least ", kv_end, " rows, the end of the plan's last block"), kv_rows);
  }
  return {};
}

}  // namespace kpage::api
