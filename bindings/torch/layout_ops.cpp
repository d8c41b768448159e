#include <algorithm>
#include <array>
#include <span>

#include <torch/csrc/stable/ops.h>

#include "kpage/geometry.h"

#include "ops.h"
#include "tensors.h"

namespace kpage::bindings {
namespace {

using torch::headeronly::ScalarType;

Tensor ints(std::span<const std::int32_t> values, std::span<const std::int64_t> shape) {
  const torch::stable::Device cpu(torch::headeronly::DeviceType::CPU);
  Tensor out =
      torch::stable::full({shape.data(), shape.size()}, 0.0, ScalarType::Int, std::nullopt, cpu);
  std::copy(values.begin(), values.end(), static_cast<std::int32_t*>(out.mutable_data_ptr()));
  return out;
}

// Of one side: [N], [H, N] or [B, H, N]; no elements where the layout has none.
Tensor partition(const Layout& layout, std::span<const std::int32_t> values, PartitionScope scope,
                 std::int64_t blocks) {
  if (values.empty()) {
    return ints(values, std::array<std::int64_t, 1>{0});
  }
  const std::array<std::int64_t, 3> shape{layout.batch, layout.heads, blocks};
  return ints(values, std::span(shape).last(static_cast<std::size_t>(scope) + 1));
}

}  // namespace

std::vector<std::string> layout_names() {
  const std::vector<std::string_view> names = kpage::layout_names();
  return {names.begin(), names.end()};
}

std::vector<Tensor> named_layout(const std::string& name, std::int64_t seed) {
  const Result<Layout> made = kpage::named_layout(name, static_cast<std::uint64_t>(seed));
  throw_if_error(made.status());
  const Layout& layout = made.value();
  const std::array<std::int64_t, 4> lists{layout.batch, layout.heads, layout.q_blocks,
                                          layout.max_list};
  return {ints(layout.q2k_block_index, lists),
          ints(layout.q2k_block_nums, std::span(lists).first(3)),
          partition(layout, layout.q_sizes, layout.q_scope, layout.q_blocks),
          partition(layout, layout.kv_sizes, layout.kv_scope, layout.kv_blocks),
          partition(layout, layout.q_offsets, layout.q_scope, layout.q_blocks),
          partition(layout, layout.kv_offsets, layout.kv_scope, layout.kv_blocks)};
}

}  // namespace kpage::bindings
