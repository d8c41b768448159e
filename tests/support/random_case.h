// Random attention problems that favour the corners of the contract.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kpage/layout.h"

#include "support/random.h"

namespace kpage::test {

// A layout, and the sizes of the tensors that go with it.
struct Case {
  std::uint64_t seed = 0;
  Layout layout;
  std::int64_t kv_heads = 1;
  std::int64_t q_rows = 0;   // Sq: past the last valid row, by chance
  std::int64_t kv_rows = 0;  // Sk
  std::int64_t head_dim = 64;
  std::optional<double> scale;
  bool has_d_lse = true;

  [[nodiscard]] std::string describe() const;  // what to print beside a failure
};

// Sizes 0 to 128 with the special ones favoured, empty blocks and lists, lists from nothing to all
// blocks in any order with garbage past their end, GQA, batch, one partition or two, of any scope,
// blocks at any row in any order with gaps between them, any number of rows.
[[nodiscard]] Case random_case(std::uint64_t seed);

// A head with several times as many K/V blocks, of each backward route, as a GPU has CTAs.
[[nodiscard]] Case many_owners_case();

}  // namespace kpage::test
