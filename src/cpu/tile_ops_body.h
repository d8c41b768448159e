// The one body of TileOps. Each tile_ops_<isa>.cpp includes it and so compiles it for its
// instruction set; all of it has internal linkage, because the copies differ in their code.
#pragma once

#include <cstdint>
#include <limits>

#include <Eigen/Core>

#include "kpage/types.h"

#include "base/half.h"
#include "cpu/tile_ops.h"
#include "plan/format.h"

namespace kpage::cpu {
namespace {

template <class Real>
struct TileBody {
  using Column = Eigen::Array<Real, Eigen::Dynamic, 1>;
  using RowMajor = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  // Scores lie key by key: a mask is a column, and row statistics are sums of columns, so that
  // every vector instruction works on rows side by side.
  using Scores = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;

  static void widen(const void* from, DType dtype, std::int64_t stride, std::int64_t rows,
                    std::int32_t head_dim, Real* to) {
    for (std::int64_t r = 0; r < rows; ++r, to += head_dim) {
      const std::int64_t at = r * stride;
      switch (dtype) {
        case DType::kBFloat16: {
          const std::uint16_t* row = static_cast<const std::uint16_t*>(from) + at;
          for (std::int32_t d = 0; d < head_dim; ++d) {
            to[d] = static_cast<Real>(bf16_to_float(row[d]));
          }
          break;
        }
        case DType::kFloat16: {
          const std::uint16_t* row = static_cast<const std::uint16_t*>(from) + at;
          for (std::int32_t d = 0; d < head_dim; ++d) {
            to[d] = static_cast<Real>(fp16_to_float(row[d]));
          }
          break;
        }
        case DType::kFloat32:
          copy(static_cast<const float*>(from) + at, head_dim, to);
          break;
        case DType::kFloat64:
          copy(static_cast<const double*>(from) + at, head_dim, to);
          break;
      }
    }
  }

  static void narrow(const Real* from, std::int64_t rows, std::int32_t head_dim, void* to,
                     DType dtype, std::int64_t stride) {
    for (std::int64_t r = 0; r < rows; ++r, from += head_dim) {
      const std::int64_t at = r * stride;
      switch (dtype) {
        case DType::kBFloat16: {
          std::uint16_t* row = static_cast<std::uint16_t*>(to) + at;
          for (std::int32_t d = 0; d < head_dim; ++d) {
            row[d] = float_to_bf16(static_cast<float>(from[d]));
          }
          break;
        }
        case DType::kFloat16: {
          std::uint16_t* row = static_cast<std::uint16_t*>(to) + at;
          for (std::int32_t d = 0; d < head_dim; ++d) {
            row[d] = float_to_fp16(static_cast<float>(from[d]));
          }
          break;
        }
        case DType::kFloat32:
          copy(from, head_dim, static_cast<float*>(to) + at);
          break;
        case DType::kFloat64:
          copy(from, head_dim, static_cast<double*>(to) + at);
          break;
      }
    }
  }

  static void add(const Real* from, std::int64_t count, Real* to) {
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] += from[i];
    }
  }

  static void forward(const ForwardTile<Real>& t) {
    Eigen::Map<const RowMajor> q(t.q, t.rows, t.head_dim);
    Eigen::Map<const RowMajor> k(t.k, t.columns, t.head_dim);
    Eigen::Map<const RowMajor> v(t.v, t.columns, t.head_dim);
    Eigen::Map<Scores> p(t.p, t.rows, t.columns);
    Eigen::Map<RowMajor> o(t.o, t.rows, t.head_dim);
    Eigen::Map<Column> row_max(t.row_max, t.rows);
    Eigen::Map<Column> row_sum(t.row_sum, t.rows);
    Eigen::Map<Column> rescale(t.rescale, t.rows);

    p.noalias() = q * k.transpose();
    rescale = row_max;
    for (std::int32_t j = 0; j < t.columns; ++j) {
      if (counts(t.masks, j)) {
        p.col(j) *= t.scale;
        row_max = row_max.max(p.col(j).array());
      }
    }
    rescale -= row_max;
    exp(t.rescale, t.rows);
    row_sum *= rescale;
    o.array().colwise() *= rescale;
    // A tile is summed up by itself, as the kernels do: added key by key to the sum of a long walk,
    // small terms would lose more than LSE may.
    Eigen::Map<Column>& tile_sum = rescale;
    tile_sum.setZero();
    for (std::int32_t j = 0; j < t.columns; ++j) {
      if (counts(t.masks, j)) {
        p.col(j).array() -= row_max;
        exp(p.col(j).data(), t.rows);
        tile_sum += p.col(j).array();
      } else {
        p.col(j).setZero();
      }
    }
    row_sum += tile_sum;
    round(t.p, std::int64_t{t.columns} * t.rows, t.round_to);
    o.noalias() += p * v;
  }

