#include <array>

#include <torch/csrc/stable/ops.h>

#include "kpage/attention.h"

#include "ops.h"
#include "tensors.h"

namespace kpage::bindings {
namespace {

using torch::headeronly::ScalarType;

Order order_of(bool bshd) { return bshd ? Order::kBshd : Order::kBhsd; }

Tensor contiguous_like(const Tensor& t) {
  return empty(t, {t.sizes().begin(), t.sizes().end()}, t.scalar_type());
}

Tensor rows_like(const Tensor& q, Order order) {
  const std::int64_t heads = q.size(order == Order::kBhsd ? 1 : 2);
  const std::int64_t rows = q.size(order == Order::kBhsd ? 2 : 1);
  return empty(q, std::array{q.size(0), heads, rows}, ScalarType::Float);
}

// Autograd hands over gradients with any strides, such as those of an expanded scalar. Backends
// read rows, and kernels ask for strides of whole slabs of 64 columns.
Tensor with_rows(std::string_view name, const Tensor& t) {
  constexpr std::int64_t kSlab = 64;
  const std::int64_t last = t.dim() - 1;
  bool has_rows = t.dim() == 0 || t.stride(last) == 1;
  for (std::int64_t i = 0; i < last; ++i) {
    has_rows = has_rows && (t.size(i) == 1 || (t.stride(i) > 0 && t.stride(i) % kSlab == 0));
  }
  return has_rows ? t : contiguous(name, t);
}

template <class Args>
void set_workspace(Args& args, const Tensor& workspace) {
  args.workspace = static_cast<std::byte*>(workspace.mutable_data_ptr());
  args.workspace_bytes = workspace.numel();
}

template <class Args>
Args common_args(const Tensor& q, const Tensor& k, const Tensor& v, Order order) {
  Args args;
  args.q = input("q", q, order);
  args.k = input("k", k, order);
  args.v = input("v", v, order);
  args.stream = current_stream(q);
  args.threads = static_cast<std::int32_t>(torch::stable::get_num_threads());
  return args;
}

}  // namespace

std::tuple<Tensor, Tensor> attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& plan,
                                             const std::optional<Tensor>& plan_backward,
                                             const Shape& plan_shape, std::optional<double> scale,
                                             bool bshd, bool /*deterministic*/) {
  const auto device_guard = guard(q);
  const Order order = order_of(bshd);
  ForwardArgs args = common_args<ForwardArgs>(q, k, v, order);
  args.plan = plan_ref(plan, plan_backward, plan_shape);
  args.scale = scale;
  const Tensor o = contiguous_like(q);
  const Tensor lse = rows_like(q, order);
  args.o = output("o", o, order);
  args.lse = output_rows("lse", lse);
  const Tensor workspace = empty_bytes(q, forward_workspace_bytes(args));
  set_workspace(args, workspace);
  throw_if_error(kpage::attention_forward(args));
  return {o, lse};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(
    const Tensor& d_o, const std::optional<Tensor>& d_lse, const Tensor& q, const Tensor& k,
    const Tensor& v, const Tensor& o, const Tensor& lse, const Tensor& plan,
    const Tensor& plan_backward, const Shape& plan_shape, std::optional<double> scale, bool bshd,
    bool deterministic) {
  const auto device_guard = guard(q);
  const Order order = order_of(bshd);
  BackwardArgs args = common_args<BackwardArgs>(q, k, v, order);
  args.plan = plan_ref(plan, plan_backward, plan_shape);
  args.scale = scale;
  args.deterministic = deterministic;
  const Tensor rows_of_d_o = with_rows("d_o", d_o);
  args.o = input("o", o, order);
  args.lse = input_rows("lse", lse);
  args.d_o = input("d_o", rows_of_d_o, order);
  if (d_lse) {
    args.d_lse = input_rows("d_lse", *d_lse);
  }
  const Tensor dq = contiguous_like(q);
  const Tensor dk = contiguous_like(k);
  const Tensor dv = contiguous_like(v);
  args.dq = output("dq", dq, order);
  args.dk = output("dk", dk, order);
  args.dv = output("dv", dv, order);
  const Tensor workspace = empty_bytes(q, backward_workspace_bytes(args));
  set_workspace(args, workspace);
  throw_if_error(kpage::attention_backward(args));
  return {dq, dk, dv};
}

}  // namespace kpage::bindings
