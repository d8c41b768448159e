#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "cpu/tile_ops.h"
#include "plan/format.h"

namespace kpage::cpu {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Numbers without a pattern, in [-1, 1].
template <class Real>
std::vector<Real> numbers(std::int64_t count, int seed) {
  std::vector<Real> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<Real>(std::sin(static_cast<double>((i * i + 3 * i) % 1013) * 0.37 + seed));
  }
  return values;
}

template <class Real>
double dot(const Real* a, const Real* b, std::int32_t count) {
  double sum = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

bool counts(const std::vector<std::uint32_t>& masks, std::int32_t column) {
  return (masks[static_cast<std::size_t>(column) / 32] >> (column % 32) & 1u) != 0;
}

// Columns j with j % 16 >= valid do not count.
std::vector<std::uint32_t> page_masks(std::int32_t valid) {
  const std::uint32_t page = plan::page_mask(valid);
  return std::vector<std::uint32_t>(plan::kMaskWordsPerTile, page | page << 16);
}

class EachIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!has_isa(GetParam())) {
      GTEST_SKIP() << "not of this CPU";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Cpu, EachIsa, testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
                         [](const testing::TestParamInfo<Isa>& isa) -> std::string {
                           return isa.param == Isa::kPortable ? "portable"
                                  : isa.param == Isa::kAvx2   ? "avx2"
                                                              : "avx512";
                         });

// Two tiles of one walk, the second one masked, against one softmax over all of their keys.
template <class Real>
void check_forward(Isa isa, std::int32_t rows, std::int32_t columns, double tolerance) {
  constexpr std::int32_t kDim = 24;
  constexpr double kScale = -0.7;  // a negative scale turns the maximum around
  const auto masks = page_masks(5);
  const auto q = numbers<Real>(rows * kDim, 1);
  const auto k = numbers<Real>(2 * columns * kDim, 2);
  const auto v = numbers<Real>(2 * columns * kDim, 3);
  const auto n = static_cast<std::size_t>(rows);
  std::vector<Real> p(n * static_cast<std::size_t>(columns)), rescale(n), row_sum(n, 0);
  std::vector<Real> row_max(n, -std::numeric_limits<Real>::infinity()), o(n * kDim, 0);

  ForwardTile<Real> tile;
  tile.rows = rows;
  tile.columns = columns;
  tile.head_dim = kDim;
  tile.scale = static_cast<Real>(kScale);
  tile.round_to = DType::kFloat64;
  tile.q = q.data();
  tile.p = p.data();
  tile.rescale = rescale.data();
  tile.row_max = row_max.data();
  tile.row_sum = row_sum.data();
  tile.o = o.data();
  for (std::int32_t t = 0; t < 2; ++t) {
    tile.k = k.data() + t * columns * kDim;
    tile.v = v.data() + t * columns * kDim;
    tile.masks = t == 0 ? nullptr : masks.data();
    tile_ops<Real>(isa).forward(tile);
  }

  for (std::int32_t r = 0; r < rows; ++r) {
    double sum = 0;
    std::vector<double> want(kDim, 0);
    for (std::int32_t j = 0; j < 2 * columns; ++j) {
      if (j < columns || counts(masks, j - columns)) {
        const double weight = std::exp(kScale * dot(&q[r * kDim], &k[j * kDim], kDim));
        sum += weight;
        for (std::int32_t d = 0; d < kDim; ++d) {
          want[d] += weight * static_cast<double>(v[j * kDim + d]);
        }
      }
    }
    EXPECT_NEAR(static_cast<double>(row_max[r]) + std::log(static_cast<double>(row_sum[r])),
                std::log(sum), tolerance);
    for (std::int32_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(static_cast<double>(o[r * kDim + d] / row_sum[r]), want[d] / sum, tolerance);
    }
  }
}

TEST_P(EachIsa, ForwardIsSoftmaxOfValidKeys) {
  for (const std::int32_t rows : {16, 48, 128}) {
    check_forward<float>(GetParam(), rows, 128, 1e-5);
    check_forward<double>(GetParam(), rows, 48, 1e-13);
  }
}

// Zero, not the subnormal number that an exp with a clamped argument ends in.
TEST_P(EachIsa, ProbabilitiesThatVanishAreZero) {
  constexpr std::int32_t kDim = 8;
  std::vector<float> q(16 * kDim, 30.f), k(32 * kDim, 1.f), v(32 * kDim, 1.f);
  for (std::int32_t d = 0; d < kDim; ++d) {
    k[static_cast<std::size_t>(d)] = 2.f;  // beats the other keys by e^-240
  }
  std::vector<float> p(16 * 32), rescale(16), row_sum(16, 0.f), o(16 * kDim, 0.f);
  std::vector<float> row_max(16, -std::numeric_limits<float>::infinity());
  ForwardTile<float> tile;
  tile.rows = 16;
  tile.columns = 32;
  tile.head_dim = kDim;
  tile.scale = 1;
  tile.round_to = DType::kBFloat16;
  tile.q = q.data();
  tile.k = k.data();
  tile.v = v.data();
  tile.p = p.data();
  tile.rescale = rescale.data();
  tile.row_max = row_max.data();
  tile.row_sum = row_sum.data();
  tile.o = o.data();
  tile_ops<float>(GetParam()).forward(tile);
  for (std::size_t i = 0; i < p.size(); ++i) {
    EXPECT_EQ(p[i], i < 16 ? 1.f : 0.f);
  }
  EXPECT_EQ(o[0], 1.f);
}