  static void backward(const BackwardStep<Real>& t) {
    Eigen::Map<const RowMajor> q(t.q, t.rows, t.head_dim);
    Eigen::Map<const RowMajor> d_o(t.d_o, t.rows, t.head_dim);
    Eigen::Map<const Column> lse(t.lse, t.rows);
    Eigen::Map<const Column> delta(t.delta, t.rows);
    Eigen::Map<const RowMajor> k(t.k, t.columns, t.head_dim);
    Eigen::Map<const RowMajor> v(t.v, t.columns, t.head_dim);
    Eigen::Map<Scores> p(t.p, t.rows, t.columns);
    Eigen::Map<Scores> ds(t.ds, t.rows, t.columns);
    Eigen::Map<RowMajor> dq(t.dq, t.rows, t.head_dim);
    Eigen::Map<RowMajor> dk(t.dk, t.columns, t.head_dim);
    Eigen::Map<RowMajor> dv(t.dv, t.columns, t.head_dim);

    p.noalias() = q * k.transpose();
    ds.noalias() = d_o * v.transpose();
    for (std::int32_t j = 0; j < t.columns; ++j) {
      if (!counts(t.masks, j)) {
        p.col(j).setZero();
        ds.col(j).setZero();
        continue;
      }
      p.col(j).array() = p.col(j).array() * t.scale - lse;
      exp(p.col(j).data(), t.rows);
      ds.col(j).array() = p.col(j).array() * (ds.col(j).array() - delta);
      if (t.masked_pairs) {
        mask_pairs(t, j);
      }
    }
    const std::int64_t scores = std::int64_t{t.columns} * t.rows;
    round(t.p, scores, t.round_to);
    round(t.ds, scores, t.round_to);
    dv.noalias() += p.transpose() * d_o;
    dk.noalias() += ds.transpose() * q;
    dq.noalias() = ds * k;
  }

 private:
  static constexpr std::int32_t kPage = plan::kPageRows;

  template <class From, class To>
  static void copy(const From* from, std::int32_t count, To* to) {
    for (std::int32_t i = 0; i < count; ++i) {
      to[i] = static_cast<To>(from[i]);
    }
  }

  static bool counts(const std::uint32_t* masks, std::int32_t column) {
    return masks == nullptr || (masks[column / 32] >> (column % 32) & 1u) != 0;
  }

  // In fp32, as the kernels do: 2^x by parts, and zero where that would be subnormal.
  static void exp(Real* x, std::int32_t count) {
    if constexpr (sizeof(Real) == sizeof(float)) {
      for (std::int32_t i = 0; i < count; ++i) {
        constexpr float kLog2E = 1.44269504f;
        constexpr float kRounder = 12582912.f;  // 1.5 * 2^23: integers are the last bits of the sum
        const float shifted = x[i] * kLog2E + kRounder;
        const float f = x[i] * kLog2E - (shifted - kRounder);
        float power = 1.535336188319500e-4f;  // of two, on [-1/2, 1/2] (Cephes' polynomial)
        power = power * f + 1.339887440266574e-3f;
        power = power * f + 9.618437357674640e-3f;
        power = power * f + 5.550332471162809e-2f;
        power = power * f + 2.402264791363012e-1f;
        power = power * f + 6.931472028550421e-1f;
        power = power * f + 1.f;
        const std::uint32_t bits = float_bits(power) + (float_bits(shifted) << 23);
        x[i] = float_of_bits(choose(x[i] < -87.f, 0, bits));
      }
    } else {
      Eigen::Map<Column> values(x, count);
      values = values.exp();
    }
  }

  // To the dtype, by way of fp32. Subnormals of Real become zero: products with them are slow, and
  // Eigen's exp ends in one where it should vanish.
  static void round(Real* values, std::int64_t count, DType dtype) {
    switch (dtype) {
      case DType::kBFloat16:
        for (std::int64_t i = 0; i < count; ++i) {
          const auto value = static_cast<float>(flush(values[i]));
          values[i] = static_cast<Real>(bf16_to_float(float_to_bf16(value)));
        }
        break;
      case DType::kFloat16:
        // There and back in one loop is too much for the vectoriser. Scores come in whole page
        // pairs.
        for (std::int64_t i = 0; i < count; i += kPage * kPage) {
          std::uint16_t half[kPage * kPage];
          for (std::int32_t j = 0; j < kPage * kPage; ++j) {
            half[j] = float_to_fp16(static_cast<float>(values[i + j]));
          }
          for (std::int32_t j = 0; j < kPage * kPage; ++j) {
            values[i + j] = static_cast<Real>(fp16_to_float(half[j]));
          }
        }
        break;
      case DType::kFloat32:
      case DType::kFloat64:
        for (std::int64_t i = 0; i < count; ++i) {
          values[i] = flush(values[i]);
        }
        break;
    }
  }
  static Real flush(Real value) {
    constexpr Real kSmallest = std::numeric_limits<Real>::min();
    return (value > -kSmallest) & (value < kSmallest) ? Real{0} : value;
  }

  // Zeroes what column j has of masked page pairs; a product with P = 0 would keep a NaN.
  static void mask_pairs(const BackwardStep<Real>& t, std::int32_t j) {
    for (std::int32_t page = 0; page < t.rows / kPage; ++page) {
      if ((t.adjacency >> (page * t.slots + j / kPage) & 1u) == 0) {
        const std::int64_t at = std::int64_t{j} * t.rows + page * kPage;
        for (std::int32_t i = 0; i < kPage; ++i) {
          t.p[at + i] = 0;
          t.ds[at + i] = 0;
        }
      }
    }
  }
};

template <class Real>
constexpr TileOps<Real> kTileBodyOps = {TileBody<Real>::widen, TileBody<Real>::narrow,
                                        TileBody<Real>::add, TileBody<Real>::forward,
                                        TileBody<Real>::backward};

}  // namespace
}  // namespace kpage::cpu
