// Steps of selectors. Shapes of results follow from the shapes of arguments.
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "kpage/select.h"

#include "base/message.h"
#include "ops.h"
#include "tensors.h"

namespace kpage::bindings {
namespace {

using torch::headeronly::ScalarType;

void check_type(std::string_view name, const Tensor& tensor, ScalarType type) {
  if (tensor.scalar_type() != type) {
    throw_if_error(invalid_argument(name, torch::headeronly::toString(type),
                                    torch::headeronly::toString(tensor.scalar_type())));
  }
}

void check_device(std::string_view name, const Tensor& tensor, const Tensor& like) {
  if (!(device_of(tensor) == device_of(like))) {
    throw_if_error(
        invalid_argument(name, "a tensor on the device of the first argument", "one on another"));
  }
}

void check_contiguous(std::string_view name, const Tensor& tensor) {
  if (!tensor.is_contiguous()) {
    throw_if_error(invalid_argument(name, "a contiguous tensor", "one with other strides"));
  }
}

void check_elements(std::string_view name, const Tensor& tensor, std::int64_t elements) {
  if (tensor.numel() != elements) {
    throw_if_error(invalid_argument(name, text(elements, " elements"), tensor.numel()));
  }
}

void check_ints(std::string_view name, const Tensor& tensor, const Tensor& like,
                std::int64_t elements) {
  check_type(name, tensor, ScalarType::Int);
  check_contiguous(name, tensor);
  check_device(name, tensor, like);
  check_elements(name, tensor, elements);
}

// [..., columns] as rows; the shape of the result is the same but for the columns.
struct Rows {
  std::int64_t rows;
  std::int64_t columns;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::vector<std::int64_t> with(std::int64_t count) const {
    std::vector<std::int64_t> out = shape;
    out.back() = count;
    return out;
  }
};

std::int64_t last_size(std::string_view name, const Tensor& tensor) {
  if (tensor.dim() < 1) {
    throw_if_error(invalid_argument(name, "at least 1 dimension", tensor.dim()));
  }
  return tensor.size(tensor.dim() - 1);
}

Rows rows_of(std::string_view name, const Tensor& tensor) {
  check_contiguous(name, tensor);
  Rows out{1, last_size(name, tensor), {tensor.sizes().begin(), tensor.sizes().end()}};
  for (std::size_t i = 0; i + 1 < out.shape.size(); ++i) {
    out.rows *= out.shape[i];
  }
  return out;
}

std::int32_t threads() { return static_cast<std::int32_t>(torch::stable::get_num_threads()); }

std::int32_t* ints_of(const Tensor& tensor) {
  return static_cast<std::int32_t*>(tensor.mutable_data_ptr());
}

DType score_type(const Tensor& scores) {
  switch (scores.scalar_type()) {
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    case ScalarType::Half:
      return DType::kFloat16;
    default:
      check_type("scores", scores, ScalarType::Float);
      return DType::kFloat32;
  }
}

Tensor top_k(const Tensor& scores, std::int64_t keep) {
  const auto device_guard = guard(scores);
  const Rows rows = rows_of("scores", scores);
  if (keep < 0 || keep > rows.columns) {
    throw_if_error(
        invalid_argument("keep", text("0 to the ", rows.columns, " columns of scores"), keep));
  }
  TopKArgs args;
  args.dtype = score_type(scores);
  const Tensor index = torch::stable::new_empty(scores, rows.with(keep), ScalarType::Int);
  args.scores = scores.const_data_ptr();
  args.device = device_of(scores);
  args.rows = rows.rows;
  args.columns = rows.columns;
  args.keep = keep;
  args.index = ints_of(index);
  args.stream = current_stream(scores);
  args.threads = threads();
  throw_if_error(kpage::top_k(args));
  return index;
}

// Scores [..., rows, columns]; counts [..., columns] where they are to become weights.
Tensor leading_map(const Tensor& scores, const std::optional<Tensor>& counts, double limit,
                   std::int64_t least, bool crosses) {
  const auto device_guard = guard(scores);
  const Rows rows = rows_of("scores", scores);
  const Tensor map = torch::stable::new_empty(scores, rows.shape, ScalarType::Bool);
  LeadingArgs args;
  args.scores = scores.const_data_ptr();
  args.dtype = score_type(scores);
  args.device = device_of(scores);
  args.rows = scores.dim() > 1 ? rows.shape[rows.shape.size() - 2] : 1;
  args.groups = args.rows == 0 ? 0 : rows.rows / args.rows;
  args.columns = rows.columns;
  if (counts) {
    check_ints("counts", *counts, scores, args.groups * args.columns);
    args.counts = static_cast<const std::int32_t*>(counts->const_data_ptr());
  }
  args.limit = limit;
  args.least = least;
  args.crosses = crosses;
  args.map = static_cast<std::uint8_t*>(map.mutable_data_ptr());
  args.stream = current_stream(scores);
  args.threads = threads();
  throw_if_error(kpage::leading_map(args));
  return map;
}

// A map [..., rows, columns]; rows int [..., lists] and columns int [..., ids] of it.
std::tuple<Tensor, Tensor> lists_of_map(const Tensor& map, std::int64_t max_list,
                                        const std::optional<Tensor>& row_of_list,
                                        const std::optional<Tensor>& column_of_id) {
  const auto device_guard = guard(map);
  check_type("map", map, ScalarType::Bool);
  const Rows rows = rows_of("map", map);
  if (max_list < 0) {
    throw_if_error(invalid_argument("max_list", "at least 0", max_list));
  }
  ListsArgs args;
  args.map = static_cast<const std::uint8_t*>(map.const_data_ptr());
  args.device = device_of(map);
  args.rows = map.dim() > 1 ? rows.shape[rows.shape.size() - 2] : 1;
  args.groups = args.rows == 0 ? 0 : rows.rows / args.rows;
  args.columns = rows.columns;
  args.lists = args.rows;
  args.ids = args.columns;
  std::vector<std::int64_t> shape = rows.shape;
  shape.pop_back();
  if (row_of_list) {
    args.lists = last_size("row_of_list", *row_of_list);
    check_ints("row_of_list", *row_of_list, map, args.groups * args.lists);
    args.row_of_list = static_cast<const std::int32_t*>(row_of_list->const_data_ptr());
    if (shape.empty()) {
      shape.resize(1);
    }
    shape.back() = args.lists;
  }
  if (column_of_id) {
    args.ids = last_size("column_of_id", *column_of_id);
    check_ints("column_of_id", *column_of_id, map, args.groups * args.ids);
    args.column_of_id = static_cast<const std::int32_t*>(column_of_id->const_data_ptr());
  }
  const Tensor nums = torch::stable::new_empty(map, shape, ScalarType::Int);
  shape.push_back(max_list);
  const Tensor index = torch::stable::new_empty(map, shape, ScalarType::Int);
  args.max_list = max_list;
  args.index = ints_of(index);
  args.nums = ints_of(nums);
  args.stream = current_stream(map);
  args.threads = threads();
  throw_if_error(kpage::lists_of_map(args));
  return {index, nums};
}

// block_of_row is what the gradient needs.
Tensor block_sums(const Tensor& x, const Tensor& sizes, const Tensor& offsets,
                  const std::optional<Tensor>& /*block_of_row*/) {
  const auto device_guard = guard(x);
  BlockSumsArgs args;
  args.x = input("x", x, Order::kBhsd);
  args.per_head = sizes.dim() == 3;
  const std::int64_t slices = args.x.shape[0] * args.x.shape[1];
  if (sizes.dim() != 1 && !args.per_head) {
    throw_if_error(invalid_argument("sizes", "1 or 3 dimensions", sizes.dim()));
  }
  args.blocks = sizes.size(sizes.dim() - 1);
  const std::int64_t partition = args.per_head ? slices * args.blocks : args.blocks;
  check_ints("sizes", sizes, x, partition);
  check_ints("offsets", offsets, x, partition);
  args.sizes = static_cast<const std::int32_t*>(sizes.const_data_ptr());
  args.offsets = static_cast<const std::int32_t*>(offsets.const_data_ptr());
  const std::vector<std::int64_t> shape{args.x.shape[0], args.x.shape[1], args.blocks,
                                        args.x.shape[3]};
  const Tensor sums = torch::stable::new_empty(x, shape, ScalarType::Float);
  args.sums = static_cast<float*>(sums.mutable_data_ptr());
  args.stream = current_stream(x);
  args.threads = threads();
  throw_if_error(kpage::block_sums(args));
  return sums;
}

// labels int [B, H, S] -> order and places [B, H, S], sizes and offsets [B, H, clusters].
std::tuple<Tensor, Tensor, Tensor, Tensor> cluster_order(const Tensor& labels,
                                                         std::int64_t clusters) {
  const auto device_guard = guard(labels);
  const Rows rows = rows_of("labels", labels);
  check_ints("labels", labels, labels, labels.numel());
  if (clusters < 1) {
    throw_if_error(invalid_argument("clusters", "at least 1", clusters));
  }
  const Tensor order = torch::stable::new_empty(labels, rows.shape, ScalarType::Int);
  const Tensor places = torch::stable::new_empty(labels, rows.shape, ScalarType::Int);
  const Tensor sizes = torch::stable::new_empty(labels, rows.with(clusters), ScalarType::Int);
  const Tensor offsets = torch::stable::new_empty(labels, rows.with(clusters), ScalarType::Int);
  ClusterOrderArgs args;
  args.labels = static_cast<const std::int32_t*>(labels.const_data_ptr());
  args.device = device_of(labels);
  args.slices = rows.rows;
  args.rows = rows.columns;
  args.clusters = clusters;
  args.order = ints_of(order);
  args.places = ints_of(places);
  args.sizes = ints_of(sizes);
  args.offsets = ints_of(offsets);
  args.stream = current_stream(labels);
  args.threads = threads();
  throw_if_error(kpage::cluster_order(args));
  return {order, places, sizes, offsets};
}

// x [B, H, S, D], order [B, H, S], sizes and offsets [B, H, C], centroids [B, H, C, D] -> means
// [B, H, C, D], shifts [B, H, C].
std::tuple<Tensor, Tensor> cluster_means(const Tensor& x, const Tensor& order, const Tensor& sizes,
                                         const Tensor& offsets, const Tensor& centroids) {
  const auto device_guard = guard(x);
  ClusterMeansArgs args;
  args.x = input("x", x, Order::kBhsd);
  args.clusters = last_size("sizes", sizes);
  const std::int64_t slices = args.x.shape[0] * args.x.shape[1];
  check_ints("order", order, x, slices * args.x.shape[2]);
  check_ints("sizes", sizes, x, slices * args.clusters);
  check_ints("offsets", offsets, x, slices * args.clusters);
  check_type("centroids", centroids, x.scalar_type());
  check_contiguous("centroids", centroids);
  check_device("centroids", centroids, x);
  check_elements("centroids", centroids, slices * args.clusters * args.x.shape[3]);
  const std::vector<std::int64_t> shape{args.x.shape[0], args.x.shape[1], args.clusters,
                                        args.x.shape[3]};
  const Tensor means = torch::stable::new_empty(x, shape, x.scalar_type());
  const Tensor shifts =
      torch::stable::new_empty(x, std::vector(shape.begin(), shape.end() - 1), ScalarType::Float);
  args.order = static_cast<const std::int32_t*>(order.const_data_ptr());
  args.sizes = static_cast<const std::int32_t*>(sizes.const_data_ptr());
  args.offsets = static_cast<const std::int32_t*>(offsets.const_data_ptr());
  args.centroids = centroids.const_data_ptr();
  args.means = means.mutable_data_ptr();
  args.shifts = static_cast<float*>(shifts.mutable_data_ptr());
  args.stream = current_stream(x);
  args.threads = threads();
  throw_if_error(kpage::cluster_means(args));
  return {means, shifts};
}

// sizes int [..., clusters] -> cluster, sizes and offsets of blocks, each [..., blocks].
std::tuple<Tensor, Tensor, Tensor> cluster_blocks(const Tensor& sizes, std::int64_t blocks) {
  const auto device_guard = guard(sizes);
  const Rows rows = rows_of("sizes", sizes);
  check_ints("sizes", sizes, sizes, sizes.numel());
  if (blocks < 0) {
    throw_if_error(invalid_argument("blocks", "at least 0", blocks));
  }
  const auto room = [&] {
    return torch::stable::new_empty(sizes, rows.with(blocks), ScalarType::Int);
  };
  const Tensor cluster = room();
  const Tensor block_sizes = room();
  const Tensor block_offsets = room();
  ClusterBlocksArgs args;
  args.sizes = static_cast<const std::int32_t*>(sizes.const_data_ptr());
  args.device = device_of(sizes);
  args.slices = rows.rows;
  args.clusters = rows.columns;
  args.blocks = blocks;
  args.cluster = ints_of(cluster);
  args.block_sizes = ints_of(block_sizes);
  args.block_offsets = ints_of(block_offsets);
  args.stream = current_stream(sizes);
  args.threads = threads();
  throw_if_error(kpage::cluster_blocks(args));
  return {cluster, block_sizes, block_offsets};
}

Tensor nearest_centroids(const Tensor& x, const Tensor& centroids) {
  const auto device_guard = guard(x);
  const TensorRef ref = input("x", x, Order::kBhsd);
  const TensorRef of_centroids = input("centroids", centroids, Order::kBhsd);
  const std::int64_t clusters = of_centroids.shape[2];
  check_type("centroids", centroids, x.scalar_type());
  check_elements("centroids", centroids, ref.shape[0] * ref.shape[1] * clusters * ref.shape[3]);
  check_contiguous("centroids", centroids);
  check_device("centroids", centroids, x);
  const std::vector<std::int64_t> squares{ref.shape[0], ref.shape[1], clusters};
  const Tensor half_squares = torch::stable::new_empty(x, squares, ScalarType::Float);
  const std::vector<std::int64_t> shape{ref.shape[0], ref.shape[1], ref.shape[2]};
  const Tensor labels = torch::stable::new_empty(x, shape, ScalarType::Int);
  NearestArgs args;
  args.x = ref;
  args.centroids = centroids.const_data_ptr();
  args.clusters = clusters;
  args.half_squares = static_cast<float*>(half_squares.mutable_data_ptr());
  args.labels = ints_of(labels);
  args.stream = current_stream(x);
  throw_if_error(kpage::nearest_centroids(args));
  return labels;
}

template <class Library>
void implement(Library& m) {
  m.impl("top_k", TORCH_BOX(&top_k));
  m.impl("leading_map", TORCH_BOX(&leading_map));
  m.impl("lists_of_map", TORCH_BOX(&lists_of_map));
  m.impl("block_sums", TORCH_BOX(&block_sums));
  m.impl("cluster_order", TORCH_BOX(&cluster_order));
  m.impl("cluster_means", TORCH_BOX(&cluster_means));
  m.impl("cluster_blocks", TORCH_BOX(&cluster_blocks));
  m.impl("nearest_centroids", TORCH_BOX(&nearest_centroids));
}

STABLE_TORCH_LIBRARY_FRAGMENT(kpage, m) {
  m.def("top_k(Tensor scores, int keep) -> Tensor");
  m.def(
      "leading_map(Tensor scores, Tensor? counts, float limit, int least, bool crosses) -> Tensor");
  m.def(
      "lists_of_map(Tensor map, int max_list, Tensor? row_of_list=None, Tensor? column_of_id=None) "
      "-> (Tensor, Tensor)");
  m.def("block_sums(Tensor x, Tensor sizes, Tensor offsets, Tensor? block_of_row) -> Tensor");
  m.def("cluster_order(Tensor labels, int clusters) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "cluster_means(Tensor x, Tensor order, Tensor sizes, Tensor offsets, Tensor centroids) -> "
      "(Tensor, Tensor)");
  m.def("cluster_blocks(Tensor sizes, int blocks) -> (Tensor, Tensor, Tensor)");
  m.def("nearest_centroids(Tensor x, Tensor centroids) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kpage, CPU, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(kpage, CUDA, m) { implement(m); }

}  // namespace
}  // namespace kpage::bindings
