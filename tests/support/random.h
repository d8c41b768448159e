// Draws that generators of test cases need.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/random.h"

namespace kpage::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}

  std::uint64_t bits() { return random_.next(); }
  // In [0, count); count > 0.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(count)));
  }
  // In [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  double uniform() { return random_.uniform(); }  // in [0, 1)
  double normal() { return random_.normal(); }
  bool chance(double probability) { return uniform() < probability; }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<std::int64_t>(choices.size()))];
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1],
                values[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
    }
  }

 private:
  kpage::Random random_;
};

}  // namespace kpage::test
