// A layer's q, k, v from a safetensors file.
#pragma once

#include <optional>
#include <string>

#include "kpage/types.h"

#include "safetensors.h"

namespace kpage::cli {

// Tensors q [B, H, S, D], k and v [B, Hkv, S, D], BF16 or F16, and where present d_o [B, H, S, D].
class Capture {
 public:
  explicit Capture(const std::string& path);  // checks names, dtypes and shapes

  // Fails at a value of q, k, v, and with `backward` of d_o, that is infinite or not a number.
  void check_finite(bool backward) const;

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] TensorRef q() const { return q_; }
  [[nodiscard]] TensorRef k() const { return k_; }
  [[nodiscard]] TensorRef v() const { return v_; }
  [[nodiscard]] std::optional<TensorRef> d_o() const { return d_o_; }
  [[nodiscard]] DType dtype() const { return q_.dtype; }
  [[nodiscard]] std::int64_t batch() const { return q_.shape[0]; }
  [[nodiscard]] std::int64_t heads() const { return q_.shape[1]; }
  [[nodiscard]] std::int64_t kv_heads() const { return k_.shape[1]; }
  [[nodiscard]] std::int64_t tokens() const { return q_.shape[2]; }
  [[nodiscard]] std::int64_t head_dim() const { return q_.shape[3]; }

 private:
  [[nodiscard]] TensorRef tensor(const std::string& name) const;

  SafetensorsFile file_;
  TensorRef q_;
  TensorRef k_;
  TensorRef v_;
  std::optional<TensorRef> d_o_;
};

// "BF16" or "F16".
[[nodiscard]] const char* dtype_name(DType dtype);

}  // namespace kpage::cli
