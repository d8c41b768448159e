// The ops of the library `kpage`, as functions on torch's tensors. Their results have shapes that
// follow from the shapes of their arguments, so that fake kernels are exact.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <torch/csrc/stable/tensor.h>

namespace kpage::bindings {

using torch::stable::Tensor;
using Shape = std::vector<std::int64_t>;  // of a plan: see shape_of()

// q2k_block_index [B, H, NQ, Kmax], q2k_block_nums [B, H, NQ]; sizes and offsets [N], [H, N] or
// [B, H, N]; int32, or int64 where no value is lost. -> uint8 [forward_plan_bytes]
Tensor plan_forward(const Tensor& q2k_block_index, const Tensor& q2k_block_nums,
                    const Tensor& q_block_sizes, const std::optional<Tensor>& kv_block_sizes,
                    const std::optional<Tensor>& q_block_offsets,
                    const std::optional<Tensor>& kv_block_offsets);
// -> uint8 [backward_plan_bytes]
Tensor plan_backward(const Tensor& forward, const Shape& shape);
// Throws what a builder on a device found wrong with the plan's tensors. Reads the header alone.
void plan_check(const Tensor& forward, const Shape& shape);
// In the order of plan_figure_names().
std::vector<std::int64_t> plan_figures(const Tensor& forward, const std::optional<Tensor>& backward,
                                       const Shape& shape);
std::vector<std::string> plan_figure_names();
std::string plan_dump(const Tensor& forward, const std::optional<Tensor>& backward,
                      const Shape& shape, std::int64_t batch_head);
void plan_save(const Tensor& forward, const std::optional<Tensor>& backward, const Shape& shape,
               const std::string& path);
// -> forward part, backward part (no elements where the file has none), shape; on the CPU
std::tuple<Tensor, Tensor, Shape> plan_load(const std::string& path);

// The layouts that benchmarks speak of. A layout is what plan_forward takes, in its order, int32 on
// the CPU; a tensor without elements where the layout has none.
std::vector<std::string> layout_names();
std::vector<Tensor> named_layout(const std::string& name, std::int64_t seed);

// x [B, H, S, D], with rows before heads where `bshd`; index int32 [R], [H, R] or [B, H, R]: rows
// of x. `inverse`, of as many dimensions and S positions, undoes it: for gradients, which make it
// where it is not given. -> like x with R rows, contiguous
Tensor gather_rows(const Tensor& x, const Tensor& index, const std::optional<Tensor>& inverse,
                   bool bshd);
// index int32 [R], [H, R] or [B, H, R], each of `rows` rows at most once -> with `rows` positions
Tensor invert_index(const Tensor& index, std::int64_t rows);

// q [B, H, Sq, D], k and v [B, Hkv, Sk, D], with rows before heads where `bshd`.
// -> o like q, contiguous; lse fp32 [B, H, Sq]
std::tuple<Tensor, Tensor> attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& plan,
                                             const std::optional<Tensor>& plan_backward,
                                             const Shape& plan_shape, std::optional<double> scale,
                                             bool bshd, bool deterministic);
// -> dq, dk, dv like q, k, v, contiguous
std::tuple<Tensor, Tensor, Tensor> attention_backward(
    const Tensor& d_o, const std::optional<Tensor>& d_lse, const Tensor& q, const Tensor& k,
    const Tensor& v, const Tensor& o, const Tensor& lse, const Tensor& plan,
    const Tensor& plan_backward, const Shape& plan_shape, std::optional<double> scale, bool bshd,
    bool deterministic);

}  // namespace kpage::bindings
