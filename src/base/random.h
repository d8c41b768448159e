// Random numbers that are the same for a seed on every machine: the distributions of the standard
// library are not.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace kpage {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  [[nodiscard]] std::uint64_t next() { return engine_(); }

  // Evenly from [0, bound), for a bound of at least 1.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t surplus = -bound % bound;  // 2^64 mod bound: draws that would favour some
    std::uint64_t draw = next();
    while (draw < surplus) {
      draw = next();
    }
    return draw % bound;
  }

  // Evenly from [0, 1), in steps of 2^-53.
  [[nodiscard]] double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  // Standard normal (Box and Muller).
  [[nodiscard]] double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace kpage
