#include "random_inputs.h"

#include <algorithm>

#include "failure.h"
#include "progress.h"

namespace kpage::cli {
namespace {

// One past the last row that a block of this side has.
std::int64_t rows_of(const PartitionView& side, const LayoutView& layout) {
  std::int64_t rows = 0;
  const std::int64_t count = scope_count(side.scope, layout.batch, layout.heads) * side.blocks;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t offset =
        side.offsets != nullptr ? side.offsets[i] : kBlockRows * (i % side.blocks);
    if (side.sizes[i] > 0) {
      rows = std::max(rows, offset + side.sizes[i]);
    }
  }
  return rows;
}

}  // namespace

RandomInputs::RandomInputs(const LayoutView& layout, const std::string& source, DType dtype,
                           std::int64_t head_dim, bool backward, std::uint64_t seed,
                           const Console& console) {
  const std::int64_t q_rows = rows_of(layout.q, layout);
  const std::int64_t kv_rows = rows_of(layout.kv, layout);
  if (q_rows == 0 || kv_rows == 0) {
    throw bad_input(source + ": expected valid rows to run on, got none");
  }
  const Progress progress(console, "random tensors");
  const auto random = [&](std::int64_t rows, std::uint64_t stream) {
    Tensor tensor(dtype, layout.batch, layout.heads, rows, head_dim);
    fill_random(tensor, seed * 4 + stream);
    return tensor;
  };
  q_ = random(q_rows, 0);
  k_ = random(kv_rows, 1);
  v_ = random(kv_rows, 2);
  inputs_.q = q_.ref();
  inputs_.k = k_.ref();
  inputs_.v = v_.ref();
  if (backward) {
    d_o_ = random(q_rows, 3);
    inputs_.d_o = d_o_.ref();
  }
}

DType parse_dtype(const std::string& text) {
  if (text == "bf16") {
    return DType::kBFloat16;
  }
  if (text == "fp16") {
    return DType::kFloat16;
  }
  throw bad_input("--dtype: expected bf16 or fp16, got " + text);
}

void check_head_dim(std::int64_t head_dim) {
  if (head_dim < 8 || head_dim > 256 || head_dim % 8 != 0) {
    throw bad_input("--head-dim: expected a multiple of 8 up to 256, got " +
                    std::to_string(head_dim));
  }
}

}  // namespace kpage::cli
