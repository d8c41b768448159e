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

Status leading_map(const LeadingArgs& args) {
  if (args.dtype == DType::kFloat64) {
    return invalid_argument("scores", "bfloat16, float16 or float32", "float64");
  }
  if (!(args.limit >= 0.0 && args.limit <= 1.0)) {
    return invalid_argument("limit", "a number in [0, 1]", args.limit);
  }
  if (args.least < 0 || args.least > args.columns) {
    return invalid_argument("least", text("0 to the ", args.columns, " columns"), args.least);
  }
  const std::int64_t rows = args.groups * args.rows;
  Status status = first_error({check_counts("scores", args.groups, args.rows),
                               check_counts("scores", args.rows, args.columns),
                               api::check_dtype("scores", args.dtype),
                               check_data("scores", args.scores, rows * args.columns),
                               check_data("map", args.map, rows * args.columns)});
  if (!status.ok() || rows == 0 || args.columns == 0) {
    return status;
  }
  if (args.device.type == DeviceType::kCpu) {
    cpu::leading_map(args);
    return {};
  }
  return KPAGE_ON_CUDA(leading_map(args));
}

Status lists_of_map(const ListsArgs& args) {
  if (args.row_of_list == nullptr && args.lists != args.rows) {
    return invalid_argument("lists", text("the ", args.rows, " rows of the map"), args.lists);
  }
  if (args.column_of_id == nullptr && args.ids != args.columns) {
    return invalid_argument("ids", text("the ", args.columns, " columns of the map"), args.ids);
  }
  const std::int64_t lists = args.groups * args.lists;
  Status status = first_error(
      {check_counts("map", args.groups, args.rows), check_counts("map", args.rows, args.columns),
       check_counts("lists", args.groups, args.lists), check_counts("ids", args.groups, args.ids),
       check_counts("max_list", args.groups, args.max_list),
       check_data("map", args.map, args.groups * args.rows * args.columns),
       check_data("index", args.index, lists * args.max_list),
       check_data("nums", args.nums, lists)});
  if (!status.ok() || lists == 0) {
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

Status cluster_order(const ClusterOrderArgs& args) {
  if (args.clusters < 1) {
    return invalid_argument("clusters", "at least 1", args.clusters);
  }
  Status status = first_error({check_counts("labels", args.slices, args.rows),
                               check_counts("clusters", args.slices, args.clusters),
                               check_data("labels", args.labels, args.slices * args.rows),
                               check_data("order", args.order, args.slices * args.rows),
                               check_data("places", args.places, args.slices * args.rows),
                               check_data("sizes", args.sizes, args.slices * args.clusters),
                               check_data("offsets", args.offsets, args.slices * args.clusters)});
  if (!status.ok() || args.slices == 0) {
    return status;
  }
  if (args.device.type == DeviceType::kCpu) {
    cpu::cluster_order(args);
    return {};
  }
  return KPAGE_ON_CUDA(cluster_order(args));
}

Status cluster_means(const ClusterMeansArgs& args) {
  const std::int64_t slices = args.x.shape[0] * args.x.shape[1];
  const std::int64_t clusters = slices * args.clusters;
  const std::array operands = {api::operand("x", args.x, api::Use::kIn)};
  Status status = first_error(
      {api::check_dtype("x", args.x.dtype), check_counts("clusters", slices, args.clusters),
       api::check_operands(operands, args.x.device, "x"),
       check_data("order", args.order, slices * args.x.shape[2]),
       check_data("sizes", args.sizes, clusters), check_data("offsets", args.offsets, clusters),
       check_data("centroids", args.centroids, clusters * args.x.shape[3]),
       check_data("means", args.means, clusters * args.x.shape[3]),
       check_data("shifts", args.shifts, clusters)});
  if (!status.ok() || clusters == 0) {
    return status;
  }
  if (args.x.device.type == DeviceType::kCpu) {
    cpu::cluster_means(args);
    return {};
  }
  return KPAGE_ON_CUDA(cluster_means(args));
}

Status cluster_blocks(const ClusterBlocksArgs& args) {
  const std::int64_t blocks = args.slices * args.blocks;
  Status status = first_error({check_counts("sizes", args.slices, args.clusters),
                               check_counts("blocks", args.slices, args.blocks),
                               check_data("sizes", args.sizes, args.slices * args.clusters),
                               check_data("cluster", args.cluster, blocks),
                               check_data("block_sizes", args.block_sizes, blocks),
                               check_data("block_offsets", args.block_offsets, blocks)});
  if (!status.ok() || blocks == 0) {
    return status;
  }
  if (args.device.type == DeviceType::kCpu) {
    cpu::cluster_blocks(args);
    return {};
  }
  return KPAGE_ON_CUDA(cluster_blocks(args));
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
