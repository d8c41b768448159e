#include "kpage/tokens.h"

#include <array>
#include <limits>
#include <string_view>

#include "api/checks.h"
#include "api/operands.h"
#include "base/message.h"
#include "cpu/tokens.h"

#if KPAGE_HAS_CUDA
#include "kernels/tokens/launch.h"
#endif

namespace kpage {
namespace {

using api::Use;

api::Operand operand(std::string_view name, const IndexRef& t, Use use) {
  return {name, t.data, t.device, std::int64_t{sizeof(std::int32_t)}, t.shape, t.stride, use};
}

Status check_sizes(std::string_view name, std::span<const std::int64_t> shape) {
  for (const std::int64_t size : shape) {
    if (size < 0) {
      return invalid_argument(name, "sizes of at least 0", api::list_text(shape));
    }
  }
  if (shape[2] > std::numeric_limits<std::int32_t>::max()) {
    return invalid_argument(name, "a number of rows that an int32 counts", shape[2]);
  }
  return {};
}

Status check_threads(std::int32_t threads) {
  return threads < 0 ? invalid_argument("threads", "at least 0", threads) : Status();
}

Status check(const GatherArgs& args) {
  if (Status status = api::check_dtype("x", args.x.dtype); !status.ok()) {
    return status;
  }
  if (args.out.dtype != args.x.dtype) {
    return invalid_argument("out", text(api::dtype_name(args.x.dtype), " as x"),
                            api::dtype_name(args.out.dtype));
  }
  if (Status status = check_sizes("x", args.x.shape); !status.ok()) {
    return status;
  }
  if (Status status = check_sizes("index", args.index.shape); !status.ok()) {
    return status;
  }
  const auto& [batch, heads, rows, head_dim] = args.x.shape;
  const std::int64_t places = args.index.shape[2];
  if (Status status = api::check_shape("index", args.index.shape, {batch, heads, places});
      !status.ok()) {
    return status;
  }
  if (Status status = api::check_shape("out", args.out.shape, {batch, heads, places, head_dim});
      !status.ok()) {
    return status;
  }
  const std::array operands = {api::operand("x", args.x, Use::kIn),
                               operand("index", args.index, Use::kIn),
                               api::operand("out", args.out, Use::kOut)};
  if (Status status = api::check_operands(operands, args.x.device, "x"); !status.ok()) {
    return status;
  }
  return check_threads(args.threads);
}

Status check(const InvertArgs& args) {
  if (Status status = check_sizes("index", args.index.shape); !status.ok()) {
    return status;
  }
  if (Status status = check_sizes("inverse", args.inverse.shape); !status.ok()) {
    return status;
  }
  const std::int64_t rows = args.inverse.shape[2];
  if (Status status = api::check_shape("inverse", args.inverse.shape,
                                       {args.index.shape[0], args.index.shape[1], rows});
      !status.ok()) {
    return status;
  }
  const std::array operands = {operand("index", args.index, Use::kIn),
                               operand("inverse", args.inverse, Use::kOut)};
  if (Status status = api::check_operands(operands, args.index.device, "index"); !status.ok()) {
    return status;
  }
  const std::array<std::int64_t, 3> contiguous = {args.index.shape[1] * rows, rows, 1};
  for (std::size_t i = 0; i < contiguous.size(); ++i) {
    if (args.inverse.shape[i] > 1 && args.inverse.stride[i] != contiguous[i]) {
      return invalid_argument("inverse", text("strides ", api::list_text(contiguous)),
                              api::list_text(args.inverse.stride));
    }
  }
  return check_threads(args.threads);
}

}  // namespace

Status gather_rows(const GatherArgs& args) {
  if (Status status = check(args); !status.ok()) {
    return status;
  }
  if (args.x.device.type == DeviceType::kCpu) {
    cpu::gather_rows(args);
    return {};
  }
#if KPAGE_HAS_CUDA
  return kernels::gather_rows(args);
#else
  return api::no_cuda("tokens");
#endif
}

Status invert_index(const InvertArgs& args) {
  if (Status status = check(args); !status.ok()) {
    return status;
  }
  if (args.index.device.type == DeviceType::kCpu) {
    return cpu::invert_index(args);
  }
#if KPAGE_HAS_CUDA
  return kernels::invert_index(args);
#else
  return api::no_cuda("tokens");
#endif
}

}  // namespace kpage
