#include <array>
#include <utility>
#include <vector>

#include <torch/csrc/stable/ops.h>

#include "kpage/tokens.h"

#include "api/operands.h"
#include "base/message.h"
#include "ops.h"
#include "tensors.h"

namespace kpage::bindings {
namespace {

using torch::headeronly::ScalarType;

// [rows], [heads, rows] or [batch, heads, rows] as [batch, heads, rows].
IndexRef index_ref(const Tensor& index, std::int64_t batch, std::int64_t heads) {
  if (index.scalar_type() != ScalarType::Int) {
    throw_if_error(
        invalid_argument("index", "int32", torch::headeronly::toString(index.scalar_type())));
  }
  const std::int64_t dims = index.dim();
  const bool fits = dims == 1 || (dims == 2 && index.size(0) == heads) ||
                    (dims == 3 && index.size(0) == batch && index.size(1) == heads);
  if (!fits) {
    throw_if_error(invalid_argument(
        "index", text("shape [rows], [", heads, ", rows] or [", batch, ", ", heads, ", rows]"),
        api::list_text({index.sizes().data(), static_cast<std::size_t>(dims)})));
  }
  IndexRef ref;
  ref.data = static_cast<std::int32_t*>(const_cast<void*>(index.const_data_ptr()));
  ref.device = device_of(index);
  ref.shape = {batch, heads, index.size(dims - 1)};
  for (std::int64_t i = 0; i < dims; ++i) {
    ref.stride[static_cast<std::size_t>(3 - dims + i)] = index.stride(i);
  }
  return ref;
}

void check_floating(const Tensor& x) {
  const ScalarType type = x.scalar_type();
  if (type != ScalarType::BFloat16 && type != ScalarType::Half && type != ScalarType::Float &&
      type != ScalarType::Double) {
    throw_if_error(invalid_argument("x", "bfloat16, float16, float32 or float64",
                                    torch::headeronly::toString(type)));
  }
}

}  // namespace

Tensor gather_rows(const Tensor& x, const Tensor& index, const std::optional<Tensor>& inverse,
                   bool bshd) {
  const auto device_guard = guard(x);
  check_floating(x);
  const Order order = bshd ? Order::kBshd : Order::kBhsd;
  GatherArgs args;
  args.x = input("x", x, order);
  args.index = index_ref(index, args.x.shape[0], args.x.shape[1]);
  if (inverse) {
    const std::int64_t rows = index_ref(*inverse, args.x.shape[0], args.x.shape[1]).shape[2];
    if (args.x.shape[2] != rows) {
      throw_if_error(invalid_argument("x", text(rows, " rows as the order has"), args.x.shape[2]));
    }
  }
  std::array<std::int64_t, 4> shape = args.x.shape;
  shape[2] = args.index.shape[2];
  if (bshd) {
    std::swap(shape[1], shape[2]);
  }
  const Tensor out = empty(x, shape, x.scalar_type());
  args.out = output("out", out, order);
  args.stream = current_stream(x);
  args.threads = static_cast<std::int32_t>(torch::stable::get_num_threads());
  throw_if_error(kpage::gather_rows(args));
  return out;
}

Tensor invert_index(const Tensor& index, std::int64_t rows) {
  const auto device_guard = guard(index);
  if (index.dim() < 1 || index.dim() > 3) {
    throw_if_error(invalid_argument("index", "a tensor of 1 to 3 dimensions", index.dim()));
  }
  if (rows < 0) {
    throw_if_error(invalid_argument("rows", "at least 0", rows));
  }
  const std::int64_t heads = index.dim() > 1 ? index.size(index.dim() - 2) : 1;
  const std::int64_t batch = index.dim() > 2 ? index.size(0) : 1;
  std::vector<std::int64_t> shape(index.sizes().begin(), index.sizes().end());
  shape.back() = rows;
  const Tensor inverse = empty(index, shape, ScalarType::Int);
  InvertArgs args;
  args.index = index_ref(index, batch, heads);
  args.inverse.data = static_cast<std::int32_t*>(inverse.mutable_data_ptr());
  args.inverse.device = args.index.device;
  args.inverse.shape = {batch, heads, rows};
  args.inverse.stride = {heads * rows, rows, 1};
  args.stream = current_stream(index);
  args.threads = static_cast<std::int32_t>(torch::stable::get_num_threads());
  throw_if_error(kpage::invert_index(args));
  return inverse;
}

}  // namespace kpage::bindings
