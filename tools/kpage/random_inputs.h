// Random tensors that fit a layout.
#pragma once

#include <cstdint>

#include "kpage/layout.h"

#include "attention_run.h"
#include "console.h"

namespace kpage::cli {

class RandomInputs {
 public:
  // `source` is named where the layout has no valid rows.
  RandomInputs(const LayoutView& layout, const std::string& source, DType dtype,
               std::int64_t head_dim, bool backward, std::uint64_t seed, const Console& console);

  [[nodiscard]] const RunInputs& inputs() const { return inputs_; }

 private:
  Tensor q_;
  Tensor k_;
  Tensor v_;
  Tensor d_o_;
  RunInputs inputs_;
};

// "bf16" or "fp16"; anything else is an error.
[[nodiscard]] DType parse_dtype(const std::string& text);
void check_head_dim(std::int64_t head_dim);

}  // namespace kpage::cli