TEST_P(EachIsa, BackwardHasNothingOfMaskedPairs) {
  constexpr std::int32_t kRows = 128, kColumns = 128, kDim = 16;
  constexpr double kScale = 0.3;
  const auto masks = page_masks(9);
  const std::uint64_t adjacency = 0x8040201008040281u;  // the diagonal, and a pair off it
  auto q = numbers<double>(kRows * kDim, 1);
  const auto d_o = numbers<double>(kRows * kDim, 2);
  const auto k = numbers<double>(kColumns * kDim, 3);
  const auto v = numbers<double>(kColumns * kDim, 4);
  auto lse = numbers<double>(kRows, 5);
  auto delta = numbers<double>(kRows, 6);
  lse[3] = kInf;  // a row that is not valid
  delta[3] = 0;
  std::vector<double> p(kRows * kColumns), ds(kRows * kColumns), dq(kRows * kDim, kNaN);
  std::vector<double> dk(kColumns * kDim, 0), dv(kColumns * kDim, 0);

  BackwardStep<double> step;
  step.rows = kRows;
  step.columns = kColumns;
  step.head_dim = kDim;
  step.scale = kScale;
  step.round_to = DType::kFloat64;
  step.masks = masks.data();
  step.adjacency = adjacency;
  step.slots = plan::kOwnerSlots;
  step.masked_pairs = true;
  step.q = q.data();
  step.d_o = d_o.data();
  step.lse = lse.data();
  step.delta = delta.data();
  step.k = k.data();
  step.v = v.data();
  step.p = p.data();
  step.ds = ds.data();
  step.dq = dq.data();
  step.dk = dk.data();
  step.dv = dv.data();
  tile_ops<double>(GetParam()).backward(step);

  std::vector<double> want_dq(kRows * kDim, 0), want_dk(kColumns * kDim, 0),
      want_dv(kColumns * kDim, 0);
  for (std::int32_t i = 0; i < kRows; ++i) {
    for (std::int32_t j = 0; j < kColumns; ++j) {
      if (i == 3 || !counts(masks, j) || (adjacency >> (i / 16 * 8 + j / 16) & 1u) == 0) {
        continue;
      }
      const double weight = std::exp(kScale * dot(&q[i * kDim], &k[j * kDim], kDim) - lse[i]);
      const double change = weight * (dot(&d_o[i * kDim], &v[j * kDim], kDim) - delta[i]);
      for (std::int32_t d = 0; d < kDim; ++d) {
        want_dq[i * kDim + d] += change * k[j * kDim + d];
        want_dk[j * kDim + d] += change * q[i * kDim + d];
        want_dv[j * kDim + d] += weight * d_o[i * kDim + d];
      }
    }
  }
  for (std::size_t i = 0; i < dq.size(); ++i) {
    EXPECT_NEAR(dq[i], want_dq[i], 1e-11);
    EXPECT_NEAR(dk[i], want_dk[i], 1e-11);
    EXPECT_NEAR(dv[i], want_dv[i], 1e-11);
  }
}

TEST_P(EachIsa, RowsKeepTheirStrideAndRounding) {
  constexpr std::int32_t kDim = 40;
  constexpr std::int64_t kStride = 43, kRows = 3;
  const auto values = numbers<float>(kRows * kDim, 7);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<std::uint16_t> rows(kRows * kStride, 0xffff);
    tile_ops<float>(GetParam()).narrow(values.data(), kRows, kDim, rows.data(), dtype, kStride);
    std::vector<float> back(kRows * kDim);
    tile_ops<float>(GetParam()).widen(rows.data(), dtype, kStride, kRows, kDim, back.data());
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t d = 0; d < kStride; ++d) {
        const std::uint16_t got = rows[static_cast<std::size_t>(r * kStride + d)];
        if (d >= kDim) {
          EXPECT_EQ(got, 0xffff);
          continue;
        }
        const auto i = static_cast<std::size_t>(r * kDim + d);
        const bool is_bf16 = dtype == DType::kBFloat16;
        EXPECT_EQ(got, is_bf16 ? float_to_bf16(values[i]) : float_to_fp16(values[i]));
        EXPECT_EQ(back[i], is_bf16 ? bf16_to_float(got) : fp16_to_float(got));
      }
    }
  }
}

}  // namespace
}  // namespace kpage::cpu
