// How far results are from the oracle's, and how far they may be.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kpage/layout.h"
#include "kpage/types.h"

namespace kpage::oracle {

// Sums over pairs of a result and what it should be.
class Error {
 public:
  void add(double got, double want) {
    const double difference = got == want ? 0.0 : got - want;  // equal infinities differ by nothing
    squares_ += difference * difference;
    got_squares_ += got * got;
    want_squares_ += want * want;
    products_ += got * want;
    // A maximum would drop NaN.
    largest_ = std::abs(difference) <= largest_ ? largest_ : std::abs(difference);
  }

  // |got - want| / |want| in the Euclidean norm; zero where both are zero.
  [[nodiscard]] double relative_l2() const {
    return squares_ == 0 ? 0.0 : std::sqrt(squares_ / want_squares_);
  }
  [[nodiscard]] double cosine() const {
    return squares_ == 0 ? 1.0 : products_ / std::sqrt(got_squares_ * want_squares_);
  }
  [[nodiscard]] double norm() const { return std::sqrt(want_squares_); }  // of what it should be
  [[nodiscard]] double distance() const { return std::sqrt(squares_); }
  [[nodiscard]] double largest() const { return largest_; }

 private:
  double squares_ = 0;
  double got_squares_ = 0;
  double want_squares_ = 0;
  double products_ = 0;
  double largest_ = 0;
};

// The limits for results of a dtype, over all valid rows of a case. Exact results,
// in fp64, have limits of their own.
[[nodiscard]] constexpr double forward_limit(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 2.5e-3;
    case DType::kFloat16:
      return 3.5e-4;
    case DType::kFloat32:
      return 1e-6;
    case DType::kFloat64:
      return 1e-10;
  }
  return 0;
}

// Short lists make for small gradients beside the rounded terms that cancel in them.
[[nodiscard]] constexpr double gradient_limit(DType dtype, std::int64_t shortest_list) {
  const double short_lists = 1 + 8 / static_cast<double>(std::max<std::int64_t>(shortest_list, 1));
  switch (dtype) {
    case DType::kBFloat16:
      return 3e-3 * short_lists;
    case DType::kFloat16:
      return 4e-4 * short_lists;
    case DType::kFloat32:
      return 1e-5;
    case DType::kFloat64:
      return 1e-10;
  }
  return 0;
}

inline constexpr double kGradientCosine = 0.99999;
// Of an error at right angles to the gradient, which takes 1 - error^2 / 2 off the cosine: lists so
// short that their limit lets more through than kGradientCosine are held to that limit alone.
[[nodiscard]] constexpr double gradient_cosine(double limit) {
  return std::min(kGradientCosine, 1 - limit * limit / 2);
}
[[nodiscard]] constexpr double gradient_cosine(DType dtype, std::int64_t shortest_list) {
  return gradient_cosine(gradient_limit(dtype, shortest_list));
}

[[nodiscard]] inline double lse_limit(double lse) {
  return std::abs(lse) <= 16 ? 2e-6 : 1e-6 * std::abs(lse);
}
// Of an LSE in fp32: its error as a share of its limit; infinite where one of the two is -inf.
[[nodiscard]] inline double lse_error(double got, double want) {
  if (got == want) {
    return 0;
  }
  return std::isfinite(got) && std::isfinite(want) ? std::abs(got - want) / lse_limit(want)
                                                   : std::numeric_limits<double>::infinity();
}

// Valid keys of the query block that has fewest of them, among those that have any and have rows;
// 0 where there is none.
[[nodiscard]] std::int64_t shortest_list(const LayoutView& layout);

}  // namespace kpage::oracle
