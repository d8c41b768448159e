// A case's numbers and what the oracle makes of them.
#pragma once

#include <cstdint>
#include <vector>

#include "kpage/types.h"

#include "oracle/oracle.h"
#include "support/random.h"
#include "support/random_case.h"

namespace kpage::test {

// Which rows of the tensors count, [batch, heads, rows]: heads of queries or of keys.
struct RowSets {
  std::vector<bool> q_valid;   // in a block
  std::vector<bool> kv_valid;  // in a block of any query head of the group
  std::vector<bool> attended;  // by a valid row of any query head of the group
};
[[nodiscard]] RowSets row_sets(const Case& c);

// What padding holds in inputs.
enum class Filler { kNaN, kMixed };

// Normally distributed numbers of the precision of `half`, contiguous; padding, and rows of K and V
// that nobody attends to, hold NaN.
struct Numbers {
  std::vector<double> q;      // [B, H, Sq, D]
  std::vector<double> k;      // [B, Hkv, Sk, D]
  std::vector<double> v;      // [B, Hkv, Sk, D]
  std::vector<double> d_o;    // [B, H, Sq, D]
  std::vector<double> d_lse;  // [B, H, Sq]; empty where the case has none
};

struct Reference {
  DType half = DType::kBFloat16;
  RowSets rows;
  Numbers numbers;
  oracle::Forward forward;
  oracle::Backward backward;
  std::int64_t shortest_list = 0;
};
[[nodiscard]] Result<Reference> make_reference(const Case& c, DType half);

// Overwrites the rows that are not in `rows` with numbers of no meaning. values: [rows, per_row].
void fill_outside(Random& random, Filler filler, const std::vector<bool>& rows,
                  std::vector<double>& values);

}  // namespace kpage::test
