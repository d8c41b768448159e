#include <algorithm>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include <torch/csrc/stable/device.h>
#include <torch/csrc/stable/ops.h>

#include "kpage/device_plan.h"
#include "kpage/layout.h"
#include "kpage/plan_figures.h"

#include "api/checks.h"
#include "api/operands.h"
#include "api/plan_checks.h"
#include "base/message.h"
#include "ops.h"
#include "plan/builder.h"
#include "plan/validate.h"
#include "tensors.h"

namespace kpage::bindings {
namespace {

using torch::headeronly::ScalarType;

const torch::stable::Device kCpu(torch::headeronly::DeviceType::CPU);

// An integer tensor's values where the tensor lies, int32 and contiguous.
struct Ints {
  Tensor tensor;  // keeps the values of an int32 tensor alive
  std::vector<std::int32_t> narrowed;
  const std::int32_t* data = nullptr;
};

void check_integers(std::string_view name, const Tensor& t, const Device& device) {
  const ScalarType type = t.scalar_type();
  // Whether a narrower type can hold the values is for a device to say, and that would be waiting.
  const bool may_be_wide = device.type == DeviceType::kCpu;
  if (type != ScalarType::Int && !(may_be_wide && type == ScalarType::Long)) {
    throw_if_error(invalid_argument(name, may_be_wide ? "int32 or int64" : "int32",
                                    torch::headeronly::toString(type)));
  }
  if (device_of(t) != device) {
    throw_if_error(invalid_argument(
        name, text("a tensor on ", api::device_text(device), " as q2k_block_index"),
        api::device_text(device_of(t))));
  }
}

// Narrows the values for which `counts(position)` holds; the others may hold anything.
template <class Counts>
Ints narrow(std::string_view name, const Tensor& tensor, const Counts& counts) {
  Ints out;
  out.tensor = contiguous(name, tensor);
  if (out.tensor.scalar_type() == ScalarType::Int) {
    out.data = static_cast<const std::int32_t*>(out.tensor.const_data_ptr());
    return out;
  }
  const std::span wide(static_cast<const std::int64_t*>(out.tensor.const_data_ptr()),
                       static_cast<std::size_t>(out.tensor.numel()));
  out.narrowed.resize(wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (std::in_range<std::int32_t>(wide[i])) {
      out.narrowed[i] = static_cast<std::int32_t>(wide[i]);
    } else if (counts(static_cast<std::int64_t>(i))) {
      throw_if_error(invalid_argument(text(name, ", element ", i), "values of 32 bits", wide[i]));
    }
  }
  out.data = out.narrowed.data();
  return out;
}
Ints narrow(std::string_view name, const Tensor& tensor) {
  return narrow(name, tensor, [](std::int64_t) { return true; });
}

std::string sizes_text(const Tensor& t) {
  return api::list_text({t.sizes().begin(), t.sizes().end()});
}

void check_shape(std::string_view name, const Tensor& t, std::span<const std::int64_t> expected) {
  const auto got = t.sizes();
  if (!std::equal(got.begin(), got.end(), expected.begin(), expected.end())) {
    throw_if_error(invalid_argument(name, "shape " + api::list_text(expected), sizes_text(t)));
  }
}

// The scope of a sizes tensor: its leading dimensions are none, [H] or [B, H], exactly.
PartitionScope scope_of(std::string_view name, const Tensor& sizes, const PlanShape& shape) {
  const std::int64_t dims = sizes.dim();
  const bool fits = dims == 1 || (dims == 2 && sizes.size(0) == shape.heads) ||
                    (dims == 3 && sizes.size(0) == shape.batch && sizes.size(1) == shape.heads);
  if (!fits) {
    throw_if_error(invalid_argument(
        name,
        text("shape [N], [", shape.heads, ", N] or [", shape.batch, ", ", shape.heads, ", N]"),
        sizes_text(sizes)));
  }
  return static_cast<PartitionScope>(dims - 1);
}

// The shape that a plan of these tensors has, and that their shapes fit each other.
PlanShape shape_of_tensors(const Tensor& index, const Tensor& nums, const Tensor& q_sizes,
                           const std::optional<Tensor>& kv_sizes,
                           const std::optional<Tensor>& q_offsets,
                           const std::optional<Tensor>& kv_offsets) {
  if (index.dim() != 4) {
    throw_if_error(
        invalid_argument("q2k_block_index", "shape [B, H, NQ, Kmax]", sizes_text(index)));
  }
  for (std::int64_t i = 0; i < 4; ++i) {
    if (index.size(i) > std::numeric_limits<std::int32_t>::max()) {
      throw_if_error(invalid_argument("q2k_block_index", "sizes of 32 bits", sizes_text(index)));
    }
  }
  if (index.size(0) == 0 || index.size(1) == 0) {
    throw_if_error(invalid_argument("q2k_block_index", "at least one batch element and head",
                                    sizes_text(index)));
  }
  PlanShape shape;
  shape.batch = static_cast<std::int32_t>(index.size(0));
  shape.heads = static_cast<std::int32_t>(index.size(1));
  shape.q_blocks = static_cast<std::int32_t>(index.size(2));
  shape.max_list = static_cast<std::int32_t>(index.size(3));
  check_shape("q2k_block_nums", nums, std::array{index.size(0), index.size(1), index.size(2)});

  shape.q_scope = scope_of("q_block_sizes", q_sizes, shape);
  if (q_sizes.size(q_sizes.dim() - 1) != shape.q_blocks) {
    throw_if_error(invalid_argument("q_block_sizes",
                                    text(shape.q_blocks, " blocks as in q2k_block_index"),
                                    sizes_text(q_sizes)));
  }
  if (q_offsets) {
    check_shape("q_block_offsets", *q_offsets,
                std::span(q_sizes.sizes().begin(), q_sizes.sizes().end()));
  }
  if (!kv_sizes) {
    if (kv_offsets) {
      throw_if_error(invalid_argument("kv_block_offsets", "kv_block_sizes to go with them",
                                      "kv_block_sizes=None"));
    }
    shape.kv_scope = shape.q_scope;
    shape.kv_blocks = shape.q_blocks;
    return shape;
  }
  shape.kv_scope = scope_of("kv_block_sizes", *kv_sizes, shape);
  const std::int64_t kv_blocks = kv_sizes->size(kv_sizes->dim() - 1);
  if (kv_blocks > kMaxBlocks) {
    throw_if_error(
        invalid_argument("kv_block_sizes", text("at most ", kMaxBlocks, " blocks"), kv_blocks));
  }
  shape.kv_blocks = static_cast<std::int32_t>(kv_blocks);
  if (kv_offsets) {
    check_shape("kv_block_offsets", *kv_offsets,
                std::span(kv_sizes->sizes().begin(), kv_sizes->sizes().end()));
  }
  return shape;
}

// A host copy of a plan that may lie on a device.
Result<Plan> host_plan(const Tensor& forward, const std::optional<Tensor>& backward,
                       const Shape& shape) {
  (void)plan_ref(forward, backward, shape);
  const Tensor host_forward = torch::stable::to(forward, kCpu);
  std::optional<Tensor> host_backward;
  if (backward) {
    host_backward = torch::stable::to(*backward, kCpu);
  }
  const PlanRef ref = plan_ref(host_forward, host_backward, shape);
  if (Status status = api::check_plan(ref, Device{}, backward.has_value()); !status.ok()) {
    return status;
  }
  const auto bytes = [](const std::byte* begin, std::int64_t count) {
    return std::span(begin, begin == nullptr ? 0 : static_cast<std::size_t>(count));
  };
  return Plan::adopt(ref.shape, bytes(ref.forward, forward_plan_bytes(ref.shape)),
                     bytes(ref.backward, backward_plan_bytes(ref.shape)));
}

Plan host_plan_or_throw(const Tensor& forward, const std::optional<Tensor>& backward,
                        const Shape& shape) {
  Result<Plan> plan = host_plan(forward, backward, shape);
  throw_if_error(plan.status());
  return std::move(plan).value();
}

std::byte* bytes_of(const Tensor& blob) { return static_cast<std::byte*>(blob.mutable_data_ptr()); }

Tensor bytes_tensor(std::span<const std::byte> bytes) {
  Tensor out = zero_bytes(static_cast<std::int64_t>(bytes.size()));
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(out.mutable_data_ptr()));
  return out;
}

}  // namespace

