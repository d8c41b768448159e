#include "kpage/plan.h"

#include <algorithm>
#include <string>

#include "plan/builder.h"
#include "plan/format.h"
#include "plan/validate.h"
#include "plan/views.h"

namespace kpage {

PlanShape plan_shape(const LayoutView& layout) {
  return {layout.batch,    layout.heads,   layout.q.blocks, layout.kv.blocks,
          layout.max_list, layout.q.scope, layout.kv.scope};
}

std::int64_t forward_plan_bytes(const PlanShape& shape) {
  return plan::forward_sections(shape).bytes;
}

std::int64_t backward_plan_bytes(const PlanShape& shape) {
  return plan::backward_sections(shape).bytes;
}

Result<Plan> Plan::build(const LayoutView& layout) {
  if (Status status = kpage::validate(layout); !status.ok()) {
    return status;
  }
  Plan made;
  made.shape_ = plan_shape(layout);
  if (Status status = plan::check_shape(made.shape_); !status.ok()) {
    return status;
  }
  made.forward_.resize(static_cast<std::size_t>(forward_plan_bytes(made.shape_)));
  plan::build_forward(layout, plan::MutableForward::at(made.shape_, made.forward_.data()));
  return made;
}

Result<Plan> Plan::adopt(const PlanShape& shape, std::span<const std::byte> forward,
                         std::span<const std::byte> backward) {
  Plan made;
  made.shape_ = shape;
  made.forward_.assign(forward.begin(), forward.end());
  made.backward_.assign(backward.begin(), backward.end());
  if (Status status = made.validate(); !status.ok()) {
    return status;
  }
  return made;
}

Status Plan::build_backward() {
  if (has_backward()) {
    return {};
  }
  backward_.resize(static_cast<std::size_t>(backward_plan_bytes(shape_)));
  plan::build_backward(plan::forward_view(ref()),
                       plan::MutableBackward::at(shape_, backward_.data()));
  return {};
}

PlanRef Plan::ref() const {
  return {shape_, Device{}, forward_.data(), has_backward() ? backward_.data() : nullptr};
}

namespace {

Status check_size(const char* part, std::size_t got, std::int64_t expected) {
  if (static_cast<std::int64_t>(got) != expected) {
    return {ErrorCode::kInvalidArgument, std::string(part) + " plan: expected " +
                                             std::to_string(expected) + " bytes, got " +
                                             std::to_string(got)};
  }
  return {};
}

}  // namespace

Status Plan::validate() const {
  if (Status status = plan::check_shape(shape_); !status.ok()) {
    return status;
  }
  if (Status status = check_size("forward", forward_.size(), forward_plan_bytes(shape_));
      !status.ok()) {
    return status;
  }
  const plan::ForwardView forward = plan::forward_view(ref());
  if (Status status = plan::validate_forward(forward); !status.ok()) {
    return status;
  }
  if (!has_backward()) {
    return {};
  }
  if (Status status = check_size("backward", backward_.size(), backward_plan_bytes(shape_));
      !status.ok()) {
    return status;
  }
  return plan::validate_backward(forward, plan::backward_view(ref()));
}

namespace {

std::string first_difference(const char* part, std::span<const std::byte> a,
                             std::span<const std::byte> b) {
  if (a.size() != b.size()) {
    return std::string(part) + " part: " + std::to_string(a.size()) + " bytes against " +
           std::to_string(b.size());
  }
  const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
  if (at == static_cast<std::ptrdiff_t>(a.size())) {
    return {};
  }
  return std::string(part) + " part: byte " + std::to_string(at) + " of " +
         std::to_string(a.size());
}

}  // namespace

std::string difference(const Plan& a, const Plan& b) {
  if (a.shape() != b.shape()) {
    return "shapes";
  }
  std::string where = first_difference("forward", a.forward(), b.forward());
  return where.empty() ? first_difference("backward", a.backward(), b.backward()) : where;
}

}  // namespace kpage
