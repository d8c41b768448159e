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

Rows rows_of(std::string_view name, const Tensor& tensor) {
  check_contiguous(name, tensor);
  if (tensor.dim() < 1) {
    throw_if_error(invalid_argument(name, "at least 1 dimension", tensor.dim()));
  }
  Rows out{1, 0, {tensor.sizes().begin(), tensor.sizes().end()}};
  out.columns = out.shape.back();
  for (std::size_t i = 0; i + 1 < out.shape.size(); ++i) {
    out.rows *= out.shape[i];
  }
  return out;
}

std::int32_t threads() { return static_cast<std::int32_t>(torch::stable::get_num_threads()); }

std::int32_t* ints_of(const Tensor& tensor) {
  return static_cast<std::int32_t*>(tensor.mutable_data_ptr());
}

Tensor top_k(const Tensor& scores, std::int64_t keep) {
  const auto device_guard = guard(scores);
  const Rows rows = rows_of("scores", scores);
  if (keep < 0 || keep > rows.columns) {
    throw_if_error(
        invalid_argument("keep", text("0 to the ", rows.columns, " columns of scores"), keep));
  }
  TopKArgs args;
  switch (scores.scalar_type()) {
    case ScalarType::BFloat16:
      args.dtype = DType::kBFloat16;
      break;
    case ScalarType::Half:
      args.dtype = DType::kFloat16;
      break;
    default:
      check_type("scores", scores, ScalarType::Float);
      args.dtype = DType::kFloat32;
      break;
  }
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

std::tuple<Tensor, Tensor> lists_of_map(const Tensor& map, std::int64_t max_list) {
  const auto device_guard = guard(map);
  check_type("map", map, ScalarType::Bool);
  const Rows rows = rows_of("map", map);
  if (max_list < 0) {
    throw_if_error(invalid_argument("max_list", "at least 0", max_list));
  }
  const Tensor index = torch::stable::new_empty(map, rows.with(max_list), ScalarType::Int);
  std::vector<std::int64_t> shape = rows.shape;
  shape.pop_back();
  const Tensor nums = torch::stable::new_empty(map, shape, ScalarType::Int);
  ListsArgs args;
  args.map = static_cast<const std::uint8_t*>(map.const_data_ptr());
  args.device = device_of(map);
  args.rows = rows.rows;
  args.columns = rows.columns;
  args.max_list = max_list;
  args.index = ints_of(index);
  args.nums = ints_of(nums);
  args.stream = current_stream(map);
  args.threads = threads();
  throw_if_error(kpage::lists_of_map(args));
  return {index, nums};
}

// block_of_row is what the gradient needs; there is none through row_of_place.
Tensor block_sums(const Tensor& x, const Tensor& sizes, const Tensor& offsets,
                  const std::optional<Tensor>& /*block_of_row*/,
                  const std::optional<Tensor>& row_of_place) {
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
  if (row_of_place) {
    check_ints("row_of_place", *row_of_place, x, slices * args.x.shape[2]);
    args.row_of_place = static_cast<const std::int32_t*>(row_of_place->const_data_ptr());
  }
  const std::vector<std::int64_t> shape{args.x.shape[0], args.x.shape[1], args.blocks,
                                        args.x.shape[3]};
  const Tensor sums = torch::stable::new_empty(x, shape, ScalarType::Float);
  args.sums = static_cast<float*>(sums.mutable_data_ptr());
  args.stream = current_stream(x);
  args.threads = threads();
  throw_if_error(kpage::block_sums(args));
  return sums;
}

Tensor nearest_centroids(const Tensor& x, const Tensor& centroids, const Tensor& half_squares) {
  const auto device_guard = guard(x);
  const TensorRef ref = input("x", x, Order::kBhsd);
  const TensorRef of_centroids = input("centroids", centroids, Order::kBhsd);
  const std::int64_t clusters = of_centroids.shape[2];
  check_type("centroids", centroids, x.scalar_type());
  check_type("half_squares", half_squares, ScalarType::Float);
  check_elements("centroids", centroids, ref.shape[0] * ref.shape[1] * clusters * ref.shape[3]);
  check_elements("half_squares", half_squares, ref.shape[0] * ref.shape[1] * clusters);
  for (const auto& [name, tensor] :
       {std::pair<std::string_view, const Tensor*>{"centroids", &centroids},
        {"half_squares", &half_squares}}) {
    check_contiguous(name, *tensor);
    check_device(name, *tensor, x);
  }
  const std::vector<std::int64_t> shape{ref.shape[0], ref.shape[1], ref.shape[2]};
  const Tensor labels = torch::stable::new_empty(x, shape, ScalarType::Int);
  NearestArgs args;
  args.x = ref;
  args.centroids = centroids.const_data_ptr();
  args.clusters = clusters;
  args.half_squares = static_cast<const float*>(half_squares.const_data_ptr());
  args.labels = ints_of(labels);
  args.stream = current_stream(x);
  throw_if_error(kpage::nearest_centroids(args));
  return labels;
}

template <class Library>
void implement(Library& m) {
  m.impl("top_k", TORCH_BOX(&top_k));
  m.impl("lists_of_map", TORCH_BOX(&lists_of_map));
  m.impl("block_sums", TORCH_BOX(&block_sums));
  m.impl("nearest_centroids", TORCH_BOX(&nearest_centroids));
}

STABLE_TORCH_LIBRARY_FRAGMENT(kpage, m) {
  m.def("top_k(Tensor scores, int keep) -> Tensor");
  m.def("lists_of_map(Tensor map, int max_list) -> (Tensor, Tensor)");
  m.def(
      "block_sums(Tensor x, Tensor sizes, Tensor offsets, Tensor? block_of_row, Tensor? "
      "row_of_place) -> Tensor");
  m.def("nearest_centroids(Tensor x, Tensor centroids, Tensor half_squares) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kpage, CPU, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(kpage, CUDA, m) { implement(m); }

}  // namespace
}  // namespace kpage::bindings