Tensor plan_forward(const Tensor& q2k_block_index, const Tensor& q2k_block_nums,
                    const Tensor& q_block_sizes, const std::optional<Tensor>& kv_block_sizes,
                    const std::optional<Tensor>& q_block_offsets,
                    const std::optional<Tensor>& kv_block_offsets) {
  const auto device_guard = guard(q2k_block_index);
  const Device device = device_of(q2k_block_index);
  check_integers("q2k_block_index", q2k_block_index, device);
  check_integers("q2k_block_nums", q2k_block_nums, device);
  check_integers("q_block_sizes", q_block_sizes, device);
  const std::pair<std::string_view, const std::optional<Tensor>&> optional_tensors[] = {
      {"kv_block_sizes", kv_block_sizes},
      {"q_block_offsets", q_block_offsets},
      {"kv_block_offsets", kv_block_offsets}};
  for (const auto& [name, tensor] : optional_tensors) {
    if (tensor) {
      check_integers(name, *tensor, device);
    }
  }
  const PlanShape shape = shape_of_tensors(q2k_block_index, q2k_block_nums, q_block_sizes,
                                           kv_block_sizes, q_block_offsets, kv_block_offsets);
  throw_if_error(plan::check_shape(shape));  // before anything as large is allocated

  const Ints nums = narrow("q2k_block_nums", q2k_block_nums);
  const Ints index =
      narrow("q2k_block_index", q2k_block_index, [&nums, &shape](std::int64_t position) {
        return position % shape.max_list < nums.data[position / shape.max_list];
      });
  const auto optional_ints = [](std::string_view name, const std::optional<Tensor>& tensor) {
    return tensor ? narrow(name, *tensor) : Ints{};
  };
  const Ints q_sizes = narrow("q_block_sizes", q_block_sizes);
  const Ints q_offsets = optional_ints("q_block_offsets", q_block_offsets);
  const Ints kv_sizes = optional_ints("kv_block_sizes", kv_block_sizes);
  const Ints kv_offsets = optional_ints("kv_block_offsets", kv_block_offsets);

  LayoutView layout;
  layout.batch = shape.batch;
  layout.heads = shape.heads;
  layout.q = {q_sizes.data, q_offsets.data, shape.q_blocks, shape.q_scope};
  layout.kv = kv_block_sizes
                  ? PartitionView{kv_sizes.data, kv_offsets.data, shape.kv_blocks, shape.kv_scope}
                  : layout.q;
  layout.q2k_block_index = index.data;
  layout.q2k_block_nums = nums.data;
  layout.max_list = shape.max_list;
  if (device.type == DeviceType::kCuda) {
    const Tensor blob = empty_bytes(q2k_block_index, forward_plan_bytes(shape));
    throw_if_error(build_device_plan(layout, bytes_of(blob), current_stream(blob)));
    return blob;
  }
  throw_if_error(validate(layout));
  const Tensor blob = zero_bytes(forward_plan_bytes(shape));
  plan::build_forward(layout, plan::MutableForward::at(shape, bytes_of(blob)));
  return blob;
}

