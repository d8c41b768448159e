#include "kpage/select.h"

#include <algorithm>
#include <array>
#include <initializer_list>
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

Status check_keep(std::int64_t keep, std::int64_t columns) {
  return keep < 0 || keep > columns
             ? invalid_argument("keep", text("0 to the ", columns, " columns"), keep)
             : Status();
}

// The first that is wrong.
Status first_error(std::initializer_list<Status> statuses) {
  const auto* found =
      std::find_if(statuses.begin(), statuses.end(), [](const Status& s) { return !s.ok(); });
  return found == statuses.end() ? Status() : *found;
}

#if KPAGE_HAS_CUDA
#define KPAGE_ON_CUDA(call) kernels::call
#else
#define KPAGE_ON_CUDA(call) api::no_cuda("selectors")
#endif

}  // namespace

Status top_k(const TopKArgs& args) {
  if (args.dtype == DType::kFloat64) {
    return invalid_argument("scores", "bfloat16, float16 or float32", "float64");
  }
  Status status =
      first_error({check_counts("scores", args.rows, args.columns),
                   api::check_dtype("scores", args.dtype), check_keep(args.keep, args.columns),
                   check_data("scores", args.scores, args.rows * args.columns),
                   check_data("index", args.index, args.rows * args.keep)});
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
  Status status = first_error({check_counts("map", args.rows, args.columns),
                               check_counts("max_list", args.rows, args.max_list),
                               check_data("map", args.map, args.rows * args.columns),
                               check_data("index", args.index, args.rows * args.max_list),
                               check_data("nums", args.nums, args.rows)});
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
  const std::int64_t slices = args.x.shape[0] * args.x.shape[1];
  const std::int64_t partition = args.per_head ? slices * args.blocks : args.blocks;
  const std::int64_t sums = slices * args.blocks * args.x.shape[3];
  const std::array operands = {api::operand("x", args.x, api::Use::kIn)};
  Status status = first_error(
      {api::check_dtype("x", args.x.dtype), check_counts("blocks", args.blocks, args.blocks),
       api::check_operands(operands, args.x.device, "x"),
       check_data("sizes", args.sizes, partition), check_data("offsets", args.offsets, partition),
       check_data("sums", args.sums, sums)});
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
  if (args.clusters < 1) {
    return invalid_argument("clusters", "at least 1", args.clusters);
  }
  const std::int64_t slices = args.x.shape[0] * args.x.shape[1];
  const std::int64_t rows = args.x.shape[2];
  const std::int64_t centroids = slices * args.clusters;
  const std::array operands = {api::operand("x", args.x, api::Use::kIn)};
  Status status = first_error(
      {api::check_dtype("x", args.x.dtype), api::check_operands(operands, args.x.device, "x"),
       check_counts("x", slices, rows), check_counts("centroids", slices, args.clusters),
       check_data("centroids", args.centroids, centroids),
       check_data("half_squares", args.half_squares, centroids),
       check_data("labels", args.labels, slices * rows)});
  if (!status.ok() || slices == 0 || rows == 0) {
    return status;
  }
  if (args.x.device.type == DeviceType::kCpu) {
    return {ErrorCode::kUnsupported, "nearest_centroids: CUDA devices only"};
  }
  return KPAGE_ON_CUDA(nearest_centroids(args));
}

}  // namespace kpage
