#include "oracle/problem.h"

#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "base/elements.h"
#include "base/message.h"

namespace kpage::oracle {
namespace {

std::string shape_of(const std::array<std::int64_t, 4>& shape) {
  return shape_text({shape[0], shape[1], shape[2], shape[3]});
}
std::string shape_of(const std::array<std::int64_t, 3>& shape) {
  return shape_text({shape[0], shape[1], shape[2]});
}

template <class Tensor, class Shape>
Status check_tensor(std::string_view name, const Tensor& tensor, const Shape& shape) {
  if (tensor.device.type != DeviceType::kCpu) {
    return invalid_argument(name, "host memory", "device memory");
  }
  if (tensor.shape != shape) {
    return invalid_argument(name, "shape " + shape_of(shape), shape_of(tensor.shape));
  }
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    elements *= extent;
  }
  if (tensor.data == nullptr && elements > 0) {
    return invalid_argument(name, "data", "a null pointer");
  }
  return {};
}

Status check_strides(std::string_view name, const TensorRef& tensor) {
  return tensor.stride[3] == 1 ? Status()
                               : invalid_argument(name, "a last stride of 1", tensor.stride[3]);
}

std::array<std::int64_t, 3> rows_shape(const TensorRef& q) {
  return {q.shape[0], q.shape[1], q.shape[2]};
}

Status check_rows(std::string_view name, const PartitionView& side, std::int64_t scopes,
                  std::int64_t rows) {
  const std::int64_t blocks = scopes * side.blocks;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t offset =
        side.offsets != nullptr ? side.offsets[i] : std::int64_t{kBlockRows} * (i % side.blocks);
    if (side.sizes[i] > 0 && offset + side.sizes[i] > rows) {
      return invalid_argument(name, text("at least ", offset + side.sizes[i], " rows"), rows);
    }
  }
  return {};
}

}  // namespace

Status check(const Problem& problem) {
  const LayoutView& layout = problem.layout;
  if (Status status = validate(layout); !status.ok()) {
    return status;
  }
  const TensorRef& q = problem.q;
  const TensorRef& k = problem.k;
  const auto with = [](std::int64_t batch, std::int64_t heads, std::int64_t rows,
                       std::int64_t head_dim) {
    return std::array<std::int64_t, 4>{batch, heads, rows, head_dim};
  };
  if (k.shape[1] <= 0 || layout.heads % k.shape[1] != 0) {
    return invalid_argument("k", text("a number of heads that divides ", layout.heads), k.shape[1]);
  }
  const auto q_shape = with(layout.batch, layout.heads, q.shape[2], q.shape[3]);
  const auto kv_shape = with(layout.batch, k.shape[1], k.shape[2], q.shape[3]);
  struct Named {
    std::string_view name;
    const TensorRef& tensor;
    const std::array<std::int64_t, 4>& shape;
  };
  for (const Named& named :
       {Named{"q", q, q_shape}, Named{"k", k, kv_shape}, Named{"v", problem.v, kv_shape}}) {
    if (Status status = check_tensor(named.name, named.tensor, named.shape); !status.ok()) {
      return status;
    }
    if (Status status = check_strides(named.name, named.tensor); !status.ok()) {
      return status;
    }
  }
  if (problem.scale && !std::isfinite(*problem.scale)) {
    return invalid_argument("scale", "a finite number", *problem.scale);
  }
  if (Status status = check_rows(
          "q", layout.q, scope_count(layout.q.scope, layout.batch, layout.heads), q.shape[2]);
      !status.ok()) {
    return status;
  }
  return check_rows("k", layout.kv, scope_count(layout.kv.scope, layout.batch, layout.heads),
                    k.shape[2]);
}

Status check(const Problem& problem, const OutputGradients& gradients) {
  if (Status status = check_tensor("d_o", gradients.d_o, problem.q.shape); !status.ok()) {
    return status;
  }
  if (Status status = check_strides("d_o", gradients.d_o); !status.ok()) {
    return status;
  }
  return gradients.d_lse.data == nullptr
             ? Status()
             : check_tensor("d_lse", gradients.d_lse, rows_shape(problem.q));
}

Status check(const Problem& problem, const ForwardOutputs& outputs) {
  if (Status status = check_tensor("o", outputs.o, problem.q.shape); !status.ok()) {
    return status;
  }
  if (Status status = check_strides("o", outputs.o); !status.ok()) {
    return status;
  }
  return check_tensor("lse", outputs.lse, rows_shape(problem.q));
}

double scale_of(const Problem& problem) {
  return problem.scale.value_or(1.0 / std::sqrt(static_cast<double>(problem.q.shape[3])));
}

std::int64_t kv_head_of(const Problem& problem, std::int64_t head) {
  return head / (problem.q.shape[1] / problem.k.shape[1]);
}

Matrix read_rows(const TensorRef& tensor, std::int64_t batch, std::int64_t head,
                 std::span<const std::int64_t> rows) {
  Matrix out(static_cast<Eigen::Index>(rows.size()), tensor.shape[3]);
  for (Eigen::Index i = 0; i < out.rows(); ++i) {
    read_row(tensor, batch, head, rows[static_cast<std::size_t>(i)], out.row(i).data());
  }
  return out;
}

Vector read_rows(const RowsRef& numbers, std::int64_t batch, std::int64_t head,
                 std::span<const std::int64_t> rows) {
  Vector out(static_cast<Eigen::Index>(rows.size()));
  for (Eigen::Index i = 0; i < out.size(); ++i) {
    out[i] = static_cast<double>(
        numbers.data[row_start(numbers, batch, head, rows[static_cast<std::size_t>(i)])]);
  }
  return out;
}

std::vector<std::int64_t> rows_of(const RowRange& range) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(range.count));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = range.first + static_cast<std::int64_t>(i);
  }
  return rows;
}

}  // namespace kpage::oracle
