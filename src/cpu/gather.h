// Rows of a tensor brought into a tile. Rows that are not valid are never read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/head.h"
#include "cpu/tile_ops.h"

namespace kpage::cpu {

// `valid` rows from `row` on, then zeros up to `rows`. `to` is [rows, head_dim].
template <class Real>
void gather(const TileOps<Real>& ops, const HeadRows& from, std::int64_t row, std::int32_t valid,
            std::int32_t rows, Real* to) {
  ops.widen(from.row(row), from.dtype, from.stride, valid, from.head_dim, to);
  std::fill_n(to + std::int64_t{valid} * from.head_dim, std::int64_t{rows - valid} * from.head_dim,
              Real{0});
}

}  // namespace kpage::cpu
