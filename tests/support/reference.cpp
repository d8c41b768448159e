#include "support/reference.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/elements.h"
#include "oracle/accuracy.h"
#include "oracle/blocks.h"

namespace kpage::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void mark(std::vector<bool>& rows, std::int64_t head_start, const oracle::RowRange& range) {
  const auto begin = rows.begin() + (head_start + range.first);
  std::fill(begin, begin + range.count, true);
}

double rounded(double value, DType half) {
  double cell = 0;  // room for an element of any dtype
  write_element(&cell, half, 0, value);
  return read_element(&cell, half, 0);
}

std::vector<double> random_values(Random& random, const std::vector<bool>& rows,
                                  std::int64_t per_row, DType half) {
  std::vector<double> values;
  values.reserve(rows.size() * static_cast<std::size_t>(per_row));
  for (const bool counts : rows) {
    for (std::int64_t i = 0; i < per_row; ++i) {
      values.push_back(counts ? rounded(random.normal(), half) : kNaN);
    }
  }
  return values;
}

TensorRef contiguous(std::vector<double>& values, const std::array<std::int64_t, 4>& shape) {
  return {values.data(),
          DType::kFloat64,
          {},
          shape,
          {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
}

}  // namespace

RowSets row_sets(const Case& c) {
  const LayoutView layout = c.layout.view();
  const std::int64_t group = layout.heads / c.kv_heads;
  RowSets sets;
  sets.q_valid.resize(static_cast<std::size_t>(layout.batch * layout.heads * c.q_rows));
  sets.kv_valid.resize(static_cast<std::size_t>(layout.batch * c.kv_heads * c.kv_rows));
  sets.attended.resize(sets.kv_valid.size());
  for (std::int64_t i = 0; i < std::int64_t{layout.batch} * layout.heads; ++i) {
    const std::int64_t batch = i / layout.heads;
    const std::int64_t head = i % layout.heads;
    const std::int64_t kv_start = (batch * c.kv_heads + head / group) * c.kv_rows;
    for (std::int64_t block = 0; block < layout.kv.blocks; ++block) {
      mark(sets.kv_valid, kv_start, oracle::kv_block_rows(layout, batch, head, block));
    }
    for (std::int64_t block = 0; block < layout.q.blocks; ++block) {
      const oracle::RowRange q = oracle::q_block_rows(layout, batch, head, block);
      mark(sets.q_valid, i * c.q_rows, q);
      for (const std::int32_t kv_block : oracle::list_of(layout, batch, head, block)) {
        if (q.count > 0) {
          mark(sets.attended, kv_start, oracle::kv_block_rows(layout, batch, head, kv_block));
        }
      }
    }
  }
  return sets;
}

Result<Reference> make_reference(const Case& c, DType half) {
  Random random(c.seed * 0xd1342543de82ef95u + 3);
  Reference out;
  out.half = half;
  out.rows = row_sets(c);
  Numbers& numbers = out.numbers;
  numbers.q = random_values(random, out.rows.q_valid, c.head_dim, half);
  numbers.k = random_values(random, out.rows.attended, c.head_dim, half);
  numbers.v = random_values(random, out.rows.attended, c.head_dim, half);
  numbers.d_o = random_values(random, out.rows.q_valid, c.head_dim, half);
  if (c.has_d_lse) {
    numbers.d_lse = random_values(random, out.rows.q_valid, 1, half);
  }
  const LayoutView layout = c.layout.view();
  const std::array<std::int64_t, 4> q_shape{layout.batch, layout.heads, c.q_rows, c.head_dim};
  const std::array<std::int64_t, 4> kv_shape{layout.batch, c.kv_heads, c.kv_rows, c.head_dim};
  const oracle::Problem problem{layout,
                                contiguous(numbers.q, q_shape),
                                contiguous(numbers.k, kv_shape),
                                contiguous(numbers.v, kv_shape),
                                c.scale,
                                1};
  oracle::OutputGradients gradients{contiguous(numbers.d_o, q_shape), {}};
  std::vector<float> d_lse(numbers.d_lse.begin(), numbers.d_lse.end());
  if (c.has_d_lse) {
    gradients.d_lse = {d_lse.data(),
                       {},
                       {layout.batch, layout.heads, c.q_rows},
                       {layout.heads * c.q_rows, c.q_rows, 1}};
  }
  Result<oracle::Forward> forward = oracle::forward(problem);
  if (!forward.ok()) {
    return forward.status();
  }
  Result<oracle::Backward> backward = oracle::backward(problem, gradients);
  if (!backward.ok()) {
    return backward.status();
  }
  out.forward = std::move(forward).value();
  out.backward = std::move(backward).value();
  out.shortest_list = oracle::shortest_list(layout);
  return out;
}

void fill_outside(Random& random, Filler filler, const std::vector<bool>& rows,
                  std::vector<double>& values) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::size_t per_row = rows.empty() ? 0 : values.size() / rows.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!rows[i / per_row]) {
      values[i] = filler == Filler::kNaN
                      ? kNaN
                      : random.one_of({kNaN, kInfinity, -kInfinity, 6e4, -6e4, random.normal()});
    }
  }
}

}  // namespace kpage::test
