#include "api/checks.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <vector>

#include "api/operands.h"
#include "api/plan_checks.h"
#include "base/message.h"

namespace kpage::api {
namespace {

// What q, k and the plan say of every other shape.
struct Sizes {
  std::int64_t batch, heads, kv_heads, q_rows, kv_rows, head_dim;

  [[nodiscard]] std::vector<std::int64_t> q() const { return {batch, heads, q_rows, head_dim}; }
  [[nodiscard]] std::vector<std::int64_t> kv() const {
    return {batch, kv_heads, kv_rows, head_dim};
  }
  [[nodiscard]] std::vector<std::int64_t> rows() const { return {batch, heads, q_rows}; }
};

Sizes sizes_of(const TensorRef& q, const TensorRef& k) {
  return {q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3]};
}

Status check_dtype(std::string_view name, const TensorRef& t, const TensorRef& q,
                   CpuPolicy policy) {
  if (policy == CpuPolicy::kExact && q.device.type == DeviceType::kCpu) {
    return {};
  }
  if (t.dtype != DType::kBFloat16 && t.dtype != DType::kFloat16) {
    return invalid_argument(name,
                            "bfloat16 or float16 (attention multiplies in 16 bits: convert first)",
                            dtype_name(t.dtype));
  }
  if (t.dtype != q.dtype) {
    return invalid_argument(name, text(dtype_name(q.dtype), " as q"), dtype_name(t.dtype));
  }
  return {};
}

Status check_sizes(const Sizes& s, const TensorRef& q, const TensorRef& k, const PlanShape& plan) {
  const auto check_counts = [](std::string_view name, const TensorRef& t) -> Status {
    for (const std::int64_t size : t.shape) {
      if (size < 0) {
        return invalid_argument(name, "sizes of at least 0", list_text(t.shape));
      }
    }
    if (t.shape[2] > kMaxRows) {
      return invalid_argument(name, text("at most ", kMaxRows, " rows"), t.shape[2]);
    }
    return {};
  };
  if (Status status = check_counts("q", q); !status.ok()) {
    return status;
  }
  if (Status status = check_counts("k", k); !status.ok()) {
    return status;
  }
  if (s.batch != plan.batch) {
    return invalid_argument("q", text("batch ", plan.batch, " as in the plan"), s.batch);
  }
  if (s.heads != plan.heads) {
    return invalid_argument("q", text(plan.heads, " heads as in the plan"), s.heads);
  }
  if (s.head_dim < 1) {
    return invalid_argument("q", "a head dimension of at least 1", s.head_dim);
  }
  if (k.shape[0] != s.batch || k.shape[3] != s.head_dim) {
    return invalid_argument("k",
                            text("batch ", s.batch, " and head dimension ", s.head_dim, " as in q"),
                            list_text(k.shape));
  }
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0) {
    return invalid_argument("k", text("a number of heads that divides the ", s.heads, " of q"),
                            s.kv_heads);
  }
  return {};
}

Status check_scalars(const std::optional<double>& scale, std::int32_t threads) {
  if (scale && !std::isfinite(*scale)) {
    return invalid_argument("scale", "a finite number", *scale);
  }
  // Backends take powers of two, so that scores come times log2(e).
  if (scale && !std::isfinite(static_cast<float>(*scale * std::numbers::log2e))) {
    return invalid_argument("scale", "a number that is finite in fp32, also times log2(e)", *scale);
  }
  if (threads < 0) {
    return invalid_argument("threads", "at least 0", threads);
  }
  return {};
}

// A tensor with the shape that the others imply for it.
struct Named {
  std::string_view name;
  const TensorRef& tensor;
  bool of_kv;
  Use use;
};

struct NamedRows {
  std::string_view name;
  const RowsRef& rows;
  Use use;
};

template <class Args>
Status check_all(const Args& args, std::initializer_list<Named> tensors,
                 std::initializer_list<NamedRows> rows, bool needs_backward) {
  const Sizes sizes = sizes_of(args.q, args.k);
  for (const Named& t : tensors) {
    if (Status status = check_dtype(t.name, t.tensor, args.q, args.cpu_policy); !status.ok()) {
      return status;
    }
  }
  if (Status status = check_plan(args.plan, args.q.device, needs_backward); !status.ok()) {
    return status;
  }
  if (Status status = check_sizes(sizes, args.q, args.k, args.plan.shape); !status.ok()) {
    return status;
  }
  std::vector<Operand> operands;
  for (const Named& t : tensors) {
    if (Status status = check_shape(t.name, t.tensor.shape, t.of_kv ? sizes.kv() : sizes.q());
        !status.ok()) {
      return status;
    }
    operands.push_back(operand(t.name, t.tensor, t.use));
  }
  for (const NamedRows& t : rows) {
    if (Status status = check_shape(t.name, t.rows.shape, sizes.rows()); !status.ok()) {
      return status;
    }
    operands.push_back(operand(t.name, t.rows, t.use));
  }
  if (Status status = check_operands(operands, args.q.device, "q"); !status.ok()) {
    return status;
  }
  if (Status status = check_plan_rows(args.plan, sizes.q_rows, sizes.kv_rows); !status.ok()) {
    return status;
  }
  return check_scalars(args.scale, args.threads);
}

}  // namespace

Status check(const ForwardArgs& args) {
  return check_all(args,
                   {{"q", args.q, false, Use::kIn},
                    {"k", args.k, true, Use::kIn},
                    {"v", args.v, true, Use::kIn},
                    {"o", args.o, false, Use::kOut}},
                   {{"lse", args.lse, Use::kOut}}, /*needs_backward=*/false);
}

Status check(const BackwardArgs& args) {
  const std::initializer_list<Named> tensors = {
      {"q", args.q, false, Use::kIn},     {"k", args.k, true, Use::kIn},
      {"v", args.v, true, Use::kIn},      {"o", args.o, false, Use::kIn},
      {"d_o", args.d_o, false, Use::kIn}, {"dq", args.dq, false, Use::kOut},
      {"dk", args.dk, true, Use::kOut},   {"dv", args.dv, true, Use::kOut}};
  if (args.d_lse.data == nullptr) {
    return check_all(args, tensors, {{"lse", args.lse, Use::kIn}}, /*needs_backward=*/true);
  }
  return check_all(args, tensors, {{"lse", args.lse, Use::kIn}, {"d_lse", args.d_lse, Use::kIn}},
                   /*needs_backward=*/true);
}

Status check_workspace(const std::byte* workspace, std::int64_t bytes, std::int64_t required) {
  constexpr std::uintptr_t kAlignment = 128;
  if (required == 0) {
    return {};
  }
  if (workspace == nullptr || bytes < required) {
    return invalid_argument("workspace", text("at least ", required, " bytes"),
                            workspace == nullptr ? 0 : bytes);
  }
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(workspace) % kAlignment;
  if (offset != 0) {
    return invalid_argument("workspace", text("an address that is a multiple of ", kAlignment),
                            text("one that is ", offset, " past it"));
  }
  return {};
}

Status no_cuda(std::string_view what) {
  return {ErrorCode::kUnsupported,
          text(what, " on a CUDA device: this build of KPage has no CUDA")};
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
  }
  return "an unknown dtype";
}

std::string_view device_name(DeviceType type) { return type == DeviceType::kCpu ? "cpu" : "cuda"; }

std::string device_text(const Device& device) {
  return device.type == DeviceType::kCpu ? "cpu" : text("cuda:", device.index);
}

}  // namespace kpage::api
