// The oracle: masked attention and its gradients in fp64, from a layout and tensors alone. It never
// sees a plan, so that a bug in the plan cannot cancel itself.
//
// Whole outputs cost a matrix product in fp64 for every edge; sampled rows cost what those rows
// attend to, so that they serve layers of any size.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kpage/layout.h"
#include "kpage/status.h"
#include "kpage/types.h"

namespace kpage::oracle {

// What to compute, in host memory. Tensors may be of any dtype; only valid rows are read, and of K
// and V only those of selected blocks.
struct Problem {
  LayoutView layout;
  TensorRef q;                  // [B, H, Sq, D]
  TensorRef k;                  // [B, Hkv, Sk, D]; H is a multiple of Hkv
  TensorRef v;                  // [B, Hkv, Sk, D]
  std::optional<double> scale;  // 1 / sqrt(D) where absent
  std::int32_t threads = 0;     // 0: as many as there are cores
};

// The gradients that come in.
struct OutputGradients {
  TensorRef d_o;  // [B, H, Sq, D]
  RowsRef d_lse;  // [B, H, Sq]; null data: zero
};

// O and LSE that some backend computed. Gradients taken from them show the error of its backward
// alone, and cost much less on sampled key rows.
struct ForwardOutputs {
  TensorRef o;  // [B, H, Sq, D]
  RowsRef lse;  // [B, H, Sq]
};

struct Forward {
  std::vector<double> o;    // [B, H, Sq, D]; zero in padding and in rows without keys
  std::vector<double> lse;  // [B, H, Sq]; -inf there
};
[[nodiscard]] Result<Forward> forward(const Problem& problem);

struct Backward {
  std::vector<double> dq;  // [B, H, Sq, D]
  std::vector<double> dk;  // [B, Hkv, Sk, D]
  std::vector<double> dv;  // [B, Hkv, Sk, D]
};
// `outputs`: take LSE and delta from these; else they are exact.
[[nodiscard]] Result<Backward> backward(const Problem& problem, const OutputGradients& gradients,
                                        const std::optional<ForwardOutputs>& outputs = {});

// A row of a head: of a query head, or of a key/value head.
struct Row {
  std::int64_t batch;
  std::int64_t head;
  std::int64_t row;

  friend bool operator==(const Row&, const Row&) = default;
};

struct QueryRows {
  std::vector<double> o;    // [rows, D]
  std::vector<double> lse;  // [rows]
  std::vector<double> dq;   // [rows, D]; empty without gradients
};
// Rows of query heads, in any order.
[[nodiscard]] Result<QueryRows> query_rows(const Problem& problem, std::span<const Row> rows,
                                           const std::optional<OutputGradients>& gradients = {},
                                           const std::optional<ForwardOutputs>& outputs = {});

struct KeyRows {
  std::vector<double> dk;  // [rows, D]
  std::vector<double> dv;  // [rows, D]
};
// Rows of key/value heads, in any order. Without `outputs` this runs forward for every query block
// that attends to one of the rows.
[[nodiscard]] Result<KeyRows> key_rows(const Problem& problem, std::span<const Row> rows,
                                       const OutputGradients& gradients,
                                       const std::optional<ForwardOutputs>& outputs = {});

}  // namespace kpage::oracle