Tensor plan_backward(const Tensor& forward, const Shape& shape) {
  const auto device_guard = guard(forward);
  const PlanRef ref = plan_ref(forward, std::nullopt, shape);
  throw_if_error(api::check_plan(ref, ref.device, /*needs_backward=*/false));
  const std::int64_t bytes = backward_plan_bytes(ref.shape);
  if (ref.device.type == DeviceType::kCuda) {
    const Tensor blob = empty_bytes(forward, bytes);
    const Tensor scratch = empty_bytes(forward, backward_plan_scratch_bytes(ref.shape));
    throw_if_error(build_device_backward_plan(ref, bytes_of(blob), bytes_of(scratch),
                                              scratch.numel(), current_stream(forward)));
    return blob;
  }
  const Tensor blob = zero_bytes(bytes);
  plan::build_backward(plan::ForwardView::at(ref.shape, ref.forward),
                       plan::MutableBackward::at(ref.shape, bytes_of(blob)));
  return blob;
}

void plan_check(const Tensor& forward, const Shape& shape) {
  const PlanRef ref = plan_ref(forward, std::nullopt, shape);
  Tensor whole = forward;
  const Tensor header =
      torch::stable::to(torch::stable::narrow(whole, 0, 0, kForwardHeaderBytes), kCpu);
  throw_if_error(plan_fault(ref.shape, {static_cast<const std::byte*>(header.const_data_ptr()),
                                        static_cast<std::size_t>(kForwardHeaderBytes)}));
}

std::vector<std::int64_t> plan_figures(const Tensor& forward, const std::optional<Tensor>& backward,
                                       const Shape& shape) {
  std::vector<std::int64_t> values;
  for (const PlanFigure& figure :
       kpage::plan_figures(host_plan_or_throw(forward, backward, shape).stats())) {
    values.push_back(figure.value);
  }
  return values;
}

std::vector<std::string> plan_figure_names() {
  std::vector<std::string> names;
  for (const PlanFigure& figure : kpage::plan_figures({})) {
    names.emplace_back(figure.name);
  }
  return names;
}

std::string plan_dump(const Tensor& forward, const std::optional<Tensor>& backward,
                      const Shape& shape, std::int64_t batch_head) {
  const std::int64_t most = shape_of(shape).batch * std::int64_t{shape_of(shape).heads};
  if (batch_head >= most) {
    throw_if_error(invalid_argument("batch_head", text("less than ", most), batch_head));
  }
  return host_plan_or_throw(forward, backward, shape).dump(static_cast<std::int32_t>(batch_head));
}

void plan_save(const Tensor& forward, const std::optional<Tensor>& backward, const Shape& shape,
               const std::string& path) {
  throw_if_error(host_plan_or_throw(forward, backward, shape).save(path));
}

std::tuple<Tensor, Tensor, Shape> plan_load(const std::string& path) {
  const Result<Plan> plan = Plan::load(path);
  throw_if_error(plan.status());
  return {bytes_tensor(plan.value().forward()), bytes_tensor(plan.value().backward()),
          list_of(plan.value().shape())};
}

}  // namespace kpage::bindings
