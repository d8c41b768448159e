#include "kpage/select.h"

#include <array>
#include <limits>
#include <string_view>

#include "api/checks.h"
#include "api/operands.h"
#include "base/message.h"
#include "cpu/select.h"

#if KPAGE_HAS_CUDA
#include "kernels/select/launch.h"
#endif

namespace kpage {
namespace {

Status check_counts(std::string_view name, std::int64_t rows, std::int64_t columns) {
  if (rows < 0 || columns < 0) {
    return invalid_argument(name, "sizes of at least 0", text("[", rows, ", ", columns, "]"));
  }
  if (columns > std::numeric_limits<std::int32_t>::max()) {
    return invalid_argument(name, "columns that an int32 counts", columns);
  }
  return {};
}

Status check_data(std::string_view name, const void* data, std::int64_t elements) {
  return data == nullptr && elements > 0
             ? invalid_argument(name, text("memory of ", elements, " elements"), "null")
             : Status();
}

Status check_dtype(std::string_view name, DType dtype) {
  return size_of(dtype) == 0
             ? invalid_argument(name, "a dtype of this library", static_cast<std::int32_t>(dtype))
             : Status();
}

// The first that is wrong.
template <class... Checks>
Status first_error(const Checks&... checks) {
  Status status;
  (void)((status = checks(), !status.ok()) || ...);
  return status;
}

#if KPAGE_HAS_CUDA
#define KPAGE_ON_CUDA(call) kernels::call
#else
#define KPAGE_ON_CUDA(call) no_cuda()
Status no_cuda() {
  return {ErrorCode::kUnsupported, "selectors on a CUDA device: this build of KPage has no CUDA"};
}
#endif

}  // namespace

Status top_k(const TopKArgs& args) {
  Status status = first_error(
      [&] { return check_counts("scores", args.rows, args.columns); },
      [&] {
        return args.dtype == DType::kFloat64
                   ? invalid_argument("scores", "bfloat16, float16 or float32", "float64")
                   : check_dtype("scores", args.dtype);
      },
      [&] {
        return args.keep < 0 || args.keep > args.columns
                   ? invalid_argument("keep", text("0 to the ", args.columns, " columns"),
                                      args.keep)
                   : Status();
      },
      [&] { return check_data("scores", args.scores, args.rows * args.columns); },
      [&] { return check_data("index", args.index, args.rows * args.keep); });
  if (!status.ok() || args.rows == 0 || args.keep == 0) {
    return status;
  }
  if (args.device.type == DeviceType::kCpu) {
    cpu::top_k(args);
    return {};
  }
  return KPAGE_ON_CUDA(top_k(args));
}

Status lists_of_map(const ListsArgs& args) {
  Status status =
      first_error([&] { return check_counts("map", args.rows, args.columns); },
                  [&] { return check_counts("max_list", args.rows, args.max_list); },
                  [&] { return check_data("map", args.map, args.rows * args.columns); },
                  [&] { return check_data("index", args.index, args.rows * args.max_list); },
                  [&] { return check_data("nums", args.nums, args.rows); });
  if (!status.ok() || args.rows == 0) {
    return status;
  }
  if (args.device.type == DeviceType::kCpu) {
    cpu::lists_of_map(args);
    return {};
  }
  return KPAGE_ON_CUDA(lists_of_map(args));
}

Status block_sums(const BlockSumsArgs& args) {
  const std::int64_t sums = args.x.shape[0] * args.x.shape[1] * args.blocks * args.x.shape[3];
  const std::int64_t partition =
      args.per_head ? args.x.shape[0] * args.x.shape[1] * args.blocks : args.blocks;
  const std::array operands = {api::operand("x", args.x, api::Use::kIn)};
  Status status = first_error([&] { return check_dtype("x", args.x.dtype); },
                              [&] { return check_counts("blocks", args.blocks, args.blocks); },
                              [&] { return api::check_operands(operands, args.x.device, "x"); },
                              [&] { return check_data("sizes", args.sizes, partition); },
                              [&] { return check_data("offsets", args.offsets, partition); },
                              [&] { return check_data("sums", args.sums, sums); });
  if (!status.ok() || sums == 0) {
    return status;
  }
  if (args.x.device.type == DeviceType::kCpu) {
    cpu::block_sums(args);
    return {};
  }
  return KPAGE_ON_CUDA(block_sums(args));
}

Status nearest_centroids(const NearestArgs& args) {
  const auto& [batch, heads, rows, head_dim] = args.x.shape;
  const std::int64_t slices = batch * heads;
  const std::array operands = {api::operand("x", args.x, api::Use::kIn)};
  Status status = first_error(
      [&] { return check_dtype("x", args.x.dtype); },
      [&] { return api::check_operands(operands, args.x.device, "x"); },
      [&] { return check_counts("x", slices, rows); },
      [&] { return check_counts("centroids", slices, args.clusters); },
      [&] {
        return args.clusters < 1 ? invalid_argument("clusters", "at least 1", args.clusters)
                                 : Status();
      },
      [&] { return check_data("centroids", args.centroids, slices * args.clusters * head_dim); },
      [&] { return check_data("half_squares", args.half_squares, slices * args.clusters); },
      [&] { return check_data("labels", args.labels, slices * rows); });
  if (!status.ok() || slices == 0 || rows == 0) {
    return status;
  }
  if (args.x.device.type == DeviceType::kCpu) {
    return {ErrorCode::kUnsupported, "nearest_centroids: CUDA devices only"};
  }
  return KPAGE_ON_CUDA(nearest_centroids(args));
}

}  // namespace kpage
